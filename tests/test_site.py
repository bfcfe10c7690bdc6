"""The site has a page for everything that can be named."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

import covey
from covey.base.events import Event
from covey.cli.commands import app, loaded
from covey.settings.reference import settings
from covey_site.assemble import DOCS, assemble, written_pages
from covey_site.check import problems
from covey_site.llms import TREE, listed, overview_for_programs

Make = Callable[[Path], object]


@pytest.fixture(scope="module")
def written() -> str:
    return "\n".join(written_pages().values())


@pytest.fixture(scope="session")
def sources(once: Callable[[str, Make], Path]) -> Path:
    return once("site", assemble)


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for below, command_below in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {below}", command_below)


@pytest.mark.slow
def test_every_command_has_all_its_options_on_a_page():
    pages = written_pages()
    for name in app.list_commands(click.Context(app)):
        page = pages[f"reference/commands/{name}"]
        for path, command in commands(f"covey {name}", loaded(name)):
            section = re.split(rf"^#+ `{path}`$", page, flags=re.MULTILINE)[1]
            own = re.split("^#", section, flags=re.MULTILINE)[0]
            options = [option for param in command.params for option in param.opts]
            named = [option for option in options if option.startswith("-")]
            assert [option for option in named if f"{option}" not in own] == [], path


def test_every_setting_has_a_part_of_its_own(written):
    assert [setting.key for setting in settings() if f"\n## `{setting.key}`\n" not in written] == []


def test_every_public_name_is_documented(written):
    names = [name for name in covey.__all__ if name != "__version__"]
    documented = set(re.findall(r"^\.\. (?:auto|py:)\w+:: covey\.(\w+)$", written, re.M))
    assert set(names) == documented


def test_every_event_is_documented():
    page = written_pages()["reference/events"]
    kinds = [subclass.__name__ for subclass in Event.__subclasses__()]
    assert [n for n in kinds if f".. autoclass:: {n}\n" not in page] == []


def test_every_page_has_a_place_on_the_front_page():
    trees = TREE.findall((DOCS / "index.md").read_text())
    placed = [page for tree in trees for page in dict.fromkeys(listed(tree, DOCS))]
    missing = sorted(set(DOCS.rglob("*.md")) - {*placed, DOCS / "index.md"})
    assert missing == [], "name these in a toctree of docs/index.md"
    assert len(placed) == len(set(placed)), "docs/index.md names a page twice"


def test_links_of_the_assembled_pages_lead_somewhere(sources):
    for page in sources.rglob("*.md"):
        targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)[^)]*\)", page.read_text())
        dead = [target for target in targets if not (page.parent / target).exists()]
        assert dead == [], page


def test_programs_find_every_page(sources):
    overview = overview_for_programs(sources)
    linked = set(re.findall(r"\]\(_sources/(.*?)\.txt\)", overview))
    pages = {str(page.relative_to(sources)) for page in sources.rglob("*.md")}
    assert pages - linked == {"index.md"}
    assert re.findall(r"^- .*\): *$", overview, re.MULTILINE) == []


def test_a_site_that_loads_from_elsewhere_or_links_to_nothing_is_reported(tmp_path):
    (tmp_path / "whole.html").write_text(
        '<h1 id="here">A</h1><a href="#here">a</a> <a href="https://example.org">b</a>'
    )
    assert problems(tmp_path) == []
    (tmp_path / "wrong.html").write_text(
        '<script src="https://example.org/a.js"></script><a href="whole.html#gone">a</a>'
        '<img src="gone.png"><a href="whole.html#here">b</a>'
    )
    text = " ".join(problems(tmp_path))
    assert re.findall(r"(?:loads|links to) (\S+)", text) == [
        "https://example.org/a.js",
        "whole.html#gone,",
        "gone.png,",
    ]


def test_all_is_what_can_be_imported():
    promised = {name: getattr(covey, name) for name in covey.__all__}
    assert len(promised) == len(covey.__all__)
    assert [n for n, value in promised.items() if isinstance(value, ModuleType)] == []
    assert all(value is not None for value in promised.values())
