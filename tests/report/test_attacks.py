"""Violations, exposure and pictures follow the strongest attack that was run, by name."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import History
from covey.base.built_ins import LOSS
from covey.base.events import ModelAttacked
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import with_entries
from covey.report.clients import client_summaries, strongest
from covey.report.comparison import client_rows, comparison
from covey.report.figures import violations_figure
from covey.report.queries import Reported, final_figures
from covey.report.summary import summary, violations

ATTACKS = st.lists(st.builds(RiskEstimate, st.builds(Figure, st.floats(0, 1), st.just(0.01))))


@given(ATTACKS)
def test_the_strongest_attack_is_one_that_was_run_and_none_is_above_it(attacks: list[RiskEstimate]):
    found = strongest(attacks)
    assert (found is None) == (not attacks)
    assert found is None or (found in attacks and found.risk == max(a.risk for a in attacks))


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
    assert final_figures(after)["final/risk_by_lira/cluster_1"] == 0.65


def test_a_weaker_attack_changes_no_violation(histories: dict[str, History]):
    history = histories["two clusters"]
    assert violations(attacked(history, 1, 0.51)) == violations(history)


def test_an_attack_on_models_that_are_gone_says_nothing(histories: dict[str, History]):
    history = histories["two clusters"]
    gone = attacked(history, 1, 0.99, of="another model")
    assert summary(gone) == summary(history)


def test_the_same_attack_again_replaces_the_first(histories: dict[str, History]):
    twice = attacked(attacked(histories["two clusters"], 1, 0.9), 1, 0.58)
    found = summary(twice).clusters[1].strongest_attack
    assert found is not None
    assert found.risk == 0.58


def test_runs_are_compared_by_the_attack_that_all_of_them_met(histories: dict[str, History]):
    after = attacked(histories["two clusters"], 1, 0.65)
    (row,) = comparison([Reported("a run", after, "")])
    assert row["violations"] == violations(after, LOSS).count == 3


def test_frames_pictures_and_exposures_say_what_the_violations_say(histories: dict[str, History]):
    after = attacked(histories["two clusters"], 1, 0.65)
    rows = {row["name"]: row for row in client_rows(after, {h: h for h in ("h0", "h3")})}
    assert (rows["h3"]["true_risk"], rows["h3"]["attack"]) == (0.65, "lira")
    assert (rows["h0"]["true_risk"], rows["h0"]["attack"]) == (0.70, LOSS)
    for each in client_summaries(after).values():
        assert each.risk is not None
        assert float(each.exposure) >= each.risk.risk
    (axes,) = violations_figure(after).axes
    assert "lira" in axes.get_ylabel()


SMALL: dict[str, Any] = {
    "rounds": 2,
    "population": {"clients": 6, "examples_per_client": 40, "audit_examples": 300},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 8},
    "risk": {"name": "none"},
}


def test_an_audit_raises_the_headline_to_its_strongest_attack_until_models_change(tmp_path: Path):
    run = covey.run(config=SMALL, out=tmp_path / "run")
    before = run.summary
    assert before.violations.attacks == [LOSS]
    audit = run.audit(["lira", "shokri"], references=2)
    after = covey.load(run.folder).summary
    for each, old in zip(audit.clusters, after.clusters, strict=True):
        if not each.attacks:
            continue
        best = max(a.overall.balanced_accuracy.value or 0 for a in each.attacks.values())
        now = old.strongest_attack
        assert now is not None
        assert old.true_risk is not None
        assert now.risk == pytest.approx(max(best, old.true_risk))
    assert after.model_hash == before.model_hash
    assert before.violations.count is not None
    assert after.violations.count is not None
    assert after.violations.count >= before.violations.count
    page = (covey.load(run.folder).report()).read_text()
    for attack in after.violations.attacks:
        assert f"strongest attack: {attack}" in page or attack in page
    head = covey.load(run.folder).ledger_head
    run.audit(["lira", "shokri"], references=2)
    assert covey.load(run.folder).ledger_head == head  # the same audit adds nothing
    covey.load(run.folder).forget("client-00001", answer="retrain")
    assert covey.load(run.folder).summary.violations.attacks == [LOSS]
