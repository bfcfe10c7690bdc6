"""`covey bench forgetting` on heads that are solved in no time."""

import json

import pytest

from covey_papers.bench import NEVER, NOTHING

ARGS = ("bench", "forgetting", "--models", "4", "--only", "solved heads")


@pytest.mark.slow
def test_a_bench_prints_its_tables_and_keeps_its_seeds(covey, tmp_path):
    code, out, err = covey(*ARGS, "--out", "kept")
    assert code == 0, out + err
    assert "4 of 4" in out
    assert (tmp_path / "kept" / "forgetting.png").stat().st_size > 10_000
    kept = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*.json")
    }
    assert len(kept) == 8
    # Asked again, nothing is played again.
    code, out, err = covey(*ARGS, "--out", "kept", "--json")
    assert code == 0, err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    (found,) = json.loads(out)["federations"]
    rows = {row["answer"]: row for row in found["rows"]}
    assert list(rows) == [NOTHING, "subtract", "retrain", NEVER]
    for exact in ("subtract", "retrain"):
        assert rows[exact]["same_bits"] == 4
        assert rows[exact]["weights_apart"] == 0
        assert rows[exact]["epsilon"] == rows[NEVER]["epsilon"]
    assert rows["subtract"]["sums_tell"] == 4
    assert rows[NOTHING]["epsilon"]["mean"] > rows[NEVER]["epsilon"]["mean"]
    assert found["leaks"]["subtract"]["both"]["membership"]["value"] > 0.6


def test_an_unknown_federation_is_refused(covey):
    code, _, err = covey("bench", "forgetting", "--only", "imagenet")
    assert code == 2
    assert "--only takes one of" in err
