"""Are groups found where every record is hidden, by DP-SGD on the clients?

MNIST is dealt to 20 clients, 300 images each; a quarter hold theirs turned by a right angle.
All train a linear model by DP-SGD, at one epsilon of a record over all rounds: FedAvg, IFCA
with covey's warm start, and R-DPCFL (Malekmohammadi, Taik, Farnadi, Differentially Private
Clustered Federated Learning, 2025), rebuilt here from the paper and its authors' code. Which
cluster a client chooses is not hidden, in either.
"""

import math
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from statistics import fmean, stdev
from typing import Any

import numpy as np
from dp_accounting import DpEvent
from scipy.optimize import root_scalar
from scipy.special import erf
from sklearn.mixture import GaussianMixture

import covey
from benchmarks.playing import note
from covey import Clients, ClientUpdate, RoundResult, ServerState, Streams
from covey.algorithms.algorithm import Clustered
from covey.base.component_state import ComponentState
from covey.base.components import reference
from covey.base.events import ClientsAssigned, Event, StepsPerturbed
from covey.base.history import of_kinds
from covey.base.names import Handle
from covey.base.params import flatten
from covey.dp.accountant import epsilon_bound, gaussian
from covey.runs.evaluation import ModelsInUse, accuracies
from covey.settings.run import build_run

DELTA, CLIP, RATE = 1e-5, 1.0, 0.5
Row = dict[str, Any]


class Posterior(ComponentState):
    """To which group each client belongs, by the first round, and for how long that counts."""

    key = "r-dpcfl"
    chances: Mapping[Handle, tuple[float, ...]] = {}
    until: int = 0


class RDpcfl(Clustered):
    """Find groups in the first round's updates, of full batches; then let losses decide.

    In the first round everybody takes one step on all of its records, so that there is least
    noise. A mixture of Gaussians is fitted to two principal components of the updates. Up to
    round (1 - overlap) T / 2 clients draw their cluster from its posterior, then for T / 10
    rounds they choose by loss, and stay.
    """

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Play the round of this stage."""
        t, posterior, rounds = state.round_index, state.get_state(Posterior), clients.setup.rounds
        if t == 0:
            return self._first(state, clients, streams)
        if t < posterior.until:
            drawn = self._drawn(posterior.chances, streams)
            return clients.train_and_aggregate(state, ClientsAssigned(drawn, "split"), streams)
        if t < posterior.until + max(1, rounds // 10):
            choice = clients.choose(state, streams)
            state, chosen = choice.state, choice.clusters
        else:
            chosen = {client.handle: state.assignment[client.handle] for client in clients.cohort}
        return clients.train_and_aggregate(state, ClientsAssigned(chosen, "clients"), streams)

    def _first(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        watched: Any = copy(clients.federation)  # around simulated ones: only those train by DP-SGD
        here = watched.federation
        whole = replace(here.recipe, local_epochs=1, local_steps=1, batch_size=2**20)
        watched.federation = replace(here, recipe=whole)
        clients = replace(clients, federation=watched)
        all_clients = {client.handle: 0 for client in clients.cohort}
        updates = tuple(clients.train(state.clusters, all_clients, streams, state))
        seed = int(streams.at("mixture").generator().integers(2**31))
        chances, overlap = mixture(updates, self.num_clusters, seed)
        until = max(1, int((1 - overlap) * clients.setup.rounds / 2))
        chosen = ClientsAssigned(self._drawn(chances, streams), "split")
        moved = clients.train_and_aggregate(state, chosen, streams, updates)
        with_posterior = moved.state.with_state(Posterior(chances=chances, until=until))
        return moved._replace(state=with_posterior)

    def _drawn(
        self, chances: Mapping[Handle, tuple[float, ...]], streams: Streams
    ) -> dict[Handle, int]:
        draws = streams.at("posterior").generator()
        return {h: int(draws.choice(len(own), p=own)) for h, own in sorted(chances.items())}


def mixture(
    updates: Sequence[ClientUpdate], groups: int, seed: int
) -> tuple[dict[Handle, tuple[float, ...]], float]:
    """Return every client's posterior, and how much the two nearest groups overlap.

    s = |m_j - m_k| / (2 max(r_j, r_k)),    overlap = 1 - erf(s / sqrt 2)
    """
    rows = np.stack([flatten(update.update).double().numpy() for update in updates])
    centred = rows - rows.mean(axis=0)
    _, _, axes = np.linalg.svd(centred / (rows.std(axis=0) + 1e-12), full_matrices=False)
    points = centred @ axes[:2].T
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    even = np.full(groups, 1 / groups)
    kind: Any = {"covariance_type": "spherical", "init_params": "k-means++", "tol": 1e-6}
    model: Any = GaussianMixture(groups, weights_init=even, random_state=seed, **kind)
    model.fit(points)
    model.weights_ = even
    means, radii = model.means_, np.sqrt(model.covariances_)
    scores = [
        np.linalg.norm(means[j] - means[k]) / (2 * max(radii[j], radii[k]))
        for j in range(groups)
        for k in range(j)
    ]
    own = model.predict_proba(points)
    flat_updates = {
        update.handle: tuple(map(float, row)) for update, row in zip(updates, own, strict=True)
    }
    return flat_updates, float(1 - erf(min(scores) / math.sqrt(2)))


METHODS: Mapping[str, Row] = {
    "fedavg": {"name": "fedavg"},
    "ifca, warm start": {"name": "ifca"},
    "R-DPCFL": {"name": reference(RDpcfl)},
    "ifca, the true groups": {"name": "ifca", "initialisation": "groups"},
}


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--epsilons", type=float, nargs="+", default=[4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)


def measure(chosen: Namespace) -> dict[str, list[Row]]:
    """Return a row per epsilon and method: accuracy of each group, and epsilon of the run."""
    seeds, epsilons = range(chosen.seeds), chosen.epsilons
    if chosen.quick:
        seeds, epsilons = range(1), [8.0]
    rows: list[Row] = []
    for epsilon in epsilons:
        for name in METHODS:
            runs = [_played(name, epsilon, seed, is_small=chosen.quick) for seed in seeds]
            row: Row = {"epsilon asked": epsilon, "method": name}
            for key in runs[0]:
                own = [run[key] for run in runs]
                row[key] = fmean(own)
                if len(own) > 1 and not key.startswith("epsilon"):
                    row[f"± {key}"] = stdev(own)
            rows.append(row)
            note(" ".join(map(str, row.values())))
    return {f"{len(seeds)} seeds": rows}


def _played(name: str, epsilon: float, seed: int, *, is_small: bool) -> Row:
    """Play a run at the least noise for an epsilon; return accuracies, and what it cost."""
    steps = _steps(name, is_small=is_small)
    least = root_scalar(lambda z: _epsilon(steps, z) - epsilon, bracket=(0.3, 50), xtol=1e-3)
    z = float(least.root) + 1e-3  # the other side of what it may be off
    by_group, facts = _rounds(name, z, seed, is_small=is_small)
    return {**by_group, "noise": z, "epsilon of the run": _epsilon(facts, None)}


@cache
def _steps(name: str, *, is_small: bool) -> Sequence[Event]:
    """Return the facts of a run: how many steps it takes depends on no noise, and no seed."""
    return _rounds(name, 1.0, 0, is_small=is_small)[1]


def _rounds(name: str, z: float, seed: int, *, is_small: bool) -> tuple[Row, list[Event]]:
    """Play all rounds; return each group's accuracy, and what a ledger would have recorded."""
    clients, images, rounds = (10, 60, 8) if is_small else (20, 375, 12)
    shifts = {0.25: [90.0, 90.0], 0.75: [0.0, 0.0]}
    groups = [
        {"share": share, "shift": shift, "examples_per_client": images}
        for share, shift in shifts.items()
    ]
    people = {"clients": clients, "groups": groups, "holdout": 0.2, "audit_examples": 0}
    settings: Row = {
        "seed": seed,
        "rounds": rounds,
        "data": {"name": "digits" if is_small else "mnist"},
        "population": people,
        "model": {"name": "linear"},
        "train": {"batch_size": 50, "learning_rate": RATE},
        "method": METHODS[name],
        "risk": {"name": "none"},
        "privacy": {"record_clip": CLIP, "record_noise": z, "noise_model": "local", "delta": DELTA},
    }
    run = build_run(covey.Config.of(settings))
    state, facts = run.algorithm.init(run.streams), list[Event]()
    for t in range(rounds):
        present = run.clients(run.population.clients, t)
        moved = run.algorithm.round(state, present, run.streams.at("round", t))
        state, facts = moved.state, [*facts, *moved.events]
    present = run.clients(run.population.clients, rounds)
    state = run.algorithm.finalize(state, present, run.streams.at("round", rounds)).state
    per_client = accuracies(run.engine, ModelsInUse.of(state), run.population)
    by_group: Row = {}
    for index, title in enumerate(("quarter", "others")):
        own = [c.handle for c in run.population.clients if c.group == index]
        by_group[title] = fmean(per_client[handle] for handle in own)
        most = Counter(state.assignment[handle] for handle in own).most_common(1)[0][1]
        by_group[f"{title} together"] = most / len(own)
    return by_group, facts


def _epsilon(facts: Sequence[Event], noise: float | None) -> float:
    """Return what the records of the client that took most steps have spent.

    Args:
        facts: of the run.
        noise: instead of the noise that there was; None: that.
    """
    spent: dict[Handle, Counter[DpEvent]] = {}
    for fact in of_kinds(facts, StepsPerturbed):
        for handle, steps in fact.steps.items():
            one = gaussian(noise or fact.noise_multiplier, fact.sampling[handle])
            spent.setdefault(handle, Counter())[one] += steps
    (counted,) = {
        frozenset(budgets.items()) for budgets in spent.values()
    }  # all have as many records
    bound = epsilon_bound(Counter(dict(counted)).elements(), DELTA)
    return bound.epsilon if bound else math.inf
