"""What noise on sums leaves to the best attacker: a bound for each client, and the attack itself.

An attacker who has every model of every round, all settings, and every record but one can
compute by how much that record changes each round's sum: g_t. The likelihood ratio

    log p / q = sum_t (<Y_t, g_t> - |g_t|^2 / 2) / (z C)^2

of what is left, Y_t = noise (+ g_t), is normal with means +-mu^2 / 2 and variance mu^2, where

    mu_r^2 = sum_t min(|grad f(theta_t, x_r)|, C_i)^2 / (z C)^2,    right in Phi(mu_r / 2)

No attack does better, and none reaches the bound of a client but on a record whose gradients
are clipped in every round.

References:
    Dong, Roth, Su, Gaussian Differential Privacy, 2022.
    Nasr et al., Adversary Instantiation, 2021: the attacker who has everything but one record.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

from covey.base import events
from covey.base.as_json import HIDDEN
from covey.base.built_ins import BOUND
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import History, of_kinds
from covey.base.names import UNITS, Handle, Params, Unit
from covey.data.examples import Client
from covey.dp.exposure import IndividualBound, added_in, individual_bounds, success_of
from covey.dp.releases import aggregations_of
from covey.dp.status import guarantee_status
from covey.engine.example_gradients import gradient_norms
from covey.engine.protocol import TrainingJob
from covey.engine.recipe import TASKS
from covey.models.build import copied, set_params
from covey.runs.folder import checkpoint_path
from covey.runs.session import Session
from covey.runs.states import load_state, state_problem
from covey.settings.run import BuiltRun

RATIO = "likelihood-ratio"
"""The best attack there is on a record in sums under noise."""


def _bounds_of(history: History) -> Mapping[Handle, IndividualBound]:
    """Return the bound of every client, where noise guarantees one; else none."""
    held = {
        guarantee.unit
        for guarantee in guarantee_status(history).guarantees
        if guarantee.epsilon is not None
    }
    unit: Unit | None = next((unit_of for unit_of in UNITS if unit_of in held), None)
    return {} if unit is None else individual_bounds(history.all_events, unit)


def bound_facts(
    history: History, assignment: Mapping[Handle, int], model_hash: str
) -> Iterator[events.ModelAttacked]:
    """Yield each client's bound on any attack on its records, of final models."""
    for handle, bound in sorted(_bounds_of(history).items()):
        if handle in assignment and math.isfinite(bound.mu):
            estimate = RiskEstimate(Figure(bound.success, 0.0), source=BOUND)
            yield events.ModelAttacked(assignment[handle], estimate, model_hash, handle)


@dataclass(frozen=True, slots=True)
class RatioAttack:
    """What the likelihood ratio over all rounds achieves on every record of a run.

    Attributes:
        records: how many were judged.
        success: on all of them together, and the standard error over them.
        worst: on the one on which it succeeds most often.
        bound: which no attack exceeds, the largest of all clients.
        above: clients with a record on which it exceeds what the client accepts.
        rounds_unknown: whose model is not on the disk: there every gradient is taken to be
            clipped, which only raises the figures.
        by_client: on the worst record of each client.
    """

    records: int
    success: Figure
    worst: float
    bound: float
    above: int
    rounds_unknown: int
    by_client: Mapping[Handle, float] = field(metadata=HIDDEN)

    def facts(self, cluster: int, model_hash: str) -> Iterator[events.ModelAttacked]:
        """Yield what a ledger remembers of it."""
        overall = RiskEstimate(self.success, source=RATIO, worst_client=self.worst)
        yield events.ModelAttacked(cluster, overall, model_hash)
        for handle, success in sorted(self.by_client.items()):
            estimate = RiskEstimate(Figure(success, 0.0), source=RATIO)
            yield events.ModelAttacked(cluster, estimate, model_hash, handle)


def ratio_attack(session: Session) -> RatioAttack | None:
    """Attack every record of a finished run whose clients sent sums of gradients under noise.

    None: they did not, or nothing is guaranteed, as with a seed that anybody may have.
    """
    run, history = session.run, session.record.history
    bounds = _bounds_of(history) if run.config.privacy_plan.sums_gradients else {}
    trained = (client for client in run.population.clients if len(client.train))
    clients = {client.handle: client for client in trained if client.handle in bounds}
    if not clients:
        return None
    squares = {handle: np.zeros(len(client.train)) for handle, client in clients.items()}
    parts = aggregations_of(history.all_events)
    merges = [part for part in parts if any(of_kinds(part, events.ModelsMerged))]
    first, unknown = len(merges) - len(history.rounds), 0  # superseded rounds come first
    for at, merge in enumerate(merges):
        model = _model_before(session, at - first)
        unknown += model is None
        norms = None if model is None else _gradient_norms(run, model)
        for handle, added in added_in(merge, "record").items():
            if handle in clients:
                shares = added.exposure  # of the clip, where the model is not known
                if norms is not None:
                    clip = run.config.privacy_plan.record_clip
                    shares = (norms(clients[handle]) / clip).clip(max=added.exposure)
                squares[handle] += (shares / added.noise_multiplier) ** 2
    success = {
        handle: np.array([success_of(math.sqrt(square)) for square in own])
        for handle, own in squares.items()
    }
    everyone = np.concatenate([*success.values()])
    accepted = {h: c.preference.risk_threshold for h, c in clients.items()}
    worst = {handle: float(own.max()) for handle, own in success.items()}
    error = float(everyone.std() / math.sqrt(len(everyone)))
    return RatioAttack(
        records=len(everyone),
        success=Figure(float(everyone.mean()), error),
        worst=max(worst.values()),
        bound=max(bounds[handle].success for handle in clients),
        above=sum(worst[handle] > accepted[handle] for handle in worst),
        rounds_unknown=unknown,
        by_client=worst,
    )


def _model_before(session: Session, round_index: int) -> Params | None:
    """Return the model with which a round began; None: it is not on the disk."""
    if round_index == 0:
        return session.run.algorithm.init(session.run.streams).clusters[0]
    path = checkpoint_path(session.folder.checkpoints, round_index - 1)
    if round_index < 0 or state_problem(path, session.ledger):
        return None
    return load_state(path)[0].clusters[0]


def _gradient_norms(
    run: BuiltRun, model: Params
) -> Callable[[Client], Float64[ndarray, " records"]]:
    """Return what computes |grad f(theta, x_r)| of a client's records under a model."""
    recipe, records = run.recipe(0), run.records
    assert run.module is not None  # every built run has one  # noqa: S101
    module, task = copied(run.module), TASKS[run.config.model.task]
    set_params(module, model)

    def norms(client: Client) -> Float64[ndarray, " records"]:
        job = TrainingJob(model, client.train, run.streams, recipe)
        lengths = records.gradient_norms(job) if records else gradient_norms(module, job, task)
        return lengths.double().numpy()

    return norms
