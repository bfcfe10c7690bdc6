"""Whatever answer is being given: a process that is killed leaves nothing that cannot go on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kills", "seed"),
    [(18, 1), *(pytest.param(200, seed, marks=pytest.mark.torture) for seed in (2, 3))],
)
def test_an_answer_ends_in_the_same_bits_whenever_it_is_killed(tmp_path, kills, seed):
    ran = subprocess.run(
        [sys.executable, HERE / "killing.py", tmp_path, str(kills), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(HERE.parent), os.environ.get("PYTHONPATH", ""))),
            "XDG_CONFIG_HOME": str(tmp_path / "keys"),
        },
    )
    assert ran.returncode == 0, ran.stderr[-3_000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    for kind, one in result["kinds"].items():
        assert one["wrong"] == [], kind
        assert all(one["expected"]["proofs"]), kind
        assert one["expected"]["asides"] == [False, False]
    assert sum(one["kills"] for one in result["kinds"].values()) >= kills
    print(result["phases"])  # noqa: T201
