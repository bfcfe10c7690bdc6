"""`run.plot`: the report's pictures, as figures that a notebook shows."""

import pytest
from matplotlib.figure import Figure

import covey
from covey import Run
from runtime.test_on_round import clients, model

SETTINGS = {"rounds": 2, "method.name": "fedavg", "risk.name": "none"}
NAMES = ("accuracy", "risk", "sizes", "violations", "fairness", "privacy_spent")


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Run:
    out = tmp_path_factory.mktemp("plots") / "run"
    return covey.run(lambda: model(), clients(), SETTINGS, out, progress=True)


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_a_figure_that_shows_itself(played, name):
    figure = getattr(played.plot, name)()
    assert isinstance(figure, Figure)
    assert "<svg" in figure._repr_svg_()  # pyright: ignore[reportAttributeAccessIssue]


def test_at_a_terminal_one_line_follows_the_rounds(tmp_path, capsys):
    def told(progress):
        out = tmp_path / str(progress)
        covey.run(lambda: model(), clients(), SETTINGS, out, progress=progress)
        return capsys.readouterr().err

    assert told(progress=None) == ""
    lines = told(progress=True).split("\r")
    assert lines[1].startswith("True: round 1 is under way")
    assert "round 2/2" in lines[-1]
    assert "finished" in lines[-1]
    assert lines[-1].endswith("\n")
