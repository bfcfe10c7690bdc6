"""Whole rounds of federations, masks on, with one client and without: no epsilon is refuted.

And those that promise too much are: with shares that are halved, or count on clients that
drop out, of a node whose noise others can recompute, and of noise that wraps around.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

import covey
from covey.base.rng import Streams
from covey.dp.run_guarantees import guarantees
from covey.secure_sums import noise
from covey.secure_sums.noise import NoiseShares
from covey.settings.clients import Overrides
from covey.settings.run import build_run
from support.canaries import least_epsilon

DRAWS = 500
Z, LEAST = 0.7, 6
CANARY = "a-canary"


class Lean(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2, bias=False)
        nn.init.zeros_(self.weight)


def built(model: str, privacy: dict[str, int], *, present: bool):
    """A federation of which only the canary has inputs that are not 0, if it is there."""
    masks = {"secure_sums": True, "min_cohort": LEAST} if model == "distributed" else {}
    config = covey.Config.model_validate(
        {
            "rounds": 1,
            "method": {"name": "fedavg"},
            "risk": {"name": "none"},
            "secrets": {"source": "os"},
            "population": {"holdout": 0.0},
            "privacy": {
                "client_clip": 1.0,
                "client_noise": Z,
                "noise_model": model,
                **masks,
                **privacy,
            },
        }
    )
    labels = np.array([0, 1] * 5)
    nothing = np.zeros((10, 2), dtype=np.float32)
    loud = nothing + np.stack([2.0 * labels - 1, 0 * labels], axis=1).astype(np.float32) * 1e3
    names = [CANARY, *(f"client-{i}" for i in range(1, LEAST))]
    clients = {n: (loud if present and n == CANARY else nothing, labels) for n in names}
    return build_run(config, Overrides(Lean, clients))


def moved(model: str, known: tuple[str, ...], privacy: dict[str, int], *, present: bool):
    """How far each of many first rounds moved the model along the canary's direction.

    Args:
        model: who adds noise.
        known: whose noise the observer knows, and takes off.
        privacy: other settings.
        present: whether the canary has any data.
    """
    run = built(model, privacy, present=present)
    start = run.algorithm.init(run.streams)
    clients = run.clients(run.population.clients, 0)
    found, facts = [], ()
    for i in range(DRAWS):
        streams = Streams(0, ("round", 0), secret=2 * i + present)
        played = run.algorithm.round(start, clients, streams)
        facts = played.events
        step = played.state.clusters[0]["weight"] - start.clusters[0]["weight"]
        along = float(step[1, 0] - step[0, 0]) / math.sqrt(2) * LEAST
        for name in known:
            shares = NoiseShares(1.0, Z, LEAST - privacy.get("colluders", 0))
            drawn = noise.discrete_gaussian(4, streams.at("own noise", name).draws())
            own = shares.values(drawn).reshape(2, 2)
            along -= float(own[1, 0] - own[0, 0]) / math.sqrt(2)
        found.append(along)
    return np.array(found), facts


def refuted(model: str, known: tuple[str, ...] = (), **privacy: int) -> tuple[float, float]:
    """What these draws refute, and what is printed."""
    there, facts = moved(model, known, privacy, present=True)
    absent, _ = moved(model, known, privacy, present=False)
    (guarantee, *_) = guarantees(facts, 1e-5, secret=True)
    assert guarantee.epsilon is not None
    return least_epsilon(there, absent, 1e-5, is_gaussian=True), guarantee.epsilon


HELPERS = tuple(f"client-{i}" for i in range(1, LEAST))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "known", "privacy"),
    [("central", (), {}), ("distributed", (), {}), ("distributed", HELPERS[:1], {"colluders": 1})],
)
def test_no_epsilon_that_is_printed_is_refuted(model, known, privacy):
    shown, printed = refuted(model, known, **privacy)
    assert 0.3 * printed < shown <= printed  # the game is strong enough to tell


def halved(monkeypatch: pytest.MonkeyPatch) -> None:
    right = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda n, draws: right(n, draws) // 2)


def counting_on_who_drops_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if shares were cut for 24 clients, of whom 6 are left."""
    step = NoiseShares.step.fget
    assert step is not None
    monkeypatch.setattr(
        NoiseShares, "step", property(lambda self: step(replace(self, honest=4 * self.honest)))
    )


def wrapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a share were drawn into a ring of its own, of 17 bits, and wrapped around there."""
    right = noise.discrete_gaussian
    monkeypatch.setattr(
        noise, "discrete_gaussian", lambda n, draws: (right(n, draws) + 2**15) % 2**16 - 2**15
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", [halved, counting_on_who_drops_out, wrapping])
def test_noise_that_is_less_than_is_printed_is_caught(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
):
    fault(monkeypatch)
    shown, printed = refuted("distributed")
    assert shown > printed


@pytest.mark.slow
def test_nodes_whose_noise_others_can_recompute_are_caught():
    shown, printed = refuted("distributed", known=HELPERS)
    assert shown > printed
