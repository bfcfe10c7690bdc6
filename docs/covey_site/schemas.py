"""JSON Schemas of what commands print and write, from the types that say it."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DataclassSchema, TypedDictSchema

from covey.cli.outputs import FAILURE, FILES, OUTPUTS
from covey_papers.cli import outputs as papers

__all__ = ["ERROR", "FILES", "OUTPUTS", "file_name", "schema_of", "title_of", "written_schemas"]

Schema = dict[str, Any]

FOLDER = "reference/json/schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
ERROR = "any command that could not answer"
OUTPUTS: Mapping[str, Any] = {**OUTPUTS, **papers.OUTPUTS, ERROR: FAILURE}
"""The types of what is printed, by command and the option that asks for it."""
FILES: Mapping[str, Any] = {**FILES, **papers.FILES}
"""The types of what is written, by file."""

ATTRIBUTES = re.compile(r"^Attributes:\n((?:[ ]+.*\n|\n)+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"^ {4}(\w[\w, ]*): ((?:.+)(?:\n {8}.*)*)", re.MULTILINE)


class _Closed(GenerateJsonSchema):
    """Objects that have all of their keys and no other, described by docstrings."""

    def typed_dict_schema(self, schema: TypedDictSchema) -> Schema:
        return self._closed(super().typed_dict_schema(schema), schema.get("cls", dict))

    def dataclass_schema(self, schema: DataclassSchema) -> Schema:
        found = super().dataclass_schema(schema)
        inner = self.resolve_ref_schema(found) if "$ref" in found else found
        inner["required"] = [*inner["properties"]]
        return self._closed(found, schema["cls"])

    def _closed(self, found: Schema, cls: type) -> Schema:
        found["additionalProperties"] = False
        said, meanings = _told(cls)
        found["description"] = said
        for name, each in found.get("properties", {}).items():
            each.pop("title", None)
            each.pop("default", None)
            if name in meanings:
                each["description"] = meanings[name]
        return found


@cache
def schema_of(name: str) -> Schema:
    """Return the schema of an output or a file; treat it as frozen."""
    shape = {**OUTPUTS, **FILES}[name]
    return {"$schema": DIALECT, "title": title_of(name), **_schema(shape)}


def title_of(name: str) -> str:
    """Return what a schema is of, as a reader types it."""
    is_command = name in OUTPUTS and name != ERROR
    return f"covey {name} --json" if is_command else name


def written_schemas() -> Mapping[str, str]:
    """Return the schemas as files, by their places on the site."""
    return {
        f"{FOLDER}/{file_name(name)}": f"{json.dumps(schema_of(name), indent=1)}\n"
        for name in (*OUTPUTS, *FILES)
    }


def _schema(shape: Any) -> Schema:  # noqa: ANN401 - a type, or a union of some
    made = TypeAdapter(shape).json_schema(mode="serialization", schema_generator=_Closed)
    made.pop("title", None)
    return made


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
