"""`covey bench speed`, `scale` and `memory` from the command line."""

import json

import pytest

QUICK = ("bench", "speed", "--quick", "--repeats", "1", "--workers", "1")
ONE = (*QUICK, "--only", "many-clients")


def test_a_table_and_json_and_a_comparison_with_an_earlier_run(covey, tmp_path):
    nothing = tmp_path / "nothing.json"
    nothing.write_text(json.dumps({"rows": [], "taken": {"quick": True}}))
    code, out, err = covey(*ONE, "--json", "--against", str(nothing))
    assert code == 0, err
    answer = json.loads(out)
    assert answer["changes"] == []
    assert set(answer) == {"taken", "rows", "changes"}
    assert answer["taken"]["workers"] == 1
    assert {"commit", "machine", "load_before"} <= set(answer["taken"])
    (row,) = answer["rows"]
    assert row["limit"] == "<= 50 microseconds"

    path = tmp_path / "earlier.json"
    row["ratio"] /= 100  # it was far better then
    path.write_text(json.dumps(answer))
    code, out, _ = covey(*ONE, "--against", str(path))
    assert code == 1
    assert "WORSE" in out
    assert "bare loop" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "imagenet"), "mnist-bfloat16"),
        (("--against", "missing.json"), "missing.json"),
        (("--against", "other.json"), "is something else"),
        (("--against", "large.json"), "of the same sizes"),
    ],
)
def test_what_does_not_exist_is_bad_input(covey, tmp_path, words, said):
    (tmp_path / "other.json").write_text("[]")
    large = {"rows": [], "taken": {"quick": False}}
    (tmp_path / "large.json").write_text(json.dumps(large))
    code, _, err = covey(*QUICK, *words)
    assert code == 2
    assert said in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["speed", "scale", "memory"])
def test_all_figures_in_their_small_versions(covey, name):
    code, out, err = covey("bench", name, "--quick", "--repeats", "1")
    assert code == 0, err
    assert "ratio" in out
