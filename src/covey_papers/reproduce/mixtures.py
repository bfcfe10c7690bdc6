"""Runs on a mixture of linear regressions, attacked with three kinds of non-members.

The same finished run is attacked with each kind. Beside each figure stands the blind baseline,
which never sees the model: where it beats chance, the figure measures that the two sides differ,
and not membership.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey import Config, RunError, ServerState
from covey.base.events import ClientsAssigned
from covey.base.params import flatten
from covey.data.examples import Client
from covey.engine.protocol import ScoredOnce
from covey.ledger.store import Ledger
from covey.membership.truth import blind_risk, true_risk
from covey.report.queries import group_sizes
from covey.runs.auditing import finished_session
from covey.runs.folder import RunFolder
from covey.runs.states import kept_state
from covey.settings.run import BuiltRun, build_run
from covey_papers.linear_mixture import LinearMixture
from covey_papers.reproduce.record import RunCache, note

Method = Literal["ifca", "ifca-mir"]
SOURCES: Mapping[Method, str] = {"ifca": "none", "ifca-mir": "federated"}
"""Who measures the risk that a method's clients choose by."""


@dataclass(frozen=True, slots=True)
class MixtureSetting:
    """A mixture of linear regressions, and who trains on it.

    Attributes:
        shares: of the clients, per group; they add up to 1.
        examples: B, that each client trains on, in one full-batch step per round; as many
            more are held out, for the red team.
        dimension, noise, separation, condition: of the mixture (`LinearMixture`).
        step: the learning rate times L; the theorem's is 1.
    """

    shares: tuple[float, ...] = (0.3, 0.7)
    clients: int = 40
    examples: int = 100
    dimension: int = 10
    noise: float = 0.1
    separation: float = 2.0
    condition: float = 4.0
    rounds: int = 16
    step: float = 1.0

    @property
    def mixture(self) -> LinearMixture:
        """The distribution of the examples."""
        return LinearMixture(**self._shape)

    @property
    def _shape(self) -> dict[str, Any]:
        names = ("dimension", "noise", "separation", "condition")
        return {name: getattr(self, name) for name in names}

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue, lambda, of the Hessian of every group's mean loss."""
        return float(self.mixture.spectrum.min())

    @property
    def largest(self) -> float:
        """The largest one, L."""
        return float(self.mixture.spectrum.max())

    @property
    def apart(self) -> float:
        """Delta, the least distance between two optima, where they are orthogonal."""
        return math.sqrt(2) * self.separation

    def config(self, method: Method, seed: int, risk_weight: float = 0.0) -> Config:
        """Return the settings of a run in which every client has the same beta."""
        groups = [
            {"share": share, "shift": (0.0, 0.0), "examples_per_client": 2 * self.examples}
            for share in self.shares
        ]
        return Config.of(
            {
                "seed": seed,
                "rounds": self.rounds,
                "data": {"name": "linear-mixture", **self._shape},
                "population": {
                    "clients": self.clients,
                    "groups": groups,
                    "shift": "none",
                    "holdout": 0.5,
                    "audit_examples": 0,
                    "risk_weight": risk_weight,
                },
                "model": {"name": "linear-map", "task": "regression"},
                "train": {
                    "local_steps": 1,
                    "batch_size": self.examples,
                    "learning_rate": self.step / self.largest,
                },
                "method": {
                    "name": method,
                    "num_clusters": len(self.shares),
                    "initialisation": "groups",
                },
                "risk": {"name": SOURCES[method], "every": 1},
            }
        )


@dataclass(frozen=True, slots=True)
class Start:
    """Assumption 4, as far as it can be computed, where clients first choose.

    Attributes:
        margin: the assumption's alpha: the largest a with
            max_j ||theta_j - theta*_j|| <= (1/2 - a) sqrt(lambda / L) Delta.
        examples: B, which each client has.
        examples_needed: s eta^2 / (a^2 lambda^2 Delta^4), eta^2 the largest variance of f
            over these models and all groups; infinite without a margin.
        share: p, of the smallest group.
        share_needed: log(n B) / n.
    """

    margin: float
    examples: int
    examples_needed: float
    share: float
    share_needed: float

    @property
    def holds(self) -> bool:
        """Whether the three conditions hold that have no unknown constants."""
        return (
            0 < self.margin <= 0.5
            and self.examples >= self.examples_needed
            and self.share >= self.share_needed
        )


def start_of(
    mixture: LinearMixture,
    optima: Float[ndarray, "groups dimension"],
    thetas: Float[ndarray, "groups dimension"],
    sizes: tuple[int, int, float],
) -> Start:
    """Hold models to the conditions of Assumption 4 that have no unknown constants.

    Args:
        mixture: what the examples are drawn from.
        optima: theta*_j.
        thetas: theta_j, the models that clients choose among.
        sizes: n, B and p: clients, examples of each, share of the smallest group.
    """
    n, examples, share = sizes
    spectrum, groups = mixture.spectrum, len(optima)
    smallest, largest = spectrum.min(), spectrum.max()
    between = np.linalg.norm(optima[:, None] - optima, axis=2)
    delta = between[~np.eye(groups, dtype=bool)].min()
    farthest = np.linalg.norm(thetas - optima, axis=1).max()
    margin = float(0.5 - farthest / (math.sqrt(smallest / largest) * delta))
    # y - <x, theta> is normal with this variance v, and so f = (y - <x, theta>)^2 / 2
    # has variance v^2 / 2
    off = thetas[:, None] - optima
    residual = mixture.noise**2 + (spectrum * off**2).sum(axis=2)
    eta_squared = float((residual**2 / 2).max())
    needed = groups * eta_squared / (margin**2 * smallest**2 * delta**4)
    return Start(
        margin=margin,
        examples=examples,
        examples_needed=float(needed) if margin > 0 else math.inf,
        share=share,
        share_needed=math.log(n * examples) / n,
    )


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """A finished run: what its ledger and its checkpoints hold.

    Attributes:
        run: its clients, with their examples.
        optima: theta*_j, of the group that begins in cluster j.
        states: before round 0, and after every round.
        clusters: by round, who took which; in `free` rounds clients chose themselves.
    """

    setting: MixtureSetting
    run: BuiltRun
    optima: Float[ndarray, "groups dimension"]
    states: tuple[ServerState, ...]
    clusters: Mapping[int, Mapping[str, int]]
    free: tuple[int, ...]

    @property
    def clients(self) -> tuple[Client, ...]:
        """All clients, with their examples."""
        return self.run.population.clients

    @property
    def free_states(self) -> tuple[ServerState, ...]:
        """The states before the first free round, and after each one."""
        return self.states[self.free[0] :]

    @property
    def shares(self) -> tuple[float, ...]:
        """p_j, the share of each group's clients."""
        counts = Counter(client.group for client in self.clients)
        return tuple(counts[j] / len(self.clients) for j in range(len(self.optima)))

    @property
    def examples(self) -> tuple[int, ...]:
        """How many examples each group trains on."""
        return tuple(
            sum(len(c.train) for c in self.clients if c.group == j) for j in range(len(self.optima))
        )

    def distances(self, state: ServerState) -> tuple[float, ...]:
        """Return ||theta_j - theta*_j||."""
        return tuple(np.linalg.norm(models_of(state) - self.optima, axis=1).tolist())

    def start(self) -> Start:
        """Hold the state before the first free round to Assumption 4."""
        sizes = len(self.clients), self.setting.examples, min(self.shares)
        thetas = models_of(self.free_states[0])
        return start_of(self.setting.mixture, self.optima, thetas, sizes)

    def misassigned(self, rounds: Sequence[int]) -> float:
        """Return the share of these rounds' choices for another group's cluster."""
        groups = {client.handle: client.group for client in self.clients}
        wrong = [j != groups[h] for t in rounds for h, j in self.clusters[t].items()]
        return float(np.mean(wrong))


def played(setting: MixtureSetting, config: Config, cache: RunCache) -> FinishedRun:
    """Play a run to its end unless it is there, and read it back from its folder.

    Raises:
        RunError: there is no round in which clients choose.
    """
    folder = cache.run(config, f"{config.method.name}, seed {config.seed}")
    place, assembled = RunFolder(folder), build_run(config)
    first = assembled.algorithm.init(assembled.streams)
    with Ledger.read(place.ledger) as ledger:
        chosen = [
            (t, event)
            for t, event in place.reader.read(ledger).events
            if isinstance(event, ClientsAssigned) and t is not None and t < config.rounds
        ]
        after = [kept_state(place, ledger, t) for t in range(config.rounds)]
    free = tuple(t for t, event in chosen if event.by == "clients")
    if not free:
        raise RunError(
            f"{folder} must have rounds in which clients choose, found {config.rounds} from the "
            f"true groups: play more rounds."
        )
    return FinishedRun(
        setting=setting,
        run=assembled,
        optima=setting.mixture.optima(len(setting.shares), assembled.streams),
        states=(first, *after),
        clusters={t: event.clusters for t, event in chosen},
        free=free,
    )


def models_of(state: ServerState) -> Float[ndarray, "groups dimension"]:
    """Return theta_j of every cluster."""
    return np.stack([flatten(params).double().numpy() for params in state.clusters])


NonMembers = Literal["matched", "pooled", "untransformed"]
KINDS: tuple[NonMembers, ...] = get_args(NonMembers)


@dataclass(frozen=True, slots=True)
class Attacked:
    """A group's model, attacked with one kind of non-members.

    Attributes:
        risk: MIA accuracy of the loss threshold, cross-fitted.
        blind: accuracy of the classifier that never sees the model.
    """

    non_members: str
    group: str
    risk: float | None
    blind: float | None


def attacked(path: Path) -> tuple[Attacked, ...]:
    """Attack the model of every group of a finished run in all three ways.

    A group's model is the one that most of its clients chose, and its members are all
    that those who chose it trained on. What was measured once is read again.
    """
    file = path / "mismatch.json"
    if not file.is_file():
        note(file, {"attacked": _measured(path)})
    known = json.loads(file.read_text(encoding="utf-8"))["attacked"]
    return tuple(Attacked(**row) for row in known)


def _measured(path: Path) -> list[Attacked]:
    folder, measured = RunFolder.existing(path), list[Attacked]()
    run = build_run(folder.checked_config())
    scored = replace(run, engine=ScoredOnce(run.engine))
    with finished_session(scored, folder, "An audit") as session:
        engine, population = session.run.engine, run.population
        history, models = session.record.history, kept_state(folder, session.ledger).clusters
        assignment, names = history.assignment, [group.name for group in population.groups]
        for kind in KINDS:  # other non-members of the same run: its members stay what they are
            audit = type(run.config.audit)(non_members=kind)
            reference = build_run(run.config.model_copy(update={"audit": audit})).reference
            for group in group_sizes(history):
                of_group = names.index(group)
                own = [assignment[c.handle] for c in population.clients if c.group == of_group]
                home = max(sorted(set(own)), key=own.count)
                members = [c for c in population.clients if assignment[c.handle] == home]
                if home in history.diverged:
                    measured.append(Attacked(kind, group, None, None))
                    continue
                streams = run.streams.at("non-members of other kinds", home)
                risk = true_risk(engine, models[home], members, reference, streams)
                blind = blind_risk(members, reference, streams)
                figures = risk.figure.value, blind.risk if blind else None
                measured.append(Attacked(kind, group, *figures))
    return measured
