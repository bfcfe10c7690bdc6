"""The examples of docs/extending.md run as they stand."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import covey
from covey import Config

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
SECTIONS = {
    section.splitlines()[0].removeprefix("## "): section
    for section in re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)[1:]
}
SMALL = """
rounds = 3
[population]
clients = 8
examples_per_client = 15
[method]
initialisation = "random"
[redteam]
every = 1
"""


def block(section: str, language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[0]


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """Return what writes a section's Python file where it can be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(title: str) -> str:
        code = block(SECTIONS[title], "python")
        name = re.match(r"# (\w+)\.py\n", code)
        assert name, f"the example of {title!r} does not begin with its file's name"
        (tmp_path / f"{name[1]}.py").write_text(code)
        monkeypatch.delitem(__import__("sys").modules, name[1], raising=False)
        return name[1]

    return write


@pytest.mark.parametrize(
    "title", [title for title, section in SECTIONS.items() if "```toml" in section]
)
def test_an_example_runs_with_the_settings_beside_it(title, importable, tmp_path):
    importable(title)
    settings = tomllib.loads(SMALL)
    for section, values in tomllib.loads(block(SECTIONS[title], "toml")).items():
        settings[section] = settings.get(section, {}) | values
    run = covey.run(config=Config.of(settings), out=tmp_path / "run")
    assert run.summary["rounds"] == 3


def test_the_attack_scores_a_clear_member_above_a_doubtful_one(importable):
    module = __import__(importable("An attack"))
    sure, doubtful = np.log([0.9, 0.1]), np.log([0.55, 0.45])
    nothing = np.empty((2, 0, 2))
    seen = covey.Signals(
        np.array([0, 0]), np.stack([sure, doubtful]), nothing, nothing[..., 0] > 0
    )
    scores = module.margin(seen)
    assert scores[0] == pytest.approx(np.log(9))
    assert scores[1] == pytest.approx(np.log(11 / 9))


def test_every_kind_of_the_table_has_a_section():
    head = PAGE.read_text().split("\n## ", maxsplit=1)[0]
    linked = re.findall(r"\]\(#([\w-]+)\)", head)
    kinds = [title for title in SECTIONS if title.startswith(("A ", "An "))]
    assert linked == [title.lower().replace(" ", "-") for title in kinds]
