"""`covey bench poisoning` on the digits that come with scikit-learn."""

import json

import pytest

from covey_papers.bench import QUICK_POISONING, cells


@pytest.mark.slow
def test_a_quick_bench_prints_a_table_and_keeps_its_rows(covey):
    code, out, err = covey("bench", "poisoning", "--quick", "--out", "bench")
    assert code == 0, err
    assert "replacement" in out
    # Asked again, nothing is measured again.
    code, out, err = covey("bench", "poisoning", "--quick", "--out", "bench", "--json")
    assert (code, err) == (0, "")
    rows = json.loads(out)["rows"]
    assert len(rows) == len(cells(QUICK_POISONING))
    by_cell = {(r["cell"]["merge"], r["cell"]["attack"]): r["accuracy"] for r in rows}
    assert by_cell["mean", "replacement"] < 0.2
    assert by_cell["multi-krum", "replacement"] > 0.7
