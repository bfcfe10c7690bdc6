"""Violations, exposure and pictures follow the strongest attack that was run, by name."""

from covey import History
from covey.base.built_ins import LOSS
from covey.base.events import ModelAttacked
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import with_entries
from covey.report.comparison import comparison
from covey.report.queries import Reported
from covey.report.summary import summary, violations


def attacked(history: History, cluster: int, risk: float, of: str = "") -> History:
    now = history.finished.model_hash if history.finished else ""
    fact = ModelAttacked(cluster, RiskEstimate(Figure(risk, 0.01), source="lira"), of or now)
    return with_entries(history, [(None, [fact])])


def test_violations_follow_the_strongest_attack_and_name_it(histories: dict[str, History]):
    # .70 and .55 by the loss threshold: h0, h1 and h2 are above what they accept.
    history = histories["two clusters"]
    assert (violations(history).count, violations(history).attacks) == (3, [LOSS])
    after = attacked(history, 1, 0.65)
    found = violations(after)
    assert found.clients == ["h0", "h1", "h2", "h3"]  # h3 accepts .60, h4 .70
    assert found.count_lower == 3  # of h0, h2 and h3: .65 - .0196
    assert found.attacks == ["lira", LOSS]
    attack = summary(after).clusters[1].strongest_attack
    assert attack == RiskEstimate(Figure(0.65, 0.01), source="lira")
    assert summary(after).clusters[1].true_risk == 0.55


def test_an_attack_on_models_that_are_gone_says_nothing(histories: dict[str, History]):
    history = histories["two clusters"]
    gone = attacked(history, 1, 0.99, of="another model")
    assert summary(gone) == summary(history)


def test_runs_are_compared_by_the_attack_that_all_of_them_met(histories: dict[str, History]):
    after = attacked(histories["two clusters"], 1, 0.65)
    (row,) = comparison([Reported("a run", after, "")])
    assert row["violations"] == violations(after, LOSS).count == 3
