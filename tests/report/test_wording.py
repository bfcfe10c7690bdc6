from covey import History
from covey.base.events import GroupsSought, RiskUnknown
from covey.report.summary import estimate, happenings, number


def test_a_number_never_stands_alone():
    assert estimate(0.7, 0.02) == "0.700 ± 0.020"
    assert estimate(0.7, None) == "0.700 (standard error unknown)"
    assert estimate(None, None, "too few") == "unknown: too few"
    assert number(0.0) == "0.000"


def test_rounds_without_a_figure_are_told_together():
    blind = [(t, RiskUnknown((0, 1))) for t in (0, 1, 2, 7)]
    sentences = happenings(History(notable=tuple(blind)))
    assert sentences == [
        "Rounds 1 to 3, 8: clients chose while clusters 0, 1 had no risk figure, or an expired one."
    ]


def test_a_clear_split_is_called_clear():
    sought = GroupsSought({"updates": 3.2, "inputs": 0.1}, "updates", "nothing")
    (sentence,) = happenings(History(notable=((3, sought),)))
    assert "the clients fall into groups" in sentence
    assert "updates 3.2, inputs 0.1" in sentence
