"""docs/settings.md, the schema and the defaults speak of the same settings."""

import re
from pathlib import Path

import pytest

from covey import Config
from covey.settings.load import flat
from covey.settings.reference import schema, settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_has_a_row_for_every_section():
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    sections = (each.section.partition(".")[0] for each in settings())
    assert listed == [name for name in dict.fromkeys(sections) if name]


def test_the_settings_are_those_of_the_config():
    defaults = flat(Config().model_dump(mode="json"))
    told = {each.key: each.default for each in settings()}
    for key, value in defaults.items():
        assert told[key.removesuffix(".name") if key.count(".") == 2 else key] == value


def test_every_setting_says_what_it_may_be():
    assert all(each.allowed for each in settings())


def test_the_schema_accepts_the_defaults_and_refuses_what_covey_refuses():
    jsonschema = pytest.importorskip("jsonschema")  # a dependency of others here
    check = jsonschema.Draft202012Validator(dict(schema()))
    defaults = Config().model_dump(mode="json")
    assert check.is_valid(defaults)
    for wrong in (
        {"rounds": "10"},
        {"train": {"learning_rate": True}},
        {"trian": {}},
        {"method": {"name": "ifca_mir"}},
        {"population": {"minority": [1]}},
    ):
        assert not check.is_valid(wrong)
