"""The reference says of every public name what it is, and of a component what it can be set to."""

import inspect

import pytest
from pydantic import BaseModel

import covey
from covey_site.python import python_pages

NAMES = sorted(name for name in covey.__all__ if name != "__version__")
COMPONENTS = [
    name
    for name in NAMES
    if inspect.isclass(value := getattr(covey, name))
    and issubclass(value, BaseModel)
    and value is not covey.Config  # whose settings have pages of their own
    and value.model_fields
]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return dict(python_pages())


def test_the_index_has_every_name_once_with_a_sentence(pages: dict[str, str]):
    lines = pages["reference/python/index"].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| {py:obj}")]
    assert sorted(row[0].split("`")[1].split(" ")[0] for row in rows) == NAMES
    aliases = {row[0] for row in rows if len(row) < 3}
    assert len(aliases) < 10
    assert [
        row for row in rows if len(row) == 3 and not row[2].endswith((".", "?", ":", "`"))
    ] == []


@pytest.mark.parametrize("name", COMPONENTS)
def test_settings_stand_with_default_range_and_meaning(pages: dict[str, str], name: str):
    (page,) = (text for text in pages.values() if f".. autoclass:: covey.{name}\n" in text)
    table = page.split(f"Settings of `{name}`:\n\n")[1].split("\n\n")[0].splitlines()[2:]
    rows = [row.strip("| ").split(" | ") for row in table]
    fields = getattr(covey, name).model_fields
    assert [(row[0], row[1]) for row in rows] == [
        (f"`{key}`", f"`{field.default!r}`") for key, field in fields.items()
    ]
    assert [row[0] for row in rows if len(row) < 4] == []
