"""Where data are little and hard, membership shows, and choosing by it changes something.

One seed of each method on the same data: what several seeds show is in docs/results.md.
"""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from covey import Run, load, load_config, run

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDS = range(1)


@pytest.fixture(scope="module")
def played(once, real_data):
    """Runs of an example with every seed, each played by whichever process is first."""

    def of(example: str, *pairs: str) -> Run:
        config = load_config(EXAMPLES / f"{example}.toml", [*pairs, f"data.dir={real_data}"])
        name = "-".join([example, *(pair.partition("=")[2] for pair in pairs)])
        return load(once(name, lambda folder: run(config=config, out=folder / "r")) / "r")

    # Two of pytest's processes begin at opposite ends, so that neither waits for the
    # run that the other is playing.
    odd = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 2
    seeds = SEEDS[::-1] if odd else SEEDS

    @cache
    def with_every_seed(example: str, method: str, *more: str) -> list[Run]:
        return [of(example, f"method.name={method}", f"seed={seed}", *more) for seed in seeds]

    return with_every_seed


def violations(results: list[Run]) -> int:
    counts = [result.summary.violations.count for result in results]
    known = [each for each in counts if each is not None]
    assert len(known) == len(counts)
    return sum(known)


def accuracy(results: list[Run], group: str | None = None) -> float:
    found = [result.summary.accuracy for result in results]
    figures = [each.by_group[group] if group else each.overall for each in found]
    known = [each for each in figures if each is not None]
    assert len(known) == len(figures)
    return float(np.mean(known))


def risk_of(result: Run, group: str) -> float:
    """Return the true risk of the cluster where most clients of this group are."""
    clusters = result.summary.clusters
    risk = max(clusters, key=lambda each: each.groups.get(group, 0)).true_risk
    assert risk is not None
    return risk


def test_the_minority_is_exposed_under_ifca(played):
    ifca = played("cifar-small", "ifca")
    minority = np.mean([risk_of(result, "minority") for result in ifca])
    majority = np.mean([risk_of(result, "majority") for result in ifca])
    assert minority >= 0.70
    assert minority - majority >= 0.08


@pytest.mark.results
def test_a_threshold_lowers_violations_on_dark20_at_the_minoritys_cost(played):
    ifca, chosen = played("dark20", "ifca"), played("dark20", "ifca-mir")
    assert violations(chosen) <= violations(ifca) / 2
    assert accuracy(chosen) >= accuracy(ifca) - 0.02
    assert accuracy(chosen, "minority") >= accuracy(ifca, "minority") - 0.12


@pytest.mark.results
def test_a_price_keeps_the_small_cluster_and_violates_no_more_than_ifca(played):
    priced = ["method.selection=priced", "method.selection.target_share=0.2"]
    kept = played("cifar-small", "ifca-mir", *priced)
    for result in kept:
        last = [min(row.clients) for row in result.history.rounds[-5:]]
        # 0.2 of 40, give or take one. A subsidy keeps at least so many: on a machine that
        # rounds differently another run was seen to keep 12 without a price.
        assert np.mean(last) >= 8 - 1
        # nobody flaps: in 20 rounds 2 moves at most where this was measured, 3 elsewhere
        assert result.summary.moves.most_moves_of_one_client <= 4
    # 23 against 27 where this was measured; another machine rounds differently
    assert violations(kept) <= 1.05 * violations(played("cifar-small", "ifca"))
