"""Joining and changing records by the command line: what is told, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from covey import Config, load, run

SOLVED = {
    "rounds": 1,
    "population": {"clients": 4, "examples_per_client": 10, "audit_examples": 0},
    "model": {"name": "linear-head", "features": {"filters": 2, "size": 3, "pool": 2}},
    "method": {"name": "solved", "num_clusters": 1, "selection": "loss"},
    "risk": {"name": "none"},
}


@pytest.fixture
def records(tmp_path, digits) -> Path:
    x, y = digits.inputs[:20].numpy(), digits.labels[:20].numpy()
    np.savez(tmp_path / "records.npz", x=x, y=y)
    return tmp_path / "records.npz"


def test_a_client_joins_and_changes_its_records(answer, covey, records):
    made = run(config=Config.of(SOLVED), out="solved")
    told = answer("clients", "join", "solved", "new", "--data", records, "--threshold", 0.7)
    assert (told["client"], told["cluster"], told["examples"]) == ("new", 0, 16)
    assert told["model_before"] == made.summary.model_hash != told["model_hash"]
    code, out, err = covey("clients", "update", "solved", "new", "--data", records, "--add")
    assert code == 0, err
    assert "32 records in cluster 0" in out
    assert load("solved").summary.model_hash in out
    assert (made.folder / "report.html").is_file()
    code, _, err = covey("clients", "join", "solved", "new", "--data", records)
    assert code == 2
    assert "covey clients update" in " ".join(err.split())
    code, _, err = covey("clients", "join", "solved", "more", "--data", "no such.npz")
    assert code == 2
