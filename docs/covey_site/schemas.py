"""JSON Schemas of what commands print and write, from the classes that hold it.

A command's is made from the type that its function returns or yields.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import click
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DataclassSchema, TypedDictSchema

from covey.cli.commands import app, loaded
from covey_site.shapes import DICTS, FAILURE, FILES

Schema = dict[str, Any]

FOLDER = "reference/json/schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ERROR = "any command that could not answer"

SOMETIMES = {"Proof": ("subtracted",)}
"""Of dataclasses: what a proof has only where sums were subtracted."""

ATTRIBUTES = re.compile(r"^Attributes:\n((?:[ ]+.*\n|\n)+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"^ {4}(\w[\w, ]*): ((?:.+)(?:\n {8}.*)*)", re.MULTILINE)


@cache
def outputs() -> Mapping[str, Any]:
    """Return the types of what is printed, by command."""
    names = app.list_commands(click.Context(app))
    answers = {
        path: answer
        for name in names
        for path, command in _commands(name, loaded(name))
        if (answer := _answer_of(command)) is not None
    }
    return {**answers, ERROR: FAILURE}


def _commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            yield from _commands(f"{name} {below}", each)


def _answer_of(command: click.Command) -> Any:  # noqa: ANN401 - a type, or a union of some
    """Return what a command's function returns or yields; None: it has none, as a group."""
    if command.callback is None:
        return None
    function = inspect.unwrap(command.callback)
    module = sys.modules[function.__module__]
    _import_for_types(module)
    answer = get_type_hints(function)["return"]
    return get_args(answer)[0] if get_origin(answer) is Iterator else answer


@cache
def _import_for_types(module: ModuleType) -> None:
    """Import what a command's module imports for its types alone."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(ast.unparse(ast.Module(node.body, [])), vars(module))  # noqa: S102 - covey's own lines
    for name, cls in vars(module).items():
        for each in fields(cls) if is_dataclass(cls) else ():
            hidden = each.metadata.get("json") == "hidden"
            each.type = Any if hidden else DICTS.get(f"{name}.{each.name}", each.type)


class _Closed(GenerateJsonSchema):
    """Objects that have all of their keys and no other, described by docstrings."""

    def typed_dict_schema(self, schema: TypedDictSchema) -> Schema:
        return self._closed(super().typed_dict_schema(schema), schema.get("cls", dict))

    def dataclass_schema(self, schema: DataclassSchema) -> Schema:
        cls = schema["cls"]
        how = {each.name: each.metadata.get("json") for each in fields(cls)}
        inner: Any = schema["schema"]
        inner["fields"] = [each for each in inner["fields"] if how[each["name"]] != "hidden"]
        found = super().dataclass_schema(schema)
        held = self.resolve_ref_schema(found)
        sometimes = {*SOMETIMES.get(cls.__name__, ()), *(n for n in how if how[n] == "optional")}
        names = held["properties"]
        held["required"] = [each for each in names if each not in sometimes]
        self._closed(found, cls)
        held["inline"] = [each for each in names if how[each] == "inline"]
        return found

    def _closed(self, found: Schema, cls: type) -> Schema:
        held = self.resolve_ref_schema(found)
        held["additionalProperties"] = False
        said, meanings = _told(cls)
        held["description"] = said
        for name, each in held.get("properties", {}).items():
            each.pop("title", None)
            each.pop("default", None)
            if name in meanings:
                each["description"] = meanings[name]
        return found


@cache
def schema_of(name: str) -> Schema:
    """Return the schema of an output or a file; treat it as frozen."""
    shape = {**outputs(), **FILES}[name]
    return {"$schema": DIALECT, "title": title_of(name), **_schema(shape)}


def title_of(name: str) -> str:
    """Return what a schema is of, as a reader types it."""
    is_command = name in outputs() and name != ERROR
    return f"covey {name} --json" if is_command else name


def written_schemas() -> Mapping[str, str]:
    """Return the schemas as files, by their places on the site."""
    return {
        f"{FOLDER}/{file_name(name)}": f"{json.dumps(schema_of(name), indent=1)}\n"
        for name in (*outputs(), *FILES)
    }


def _schema(shape: Any) -> Schema:  # noqa: ANN401 - a type, or a union of some
    made = TypeAdapter(shape).json_schema(mode="serialization", schema_generator=_Closed)
    made.pop("title", None)
    known = made.get("$defs", {})
    for each in (made, *known.values()):
        _with_inline(each, known)
    text = json.dumps(made)
    while unused := [name for name in known if f'"#/$defs/{name}"' not in text]:
        for name in unused:
            del known[name]
        text = json.dumps(made)
    return made


def _with_inline(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    """Return an object's schema, once keys of what stands inline are among its own."""
    inline = schema.pop("inline", [])
    properties: Schema = {}
    required: list[str] = []
    for name, each in schema.get("properties", {}).items():
        if name in inline:
            among = each
            if "$ref" in each:
                among = _with_inline(known[each["$ref"].split("/")[-1]], known)
            schema["additionalProperties"] |= "properties" not in among
            properties |= among.get("properties", {})
            required += among.get("required", [])
        else:
            properties[name] = each
            required += [name] if name in schema["required"] else []
    if inline:
        schema |= {"properties": properties, "required": list(dict.fromkeys(required))}
    return schema


def file_name(name: str) -> str:
    """Return how the file of a schema is called."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json"


def _told(cls: type) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a type, and of each attribute.

    A type says first what it inherits.
    """
    meanings: dict[str, str] = {}
    for base in (*reversed(_bases(cls)), cls):
        text = f"{inspect.cleandoc(base.__doc__ or '')}\n"
        for listed in ATTRIBUTES.findall(text):
            meanings |= dict(_attributes(listed))
    said = ATTRIBUTES.split(inspect.cleandoc(cls.__doc__ or "") + "\n")[0]
    return _as_json(said), meanings


def _bases(cls: type) -> list[type]:
    """Return what a class inherits from; a typed dict forgets it but for one name."""
    known = [each for each in cls.__mro__[1:] if each is not object and each is not dict]
    return [*known, *(b for b in getattr(cls, "__orig_bases__", ()) if isinstance(b, type))]


def _attributes(listed: str) -> Iterator[tuple[str, str]]:
    for names, said in ATTRIBUTE.findall(listed):
        for name in names.split(","):
            yield name.strip(), _as_json(said)


def _as_json(said: str) -> str:
    """Return a sentence on one line, as of JSON: what is None in Python is null."""
    flat = re.sub(r"\bNone\b", "null", " ".join(said.split()))
    return f"{flat[:1].upper()}{flat[1:]}"
