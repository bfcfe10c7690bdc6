"""A setting that is also a component's option takes the same values in both places.

It stands twice because sections are declared without importing any component, which takes
torch: what only describes the settings (`covey config schema`) would wait for it.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from covey.components.registry import find, is_built_in, known_names
from covey.components.slots import ComponentSection
from covey.config.sections import Sections

WORDS = ("title", "description", "default")


def shared() -> Iterator[tuple[type[ComponentSection], str, str, str]]:
    """Every section, kind and component, and an option that both have."""
    for _, section in Sections():
        if not isinstance(section, ComponentSection):
            continue
        for kind in type(section).slots.values():
            for name in (n for n in known_names(kind) if is_built_in(kind, n)):
                fields = getattr(find(kind, name, kind), "model_fields", {})
                for key in fields.keys() & type(section).model_fields.keys():
                    yield type(section), kind, name, key


@pytest.mark.parametrize(("section", "kind", "name", "key"), sorted(shared(), key=str))
def test_an_option_and_a_setting_of_one_name_are_the_same(section, kind, name, key):
    owner = find(kind, name, kind)
    option, setting = owner.model_fields[key], section.model_fields[key]
    assert option.default == setting.default
    if option.annotation == setting.annotation:
        assert option.metadata == setting.metadata
    else:  # it takes a part of what others take
        assert values(owner, key) in values(section, key)["anyOf"]


def values(model: type[BaseModel], key: str) -> dict[str, Any]:
    """Return the schema of what a field takes."""
    told = model.model_json_schema()["properties"][key]
    return {k: each for k, each in told.items() if k not in WORDS}
