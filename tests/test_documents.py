"""What the documents promise exists, and what exists is documented."""

import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from covey.base.built_ins import MODULES
from covey.base.errors import OWN_PACKAGES
from covey.cli.commands import app, loaded
from covey.settings.reference import settings
from support.setting_keys import setting_keys

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pages in ("*.md", "docs/**/*.md", "benchmarks/**/*.md")
    for path in ROOT.glob(pages)
)
WHOLE = app


def test_the_page_on_installing_lists_every_extra_and_names_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| (`.*`) \|", page, re.MULTILINE)
    listed = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(listed) == sorted(project["optional-dependencies"])
    wheels = set(re.findall(r"covey-(\S+?)-py3-none-any\.whl", page))
    assert wheels == {project["version"]}
    extras = re.findall(r"\.whl\[([\w,]+)\]|\.\[([\w,]+)\]", page)
    assert {name for pair in extras for name in ",".join(pair).split(",")} <= {"", *listed}


def test_every_command_is_listed():
    text = (ROOT / "docs" / "commands.md").read_text()
    names = WHOLE.list_commands(click.Context(WHOLE))  # pyright: ignore
    assert [name for name in names if f"    covey {name} " not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_a_page_shows_have_these_options(page):
    shown = list(commands_in((ROOT / page).read_text()))
    assert [line for line in shown if not can_be_parsed(line)] == []


def commands_in(text: str) -> Iterator[str]:
    """Return what calls covey in a page's code, without comments."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"(?<!`)`(covey [a-z][^`]*)`(?!`)", prose)
    whole = re.sub(r"\\\n\s*", " ", text)
    for line in re.findall(r"^    (?:\$ )?(covey [a-z].*[^:\n])$", whole, re.MULTILINE):
        yield re.split(r"\s#|;|&&", line)[0]


def can_be_parsed(line: str) -> bool:
    """Say whether there is such a command, with the options that a line names."""
    _, name, *rest = line.split()
    if name not in WHOLE.list_commands(click.Context(WHOLE)):
        return False
    command = loaded(name)
    if isinstance(command, click.Group):
        if not rest:
            return True  # all of its commands are meant
        named = rest[0].split("|")
        if not command.commands.keys() >= set(named):
            return False
        command = command.commands[named[0]]
    known = {o for p in (*command.params, *WHOLE.params) for o in (*p.opts, *p.secondary_opts)}
    return known.issuperset(re.findall(r"(?<!\S)\[?(--[a-z-]+)", line))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    broken = [
        target
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text())
        if not target.startswith("https://") and not leads_somewhere(path, target)
    ]
    assert broken == []


def leads_somewhere(page: Path, target: str) -> bool:
    """Say whether a file is there and, if it is a page, has the heading that is named."""
    name, _, heading = target.partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return False
    titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if heading else ()
    return not heading or heading in map(anchor, titles)


def anchor(title: str) -> str:
    """Return the name by which a page of GitHub's links to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_drawing_of_the_layers_is_what_is_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in settings["contracts"] if c.get("containers") == ["covey"]]
    text = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    drawn = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    rooms, packages = [[line.strip() for line in block.splitlines()] for block in drawn]
    assert rooms == layers
    core, *companions = settings["root_packages"]
    assert packages == [" | ".join(companions), core]
    assert {core, *companions} == OWN_PACKAGES


def test_what_companions_log_goes_where_covey_logs():
    """`--verbose`, log files and Flower's apps show what is below the logger `covey`."""
    sources = (ROOT / "src").glob("covey_*/**/*.py")
    loggers = {
        n for source in sources for n in re.findall(r"getLogger\((.+?)\)", source.read_text())
    }
    assert {name for name in loggers if not re.fullmatch(r'"(flwr|covey(\.\w+)?)"', name)} == set()
    assert '"covey.flower"' in loggers


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page):
    named = re.findall(
        r"`((?:src|docs|tests|examples|benchmarks)/[\w/.-]+)`", (ROOT / page).read_text()
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs")])
def test_settings_and_names_in_code_that_a_page_has_exist(page):
    text = (ROOT / page).read_text()
    known = setting_keys()
    sections = {setting.section for setting in settings()}
    names = set(re.findall(r"`(covey(?:\.\w+)+)", text)) - NO_CODE
    for first, second in re.findall(r"(?:`|--set |--over )(\w+)\.(\w+)(?=[`= ])", text):
        is_setting = first not in sections or f"{first}.{second}" in known
        if not is_setting and second not in ("html", "json", "sqlite"):
            names.add(f"covey.{first}.{second}")  # no setting: then a module
    for name in names:
        resolved(name)


def test_every_kind_of_component_has_a_row_and_a_section():
    text = (ROOT / "docs" / "guides" / "extend.md").read_text()
    rows = re.findall(r"^\| \[([\w ]+)\]\(#([\w-]+)\) \|", text, re.MULTILINE)
    titles = map(anchor, re.findall(r"^## (An? .*)$", text, re.MULTILINE))
    assert [heading for _, heading in rows] == list(titles)
    kinds = " | ".join(kind for kind, _ in rows)
    assert [kind for kind in MODULES if kind.replace("_", " ") not in kinds] == []


NO_CODE = {"covey.toml", "covey.commands", "covey.components"}
"""A federation's settings, and groups of entry points."""


def test_every_function_of_the_page_from_the_papers_exists():
    text = (ROOT / "docs" / "concepts" / "from-the-papers.md").read_text()
    first_columns = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")]
    dotted = set(re.findall(r"`((?:[a-z_]+\.)+[A-Za-z_]+)`", "".join(first_columns)))
    dotted -= {setting.key for setting in settings()}
    whole = [n if n.startswith("covey_") else f"covey.{n}" for n in dotted]
    code = [name for name in whole if find_spec(".".join(name.split(".")[:2]))]
    assert len(code) > 20
    for name in code:
        resolved(name)


def resolved(name: str) -> object:
    """Return what `covey.membership.attacks.auc` names."""
    path, *parts = name.split(".")
    module: object = import_module(path)
    for part in parts:
        path = f"{path}.{part}"
        try:
            module = import_module(path)
        except ModuleNotFoundError:
            module = getattr(module, part)
    return module
