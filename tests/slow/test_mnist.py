"""The paper's MNIST setting at its full size."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from covey import load

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "mnist.toml"


def test_mnist_learns_finds_the_groups_and_shows_no_signal(tmp_path, real_data):
    command = [sys.executable, "-m", "covey", "run", EXAMPLE, "--out", tmp_path / "run"]
    settings = ["--set", f"data.dir={real_data}", "--json"]
    subprocess.run([*command, *settings], check=True, capture_output=True)

    summary = load(tmp_path / "run").summary

    assert summary["accuracy"]["overall"] >= 0.90
    assert summary["adjusted_rand_index"] >= 0.95
    for cluster in summary["clusters"]:
        # SE is about 0.0125; all 400 non-members would have to err together by 4 SE.
        assert abs(cluster["true_risk"] - 0.5) <= 0.05
        assert "no membership signal" in cluster["true_risk_reason"]
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak_kib <= 2 * 1024 * 1024
