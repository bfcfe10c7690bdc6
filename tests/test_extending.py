"""The examples of docs/extending.md run as they stand."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import covey
from covey import Config
from covey.base.built_ins import BUILT_INS
from covey.settings.load import replace_setting

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
SECTIONS = {
    section.splitlines()[0].removeprefix("## "): section
    for section in re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)[1:]
}
SMALL = """
rounds = 2
[population]
clients = 6
examples_per_client = 15
audit_examples = 40
[model]
name = "mlp"
[method]
initialisation = "random"
[risk]
every = 1
"""


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


EXAMPLES = [
    pytest.param(program, settings, id=f"{title} {place}".strip(" 0"))
    for title, section in SECTIONS.items()
    for place, (program, settings) in enumerate(
        zip(blocks(section, "python"), blocks(section, "toml"), strict=False)
    )
]


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """Return what writes a Python file of the page where it can be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(code: str) -> str:
        name = re.match(r"# (\w+)\.py\n", code)
        assert name, f"an example does not begin with its file's name: {code[:80]}"
        (tmp_path / f"{name[1]}.py").write_text(code)
        monkeypatch.delitem(__import__("sys").modules, name[1], raising=False)
        return name[1]

    return write


@pytest.mark.parametrize(("program", "beside"), EXAMPLES)
def test_an_example_runs_with_the_settings_beside_it(program, beside, importable, tmp_path):
    importable(program)
    settings = tomllib.loads(SMALL)
    for section, values in tomllib.loads(beside).items():
        inner = isinstance(values, dict)
        if inner and "name" in values:
            replace_setting(settings, [section, "name"], values["name"])
        settings[section] = settings.get(section, {}) | values if inner else values
    run = covey.run(config=Config.of(settings), out=tmp_path / "run")
    assert run.summary.rounds == settings["rounds"]


def test_every_program_but_the_attack_has_settings_beside_it():
    without = [
        title
        for title, section in SECTIONS.items()
        if len(blocks(section, "python")) != len(blocks(section, "toml"))
    ]
    assert without == ["An attack"]


def test_the_attack_scores_a_clear_member_above_a_doubtful_one(importable):
    module = __import__(importable(blocks(SECTIONS["An attack"], "python")[0]))
    sure, doubtful = np.log([0.9, 0.1]), np.log([0.55, 0.45])
    nothing = np.empty((2, 0, 2))
    seen = covey.Signals(np.array([0, 0]), np.stack([sure, doubtful]), nothing, nothing[..., 0] > 0)
    scores = module.Margin()(seen)
    assert scores[0] == pytest.approx(np.log(9))
    assert scores[1] == pytest.approx(np.log(11 / 9))


def test_every_kind_of_the_table_has_a_section():
    head = PAGE.read_text().split("\n## ", maxsplit=1)[0]
    linked = re.findall(r"\]\(#([\w-]+)\)", head)
    kinds = [title for title in SECTIONS if title.startswith(("A ", "An "))]
    assert linked == [title.lower().replace(" ", "-") for title in kinds]


def test_every_kind_of_component_that_is_built_in_is_in_the_table():
    kinds = re.findall(r"^\| \[([\w ]+)\]", PAGE.read_text(), re.MULTILINE)
    told = " | ".join(kinds)
    assert [kind for kind in BUILT_INS if kind.replace("_", " ") not in told] == []
