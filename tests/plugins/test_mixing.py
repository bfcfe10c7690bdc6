"""Whose own code may carry one cluster's clients into another: everybody is counted."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

import covey
from covey.aggregation.mean import Mean
from covey.aggregation.robust import Median
from covey.aggregation.server import NoServerOptimizer
from covey.settings.aggregation import mixes_clusters
from plugins.aggregation_mixing import Mixing
from plugins.aggregation_trimmed import TrimmedByNumber
from plugins.fedavgm import FedAvgM
from plugins.kinds import CASES
from plugins.server_optimizer_fedavgm import Nesterov


def as_mean(clusters, updates, streams):
    return covey.mean_per_cluster(clusters, updates, streams)


class ByInheritance(Mean):
    """Says nothing itself: what it inherits was said of another `begin`."""

    def begin(self, models, streams, federation):
        return Mixing(share=0.5).begin(models, streams, federation)


class Declared(ByInheritance):
    """Says so itself."""

    keeps_clusters_apart: ClassVar[bool] = True


class MedianOfAll(Median):
    """A built-in aggregation by cluster, but for what it overrides."""

    def begin(self, models, streams, federation):
        return Mixing(share=0.5).begin(models, streams, federation)


class SwappingStep(NoServerOptimizer):
    """Inherits from one that does nothing."""

    def step(self, models, aggregated, states):
        return aggregated[::-1], states


class SeparateClusters(FedAvgM):
    traits: ClassVar[covey.Traits] = covey.Traits(keeps_clusters_apart=True)


class SeparateNoMore(SeparateClusters):
    """A subclass of one that says it keeps clusters apart."""


@pytest.mark.parametrize(
    ("settings", "mixes"),
    [
        ({}, False),
        ({"aggregation": {"name": "median", "server_optimizer": "momentum"}}, False),
        ({"aggregation": TrimmedByNumber()}, False),
        ({"aggregation": Mixing()}, True),
        ({"aggregation": as_mean}, True),
        ({"aggregation": ByInheritance()}, True),
        ({"aggregation": Declared()}, False),
        ({"aggregation": MedianOfAll()}, True),
        ({"aggregation": {"server_optimizer": Nesterov()}}, True),
        ({"aggregation": {"server_optimizer": SwappingStep()}}, True),
        ({"method": SeparateClusters()}, False),
        ({"method": SeparateNoMore()}, True),
        ({"method": SeparateClusters(), "aggregation": Mixing()}, True),
    ],
    ids=range(13),
)
def test_a_users_own_code_mixes_unless_it_says_that_it_does_not(
    settings: Mapping[str, Any], *, mixes: bool
):
    assert mixes_clusters(covey.Config.of(settings)) is mixes


def isolated(merge: object) -> covey.Config:
    return covey.Config.of({"aggregation": merge, "method": SeparateClusters()})


@pytest.mark.slow
def test_everybody_is_counted_in_every_cluster(tmp_path):
    population = {"population": {"audit_examples": 40}}
    settings = CASES["aggregation that mixes"].settings(population)
    run = covey.run(config=covey.Config.of(settings), out=tmp_path / "run")
    history = run.history
    all_handles = frozenset(run.names.values())
    assert history.components is not None
    assert history.components.mixes_clusters
    assert history.reached == {0: all_handles, 1: all_handles}
    for exposure in history.exposures:
        own = history.trained[exposure.handle]
        risks = [a.exposed.value if a.cluster in own else a.traced.value for a in history.audits]
        known = [risk for risk in risks if risk is not None]
        truth = history.audits[exposure.cluster].truth.figure.value
        expected = max([*known, truth or 0]) if len(known) == len(risks) else None
        assert exposure.exposure.value == expected
    assert {exposure.handle for exposure in history.exposures} == all_handles
