"""What commands print with `--json` and what files hold, on one page."""

from collections.abc import Iterator, Mapping
from typing import Any

from covey_site.markdown import escaped
from covey_site.schemas import ERROR, FILES, FOLDER, file_name, outputs, schema_of, title_of

ADDRESS = "reference/json"
PLAIN = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}
HEAD = """# JSON outputs

Every command takes `--json`, and prints exactly one object on standard output;
[exit codes](../commands.md#exit-codes) say whether it did what was requested. Here is what
each prints, and what the JSON files of covey hold, each with its JSON Schema
(2020-12). An object has all of its keys and no other. `null` is a figure that is not known:
the `reason` beside it says why. Numbers are never NaN or infinite. The schema of a settings
file is what `covey config schema` prints."""


def output_page() -> Mapping[str, str]:
    """Return the page by its address."""
    lines, objects = [HEAD, ""], dict[str, Mapping[str, Any]]()
    for name in (*sorted(n for n in outputs() if n != ERROR), *FILES, ERROR):
        schema = schema_of(name)
        forms = [_resolved(form, schema) for form in schema.get("anyOf", [schema])]
        lines += [f"## `{title_of(name)}`", ""]
        for form in forms:
            lines += ["Or:", ""] if form is not forms[0] else []
            lines += [*_described(form), ""]
        address = f"{FOLDER.removeprefix('reference/')}/{file_name(name)}"
        lines += [f'<a href="{address}">JSON Schema</a>', ""]
        objects |= schema.get("$defs", {})
    lines += ["## Objects", ""]
    for key, each in sorted(objects.items()):
        lines += [f"### {key}", "", *_described(each), ""]
    return {ADDRESS: "\n".join(lines)}


def _resolved(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = part.get("$ref")
    return part if reference is None else schema["$defs"][reference.split("/")[-1]]


def _described(form: Mapping[str, Any]) -> Iterator[str]:
    yield from (escaped(form.get("description", "")), "")
    if "properties" not in form:
        yield f"{_kind(form)}."
        return
    yield from ("| key | type | meaning |", "|---|---|---|")
    required = form.get("required", ())
    for key, each in form["properties"].items():
        meaning = escaped(each.get("description", ""))
        there = "" if key in required else "Not always there. "
        yield f"| `{key}` | {_kind(each)} | {there}{meaning} |"
    for pattern in form.get("patternProperties", {}):
        yield f"| `{pattern.strip('^')}GROUP` | number or null | |"


def _kind(spec: Mapping[str, Any]) -> str:
    """Return the type of a value in words, with links to objects on the page."""
    if "$ref" in spec:
        name = spec["$ref"].split("/")[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in spec:
        return " or ".join(dict.fromkeys(map(_kind, spec["anyOf"])))
    if "enum" in spec or "const" in spec:
        words = spec.get("enum") or [spec["const"]]
        return ", ".join(f"`{word}`" for word in words)
    if spec.get("type") == "array":
        items = spec.get("prefixItems")
        return (
            f"list: {', '.join(map(_kind, items))}"
            if items
            else f"list of {_kind(spec.get('items', {}))}"
        )
    inner = spec.get("additionalProperties")
    if spec.get("type") == "object" and isinstance(inner, Mapping):
        return f"object of {_kind(inner)}"
    return PLAIN[spec["type"]] if "type" in spec else "any"
