"""A run in one JSON object: what it says where it knows nothing."""

from dataclasses import replace

from covey import History
from covey.base.events import AnonymitySetsFormed, ClientLeft
from covey.base.figure import RiskEstimate
from covey.base.history import history_of
from covey.report.summary import DeniabilityBudget, deniability, summary


def hidden(history: History, x: int | None, *, stored: bool = False) -> History:
    """The story of six clients in two sets of three, before anybody leaves."""
    assert history.started
    started = replace(history.started, deniability_threshold=x, updates_stored=stored)
    formed = AnonymitySetsFormed(0, (("h0", "h1", "h2"), ("h3", "h4", "h5")), (1.0, 1.0))
    return history_of([(0, [started, formed])])


def test_the_budget_by_hand(histories: dict[str, History]):
    some = histories["unfinished"]
    assert deniability(hidden(some, 2)).budget == DeniabilityBudget(1, 0.0)
    # without h0 its set has two members: neither h1 nor h2 has one to spare any more
    after = replace(hidden(some, 2), left=(ClientLeft("h0", "deny", "da7a"),))
    assert deniability(after).budget == DeniabilityBudget(0, 2 / 5)


def test_there_is_no_budget_where_nothing_can_be_denied(histories: dict[str, History]):
    some = histories["unfinished"]
    for history, reason in (
        (hidden(some, None), "not hidden in anonymity sets"),
        (hidden(some, 2, stored=True), "raw updates are stored"),
    ):
        told = deniability(history)
        assert told.budget is None
        assert reason in told.budget_reason


def test_why_no_true_risk_is_known_is_what_the_audits_found(histories: dict[str, History]):
    finished = [each for each in histories.values() if each.exposures]
    assert finished
    for reason in ("too few records", "refused: the sides do not match"):
        told = [summary(unjudged(each, reason)).violations for each in finished]
        assert {each.count for each in told} == {None}
        why = f"no model in use has a true risk: {reason}"
        assert {each.reason for each in told} == {why}


def unjudged(history: History, reason: str) -> History:
    """The same run, but for its audits: none of them could tell a risk."""
    none = RiskEstimate.unknown(reason)
    return replace(
        history,
        audits=tuple(replace(each, truth=none) for each in history.audits),
        exposures=tuple(replace(each, exposure=none.figure) for each in history.exposures),
    )
