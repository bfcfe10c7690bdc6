"""A run whose clients leave until a cluster is empty tells only of those who are in it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.base.history import trained_clusters
from covey.runtime.copies import copies_of
from covey.runtime.folder import RunFolder
from runtime.solved_runs import SOLVED


@pytest.mark.slow
def test_a_cluster_that_everybody_left_has_not_diverged(tmp_path: Path):
    settings: dict[str, Any] = SOLVED | {
        "population": {**SOLVED["population"], "audit_examples": 60}
    }
    run = covey.run(config=settings, out=tmp_path / "run")
    (_, j), *_ = sorted((n, j) for j, n in Counter(run.history.assignment.values()).items())
    left = 0
    while leavers := [n for n, h in run.names.items() if run.history.assignment[h] == j]:
        run.forget(leavers, "subtract")  # then the others choose once more
        left += len(leavers)
        run = covey.load(run.folder)
    told = run.summary
    assert told.diverged == []
    assert [each.clients for each in told.clusters][j] == 0
    there = 8 - left
    assert 1 < there < 8
    assert sum(each.clients for each in told.clusters) == there
    assert told.violations.count is not None
    run.export(1 - j, recipient="Clinic")
    run.export(1 - j, recipient="Clinic")
    history, folder = run.history, RunFolder(run.folder)
    assert len(history.clients) == there
    trained = trained_clusters(history, 2)
    assert (len(trained[j]), trained[1 - j]) == (0, history.clients)
    assert [each.recipient for each in copies_of(folder) if not each.deleted] == ["Clinic"]
    run.forget(next(iter(covey.load(run.folder).names)), "subtract")
    assert [each.recipient for each in copies_of(folder) if each.deleted] == ["Clinic"]
    assert all(each.deleted for each in copies_of(folder))
