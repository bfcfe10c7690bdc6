"""What a user's own part is given is read-only: others go on from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey import ServerState, Signals, kept
from covey.membership.audit import scored_by
from covey.runtime.auditing import named_attack
from plugins.fedavgm import Velocity

TINY = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "audit_examples": 0},
    "model.name": "linear",
    "train.learning_rate": 0.5,
    "engine.name": "reference",
    "risk.name": "none",
    "method": {"name": "fedavg"},
}
SAID = r"Your {} must not write into its arguments, .*found that it changed .*{}"


def played(tmp_path: Path, **settings: Any) -> covey.Run:
    return covey.run(config=TINY | settings, out=tmp_path / "run")


def writes_in_numpy(signals: Signals) -> np.ndarray:
    signals.target[:] = 0
    return signals.labels * 1.0


def writes_through_torch(signals: Signals) -> np.ndarray:
    torch.from_numpy(signals.references).zero_()
    return signals.labels * 1.0


@pytest.mark.parametrize(
    ("attack", "said"),
    [
        (writes_in_numpy, "writes_in_numpy raised ValueError: .*read-only"),
        (writes_through_torch, "writes_through_torch must not write .*references"),
    ],
)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_no_attack_falsifies_those_after_it(attack: Callable[[Signals], np.ndarray], said: str):
    draw = np.random.default_rng(0)
    target, references = draw.normal(size=(9, 3)), draw.normal(size=(9, 2, 3))
    seen = Signals(np.arange(9) % 3, target, references, np.ones((9, 2), dtype=bool))
    before = target.copy()
    own = named_attack(attack)[1]
    with pytest.raises(covey.ConfigError, match=said):
        scored_by("own", own, seen)
    assert np.array_equal(seen.target, before)


class Estimates(covey.RiskEstimator):
    def estimate(self, target: Any, context: Any, streams: Any) -> covey.RiskEstimate:
        target.members[0].train.inputs.numpy()[:] = 0
        return covey.RiskEstimate(covey.Figure(0.5, 0.1))


class Aggregates(covey.Aggregation):
    def aggregate(self, models: Any, updates: Any, streams: Any) -> Any:
        models[0]["1.bias"].zero_()
        return covey.mean_per_cluster(models, updates, streams)


class Selects(covey.ClusterSelection):
    def select(self, inputs: Any) -> torch.Tensor:
        chosen = inputs.losses.argmin(1)
        inputs.losses.zero_()
        return chosen


class Steps(covey.ServerOptimizer):
    def step(self, models: Any, aggregated: Any, states: Any) -> Any:
        before = kept(states, Velocity).value
        if before:
            before["1.bias"].mul_(0.5)
        own = {name: value.clone() for name, value in aggregated[0].items()}
        return aggregated, covey.keep(states, Velocity(value=own))


class Plays(covey.Algorithm):
    def round(self, state: ServerState, clients: Any, streams: Any) -> Any:
        result = clients.train_and_aggregate(state, clients.all_in(0, "shared"), streams)
        state.clusters[0]["1.bias"].add_(1)
        return result


@pytest.mark.parametrize(
    ("settings", "name", "place"),
    [
        ({"risk.name": Estimates()}, "risk estimator", "inputs"),
        ({"aggregation": Aggregates()}, "aggregation", r"1\.bias"),
        (
            {
                "method": {"name": "ifca-mir", "selection": Selects(), "initialisation": "random"},
                "risk.name": "federated",
            },
            "selection",
            "losses",
        ),
        ({"aggregation.server_optimizer": Steps()}, "server optimizer", r"value.*1\.bias"),
        ({"method": Plays()}, "algorithm", r"clusters.*1\.bias"),
    ],
    ids=lambda each: "" if isinstance(each, dict) else each,
)
def test_a_part_that_writes_is_refused_by_name(
    tmp_path: Path, settings: dict[str, Any], name: str, place: str
):
    with pytest.raises(covey.CoveyError, match=SAID.format(f"{name}.*", place)):
        played(tmp_path, **settings)
