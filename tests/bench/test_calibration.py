"""The bench's figure: every estimate is there, and says what it is."""

from covey.events import RiskMeasured
from covey.report.figures import png
from covey_papers.bench import Row, calibration_figure


def told(source: str, risk: float | None, reason: str) -> RiskMeasured:
    error, calibrated = (None if risk is None else 0.02), risk is not None
    calibrated = calibrated and not reason.startswith("extrapolated")
    return RiskMeasured(0, 1, source, risk, error, risk, 9, 9, calibrated, reason)


def row(name: str, truth: float, shadow: float | None, reason: str = "because") -> Row:
    sources = {
        "shadow": told("shadow", shadow, reason),
        "federated": told("federated", truth + 0.01, "because"),
    }
    return Row(name, 0, 100, True, 1, truth, 0.01, sources)  # noqa: FBT003


ROWS = [
    row("one", 0.55, 0.56),
    row("one", 0.7, None, "withheld: too little"),
    row("two", 0.65, 0.6, "extrapolated: from less"),
]


def labels(rows: list[Row]) -> list[str]:
    (legend,) = calibration_figure(rows).legends
    return [text.get_text() for text in legend.get_texts()]


def test_the_legend_names_the_sets_and_what_is_hollow():
    assert labels(ROWS) == ["one", "two", "extrapolated"]
    assert labels(ROWS[:1]) == ["one"]


def test_both_panels_show_every_figure_that_was_given():
    shadow, federated = calibration_figure(ROWS).axes
    assert (len(shadow.containers), len(federated.containers)) == (2, 3)
    assert shadow.get_xlim() == shadow.get_ylim() == federated.get_xlim()
    assert shadow.get_xlim()[1] > 0.71


def test_a_source_without_a_figure_says_so():
    shadow, _ = calibration_figure([row("one", 0.6, None, "withheld: x")]).axes
    assert [text.get_text() for text in shadow.texts] == ["every figure was withheld"]


def test_equal_rows_give_equal_pictures():
    assert png(calibration_figure(ROWS)) == png(calibration_figure(ROWS))
