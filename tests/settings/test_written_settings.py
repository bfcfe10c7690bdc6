"""Settings that files, pages and commands show, and the page of settings itself."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey import Config
from covey.settings.load import flat
from covey.settings.reference import schema, settings
from support.setting_keys import setting_keys

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("docs", "examples", "benchmarks", "src", "tests")
FILES = sorted(ROOT.glob("examples/**/*.toml"))
PAGES = [
    path
    for pages in ("*.md", *(f"{folder}/**/*.md" for folder in FOLDERS))
    for path in sorted(ROOT.glob(pages))
]
COMMANDS = [*PAGES, *sorted(ROOT.glob("docs/results/**/*.json")), *sorted(ROOT.glob("src/**/*.py"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_of_settings_is_valid(path):
    assert Config.read(tomllib.loads(path.read_text()))


def blocks(text: str) -> Iterator[str]:
    """Yield what a page shows as TOML: fenced, or indented with a table in it."""
    yield from re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^\n((?: {4}.*\n)+)", prose, re.MULTILINE)
    yield from (block for block in indented if re.search(r"^ {4}\[\w+\]$", block, re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_settings_that_a_page_shows_as_a_file_are_valid(path):
    for block in map(tomllib.loads, blocks(path.read_text())):
        others = {"project", "controller"}  # of pyproject.toml, and desk.toml
        assert others & block.keys() or Config.read(block)


def test_settings_that_commands_set_exist():
    known = setting_keys() | {"section.key"}
    shown = {
        (name(path), key)
        for path in COMMANDS
        for key in re.findall(r"--(?:set|over) ['\"]?([\w.]+)=", path.read_text())
    }
    assert len(shown) > 20
    assert {(page, key) for page, key in shown if key not in known} == set()


PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_has_a_row_for_every_section():
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    sections = (setting.section.partition(".")[0] for setting in settings())
    assert listed == [name for name in dict.fromkeys(sections) if name]


def test_the_settings_are_those_of_the_config():
    defaults = flat(Config().model_dump(mode="json"))
    default_of = {setting.key: setting.default for setting in settings()}
    for key, value in defaults.items():
        assert default_of[key.removesuffix(".name") if key.count(".") == 2 else key] == value


def test_every_setting_says_what_it_may_be():
    assert all(setting.allowed for setting in settings())


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
