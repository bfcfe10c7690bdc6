from covey import History
from covey.base.events import GroupsSought, RiskUnknown
from covey.base.figure import Figure, number
from covey.report.summary import happenings


def test_a_figure_has_one_wording():
    assert str(Figure(0.7, 0.02)) == "0.700 ± 0.020"
    assert str(Figure(0.7)) == number(0.7) == "0.700"
    assert str(Figure(0.7, low=0.6, high=0.8)) == "0.700 [0.600, 0.800]"
    assert str(Figure.unknown("too few")) == number(None, "too few") == "unknown: too few"
    assert str(Figure.share(0.99, 0.1)) == "0.990 [0.794, 1.000]"
    assert not Figure.unknown("too few").lower_bound > 0  # and not below it either


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
