"""A run whose clients leave until a cluster is empty tells only of those who are in it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import covey
from covey.report.dossier import write_dossier
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
    assert told["diverged"] == []
    assert [each["clients"] for each in told["clusters"]][j] == 0
    there = 8 - left
    assert 1 < there < 8
    assert sum(each["clients"] for each in told["clusters"]) == there
    assert told["violations"]["count"] is not None
    run.export(1 - j, recipient="Clinic")
    run.export(1 - j, recipient="Clinic")
    out = write_dossier(RunFolder(run.folder), tmp_path / "dossier")
    dossier = json.loads((out / "dossier.json").read_text())
    assert dossier["facts"]["run"]["clients"] == there
    trained = [each["trained_by"] for each in dossier["facts"]["models"]]
    assert (trained[j], trained[1 - j]) == (0, there)
    assert counted(dossier)["recipients on record, of deleted files too"] == 1
    assert counted(dossier)["models written out"] == 1
    run.forget(next(iter(covey.load(run.folder).names)), "subtract")
    again = write_dossier(RunFolder(run.folder), tmp_path / "again")
    dossier = json.loads((again / "dossier.json").read_text())
    assert counted(dossier)["recipients on record, of deleted files too"] == 1
    assert "models written out" not in counted(dossier)


def counted(dossier: dict[str, Any]) -> dict[str, int]:
    return {each["what"]: each["count"] for each in dossier["lineage"]}
