"""Means and counts under masks: those that are in the open, within a stated bound."""

import numpy as np
import pytest
import torch

import covey
from algorithms.playing import rounds_of
from covey import ClientUpdate, ConfigError, ModelError, Streams, mean_per_cluster
from covey.aggregation.mean import LARGEST, Mean, masked_means
from covey.algorithms.fedavg import FedAvg
from covey.base.events import ClusterWaited
from covey.settings.run import build_run
from support.aggregating import aggregated

START = ({"w": torch.zeros(3, 4), "b": torch.zeros(2)},) * 2
HERE = Streams(0)


def updates(clients: int, cluster: int = 0, weight=lambda _: 1.0):
    drawn = HERE.at("updates", cluster).generator()
    return [
        ClientUpdate(
            f"{cluster}-{i}",
            cluster,
            {
                "w": torch.from_numpy(drawn.normal(size=(3, 4))).float(),
                "b": torch.from_numpy(drawn.normal(size=2)).float(),
            },
            float(weight(i)),
        )
        for i in range(clients)
    ]


@pytest.mark.parametrize("weight", [lambda _: 1.0, lambda i: i + 1.0])
def test_the_mean_is_that_in_the_open_within_its_bound(weight):
    given = updates(6, 0, weight) + updates(5, 1, weight)
    masked = aggregated(masked_means(5), START, given, HERE)
    plain = mean_per_cluster(START, given, HERE)
    assert not masked.events
    for one, other in zip(masked.clusters, plain.clusters, strict=True):
        for name in one:
            assert one[name].dtype == torch.float32
            torch.testing.assert_close(one[name], other[name], rtol=1e-6, atol=2**-24)


def test_a_cluster_of_few_waits():
    given = updates(6) + updates(4, 1)
    masked = aggregated(masked_means(5), START, given, HERE)
    assert masked.events == (ClusterWaited(1, 4, 5),)
    assert masked.clusters[1] is START[1]


def test_what_does_not_fit_the_ring_is_cut_or_refused():
    given = updates(3)
    given[0].update["b"][0] = 1e9
    found = aggregated(masked_means(3), START, given, HERE).clusters[0]["b"][0]
    others = sum(float(each.update["b"][0]) for each in given[1:])
    assert float(found) == pytest.approx((LARGEST + others) / 3)
    with pytest.raises(ModelError, match="weights must stay below"):
        aggregated(masked_means(3), START, updates(3, weight=lambda _: 2.0**23), HERE)
    counters = [ClientUpdate(each.handle, 0, {"n": torch.tensor(3)}, 1.0) for each in given]
    with pytest.raises(ModelError, match="counters"):
        aggregated(masked_means(3), START, counters, HERE)


TRAINED = {
    "rounds": 2,
    "population": {"clients": 6, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "linear"},
    "method": {"name": "fedavg"},
    "risk": {"name": "federated", "every": 1},
    "aggregation": {"weights": "examples"},
}
MASKED = {"privacy": {"secure_sums": True, "min_cohort": 4}}


def test_fedavg_and_its_red_team_are_those_in_the_open():
    plain, masked = (
        [*rounds_of(build_run(covey.Config.of(how)), 2)][-1] for how in (TRAINED, TRAINED | MASKED)
    )
    for one, other in zip(plain.state.clusters, masked.state.clusters, strict=True):
        for name in one:
            torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-4)
    assert [*map(type, plain.events)] == [*map(type, masked.events)]
    risks = [each.state.risk_estimates()[0] for each in (plain, masked)]
    known = [risk.risk for risk in risks if risk is not None]
    assert np.isclose(*known, atol=0.05)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"aggregation": {"name": "median"}}, "the server to see single updates"),
        ({"method": {"name": "ifca"}}, "clients to send nothing but one sum"),
        ({"leaving": {"store_updates": 1}}, "clients' updates to be kept"),
        (
            {
                "privacy": {"secure_sums": True, "client_noise": 1.0, "client_clip": 1.0},
                "aggregation": {"weights": "equal"},
            },
            "needs clients to add the noise on what they send",
        ),
    ],
)
def test_what_looks_at_single_updates_is_refused_under_masks(changed, found):
    with pytest.raises(ConfigError, match=found):
        build_run(covey.Config.model_validate({**TRAINED, **MASKED, **changed})).clients((), 0)


class Halved(Mean):
    """A user's own, of which nothing is known under masks."""

    def begin(self, models, streams, federation):
        return super().begin(models, streams, federation)


class Looking(FedAvg):
    """A user's own, which may ask clients for their updates one by one."""


def test_what_only_inherits_from_the_mean_or_fedavg_is_not_taken_for_it():
    privacy = {"secure_sums": True, "min_cohort": 4}
    halved = covey.Config.of({**TRAINED, "aggregation": Halved(), "privacy": privacy})
    with pytest.raises(ConfigError, match=r"aggregation\.name must be 'mean' under"):
        build_run(halved)
    given = {**TRAINED, **MASKED, "method": {"name": f"{__name__}:Looking"}}
    with pytest.raises(ConfigError, match="clients to send nothing but one sum"):
        build_run(covey.Config.of(given))
