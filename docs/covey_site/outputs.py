"""What commands print with `--json` and what files hold, a page per command."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from covey_site.markdown import escaped, hidden_tree
from covey_site.schemas import ERROR, FILES, file_name, outputs, schema_of, title_of

__all__ = ["output_pages"]

FOLDER = "reference/json"
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
[exit codes](../../commands.md#exit-codes) say whether it did what was asked. Here is what
each prints, and what the JSON files hold that covey writes, each with its JSON Schema
(2020-12). An object has all of its keys and no other. `null` is a figure that is not known:
the `reason` beside it says why. Numbers are never NaN or infinite. The schema of a settings
file is what `covey config schema` prints."""


def output_pages() -> Mapping[str, str]:
    """Return the pages by their addresses."""
    found = {
        f"{FOLDER}/{word}": _page(f"What `covey {word}` prints", names)
        for word, names in _by_command().items()
    }
    files = _page("JSON files", list(FILES))
    failed = _page("What a command prints that failed", [ERROR])
    index = "\n".join([HEAD, "", *_listed(), "", hidden_tree(_addresses())])
    return {f"{FOLDER}/index": index, **found, f"{FOLDER}/files": files, f"{FOLDER}/errors": failed}


def _by_command() -> dict[str, list[str]]:
    names = sorted(name for name in outputs() if name != ERROR)
    return {word: list(of) for word, of in groupby(names, lambda n: n.split()[0])}


def _addresses() -> list[str]:
    return [f"{FOLDER}/{page}" for page in (*_by_command(), "files", "errors")]


def _listed() -> Iterator[str]:
    yield from ("| printed by, or held in | what it is |", "|---|---|")
    pages = {name: word for word, names in _by_command().items() for name in names}
    named = {**pages, ERROR: "errors", **dict.fromkeys(FILES, "files")}
    for name, page in named.items():
        said = schema_of(name).get("description") or _first(schema_of(name))
        short = title_of(name).removesuffix(" --json")
        yield f"| [`{short}`]({page}.md) | {escaped(said)} |"


def _first(schema: Mapping[str, Any]) -> str:
    """Return what is said of the first of several forms."""
    return _forms(schema)[0].get("description", "")


def _forms(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects that a schema allows at the top."""
    found = schema.get("anyOf", [schema])
    return [_resolved(each, schema) for each in found]


def _resolved(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = part.get("$ref")
    return part if reference is None else schema["$defs"][reference.split("/")[-1]]


def _page(title: str, names: Sequence[str]) -> str:
    lines = [f"# {title}", ""]
    objects: dict[str, Mapping[str, Any]] = {}
    for name in names:
        schema = schema_of(name)
        lines += [f"## `{title_of(name)}`", ""]
        for form in _forms(schema):
            lines += ["Or:", ""] if form is not _forms(schema)[0] else []
            lines += [*_described(form), ""]
        address = f"schemas/{file_name(name)}"
        lines += [f'<a href="{address}">JSON Schema</a>', ""]
        top = [id(form) for form in _forms(schema)]
        objects |= {k: v for k, v in schema.get("$defs", {}).items() if id(v) not in top}
    for key, each in sorted(objects.items()):
        lines += [f"## {key}", "", *_described(each), ""]
    return "\n".join(lines)


def _described(form: Mapping[str, Any]) -> Iterator[str]:
    yield from (escaped(form.get("description", "")), "")
    if "properties" not in form:
        yield f"{_kind(form)}."
        return
    yield from ("| key | type | meaning |", "|---|---|---|")
    needed = form.get("required", ())
    for key, each in form["properties"].items():
        said = escaped(each.get("description", ""))
        there = "" if key in needed else "Not always there. "
        yield f"| `{key}` | {_kind(each)} | {there}{said} |"
    for pattern in form.get("patternProperties", {}):
        yield f"| `{pattern.strip('^')}GROUP` | number or null | |"


def _kind(spec: Mapping[str, Any]) -> str:
    """Return the type of a value in words, with links to objects on the same page."""
    if "$ref" in spec:
        name = spec["$ref"].split("/")[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in spec:
        return " or ".join(dict.fromkeys(map(_kind, spec["anyOf"])))
    if "enum" in spec or "const" in spec:
        words = spec.get("enum") or [spec["const"]]
        return ", ".join(f"`{word}`" for word in words)
    if spec.get("type") == "array":
        return _list(spec)
    inner = spec.get("additionalProperties")
    if spec.get("type") == "object" and isinstance(inner, Mapping):
        return f"object of {_kind(inner)}"
    return PLAIN[spec["type"]] if "type" in spec else "any"


def _list(spec: Mapping[str, Any]) -> str:
    if "prefixItems" in spec:
        return f"list: {', '.join(map(_kind, spec['prefixItems']))}"
    return f"list of {_kind(spec.get('items', {}))}"
