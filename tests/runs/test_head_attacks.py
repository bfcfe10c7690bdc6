"""What is measured of ridge heads at the end of a run."""

import pytest

import covey
from algorithms.playing import changed
from covey import Config
from covey.base.events import ModelAttacked
from covey.runs import head_attacks
from runs.ridge_runs import RIDGE


def attacks_by(run: covey.Run, attack: str) -> list[ModelAttacked]:
    return [each for each in run.history.attacks if each.estimate.source == attack]


@pytest.mark.slow
def test_nobody_is_protected_by_an_attack_that_is_too_large_to_run(tmp_path, monkeypatch):
    """The weaker attack is printed, but whoever could run the stronger one knows."""
    monkeypatch.setattr(head_attacks, "MAX_POOL", 100)
    people = {"clients": 12, "examples_per_client": 20, "audit_examples": 400}
    one = {"num_clusters": 1, "pooling": 0.0, "regularisation": 1.0}
    settings = changed(RIDGE, population=people, method=one)
    run = covey.run(config=Config.of(settings), out=tmp_path / "run")
    assert attacks_by(run, "weights") == []
    assert attacks_by(run, "population")[0].estimate.risk < 1
    assert [each.estimate.risk for each in attacks_by(run, "bound")] == [1.0] * 12
    assert run.summary.violations.count == 12
