"""Whole runs of solved heads under masks."""

from pathlib import Path

import pytest
import torch

from covey import Config, Examples, RunError, run
from covey.base.events import HeadsSolved
from recorded import facts

GIVEN = {
    "rounds": 2,
    "population": {"clients": 6, "examples_per_client": 12, "audit_examples": 0},
    "model": {"name": "linear-head", "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {"name": "solved", "num_clusters": 1, "regularisation": 0.5},
    "risk": {"name": "none"},
}
MASKED = {**GIVEN, "privacy": {"secure_sums": True, "min_cohort": 4}}


def sums(folder: Path) -> list[tuple[str, ...]]:
    return [each.sums for each in facts(folder, HeadsSolved)]


def test_a_masked_run_is_played_left_and_told_as_any_other(tmp_path):
    plain = run(config=Config.of(GIVEN), out=tmp_path / "plain")
    masked = run(config=Config.of(MASKED), out=tmp_path / "masked")
    assert sums(masked.folder) == sums(plain.folder)
    started = masked.history.started
    assert started is not None
    assert any("sums over clients alone" in note for note in started.notes)
    assert any("from a malicious server too" in note for note in started.notes)
    assert not any("by themselves" in note for note in started.notes)
    for each in (plain, masked):
        each.forget("client-00001", "subtract")
    assert sums(masked.folder) == sums(plain.folder)
    page = next((masked.folder / "proofs").glob("*.html")).read_text()
    assert "finds, by subtracting" in page
    nothing = Examples(torch.empty(0, 1), torch.empty(0, dtype=torch.int64))
    with pytest.raises(RunError, match="secure_sums no client joins"):
        masked.join("late", nothing)
