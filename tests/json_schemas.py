"""What is printed and written as JSON, held to the schemas that the site shows."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator  # a dependency of others here

from covey_site.schemas import ERROR, outputs, schema_of


def check_printed(words: Sequence[str], printed: Mapping[str, Any]) -> None:
    """Fail where a command's one JSON object is not what its schema says."""
    check_json(ERROR if "error" in printed else output_of(words), printed)


def check_json(name: str, document: Any) -> None:
    """Fail where a value is not what the schema of an output or a file says."""
    errors = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in validator(name).iter_errors(document)
    ]
    if errors:
        raise AssertionError(f"{name}, by its answer's class: {'; '.join(errors)}")


def output_of(words: Sequence[str]) -> str:
    """Return the name of what these words print: the longest that they begin with."""
    plain = [word for word in words if word not in ("-q", "-v", "--quiet")]
    fitting = [name for name in outputs() if plain[: len(name.split())] == name.split()]
    assert fitting, f"say what `covey {' '.join(words)}` returns"
    return max(fitting, key=len)


@cache
def validator(name: str) -> Draft202012Validator:
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)
