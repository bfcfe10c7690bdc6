"""Where data are little and hard, membership shows, and choosing by it changes something.

One seed of each method on the same data: what several seeds show is in docs/results.md.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from covey import Run, load_config, run

pytestmark = [pytest.mark.slow, pytest.mark.results]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def played(real_data: Path, tmp_path_factory: pytest.TempPathFactory):
    @cache
    def of(example: str, method: str, *pairs: str) -> Run:
        pairs = (f"method.name={method}", *pairs, f"data.dir={real_data}")
        config = load_config(EXAMPLES / f"{example}.toml", pairs)
        return run(config=config, out=tmp_path_factory.mktemp("choice") / "run")

    return of


def accuracy(result: Run, group: str = "") -> float:
    accuracies = result.summary.accuracy
    figure = accuracies.by_group[group] if group else accuracies.overall
    assert figure is not None
    return figure


def violations(result: Run) -> int:
    assert result.summary.violations.count is not None
    return result.summary.violations.count


def risk_of(result: Run, group: str) -> float:
    """Return the true risk of the cluster where most clients of this group are."""
    clusters = result.summary.clusters
    risk = max(clusters, key=lambda cluster: cluster.groups.get(group, 0)).true_risk
    assert risk is not None
    return risk


def test_the_minority_is_exposed_under_ifca(played):
    ifca = played("cifar-small", "ifca")
    assert risk_of(ifca, "minority") >= 0.70
    assert risk_of(ifca, "minority") - risk_of(ifca, "majority") >= 0.08


def test_a_threshold_lowers_violations_on_dark20_at_the_minoritys_cost(played):
    ifca, chosen = played("dark20", "ifca"), played("dark20", "ifca-mir")
    assert violations(chosen) <= violations(ifca) / 2
    assert accuracy(chosen) >= accuracy(ifca) - 0.02
    assert accuracy(chosen, "minority") >= accuracy(ifca, "minority") - 0.12


def test_a_price_keeps_the_small_cluster_and_violates_no_more_than_ifca(played):
    priced = ["method.selection=priced", "method.selection.target_share=0.2"]
    priced_run = played("cifar-small", "ifca-mir", *priced)
    last = [min(row.clients) for row in priced_run.history.rounds[-5:]]
    # 0.2 of 40, give or take one. A subsidy keeps at least so many: on a machine that
    # rounds differently another run was seen to keep 12 without a price.
    assert np.mean(last) >= 8 - 1
    # nobody flaps: in 20 rounds 2 moves at most where this was measured, 3 elsewhere
    assert priced_run.summary.moves.most_moves_of_one_client <= 4
    # 23 against 27 where this was measured; another machine rounds differently
    assert violations(priced_run) <= 1.05 * violations(played("cifar-small", "ifca"))
