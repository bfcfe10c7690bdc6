"""`covey bench redteam` on the digits that come with scikit-learn."""

import json

import pytest


@pytest.mark.slow
def test_a_quick_bench_prints_a_table_and_keeps_its_rows(covey, tmp_path):
    code, out, err = covey("bench", "redteam", "--quick", "--out", "bench")
    assert code == 0, err
    assert "digits, 12 clients" in out
    assert "rank correlation" in out
    assert "MISSED" not in out
    assert (tmp_path / "bench" / "redteam.png").stat().st_size > 10_000
    # Asked again, nothing is measured again.
    code, out, err = covey("bench", "redteam", "--quick", "--out", "bench", "--json")
    assert code == 0
    assert err == ""
    answer = json.loads(out)
    assert {"rows", "sources", "cost", "controls", "checks"} == set(answer)
    assert {row["set_name"] for row in answer["rows"]} == {
        "digits",
        "digits, 12 clients",
    }
    assert answer["sources"]["federated"]["withheld"] == 0
    assert all(check["ok"] for check in answer["checks"])


def test_a_set_that_does_not_exist_is_bad_input(covey):
    code, _, err = covey("bench", "redteam", "--only", "imagenet")
    assert code == 2
    assert "imagenet" in err
    assert "'MNIST, 200 x 250'" in err
