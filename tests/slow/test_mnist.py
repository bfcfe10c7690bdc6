"""The paper's MNIST setting at its full size."""

import subprocess
import sys
from pathlib import Path

import pytest

from covey import load

pytestmark = [pytest.mark.slow, pytest.mark.results]
EXAMPLE = Path(__file__).parents[2] / "examples" / "ifca-mir.toml"
WARM = (  # the same clients, from a warm start and by whole epochs: groups are found in minutes
    *("seed=0", "rounds=20", "population.shift_per=image", "population.minority_share=0.15"),
    *("train.local_steps=0", "train.batch_size=25", "train.learning_rate=0.05"),
    *("method.initialisation=warm", "method.same_batch=false", "method.select_examples=25"),
    *("risk.name=none", "population.pool=rest"),
)

# The peak of a child as the parent sees it (ru_maxrss) starts at the parent's own size,
# so the child itself says what it needed.
COVEY_AND_ITS_PEAK = """
import runpy, sys
try:
    runpy.run_module("covey", run_name="__main__")
finally:
    with open("/proc/self/status") as lines:
        print(next(line for line in lines if line.startswith("VmHWM")), file=sys.stderr)
"""


def test_mnist_learns_finds_the_groups_and_shows_no_signal(tmp_path, real_data):
    command = ["run", EXAMPLE, "--out", tmp_path / "run", "--json"]
    settings = [word for setting in (*WARM, f"data.dir={real_data}") for word in ("--set", setting)]
    ran = subprocess.run(
        [sys.executable, "-c", COVEY_AND_ITS_PEAK, *command, *settings],
        check=True,
        capture_output=True,
        text=True,
    )

    summary = load(tmp_path / "run").summary

    assert summary.accuracy.overall is not None
    assert summary.accuracy.overall >= 0.90
    assert summary.adjusted_rand_index is not None
    assert summary.adjusted_rand_index >= 0.95
    for cluster in summary.clusters:
        # SE is about 0.0125; all 400 non-members would have to err together by 4 SE.
        assert cluster.true_risk is not None
        assert abs(cluster.true_risk - 0.5) <= 0.05
        assert "no membership signal" in cluster.truth.reason
    peak_kib = int(ran.stderr.splitlines()[-2].split()[1])
    assert peak_kib <= 2 * 1024 * 1024
