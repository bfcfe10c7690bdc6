"""Algorithms as tests play them: with the steps of a round, on one cohort after another."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from covey import Algorithm, Clients, Params, RoundResult, ServerState, Setup, Streams
from covey.algorithms.algorithm import Strategy
from covey.algorithms.fedavg import FedAvg, LocalTraining
from covey.algorithms.ifca import Ifca, IfcaMir
from covey.algorithms.round_steps import Steps
from covey.algorithms.selection import BY_LOSS, SelectionConfig
from covey.algorithms.state import Cohort
from covey.components.parts import create
from covey_papers.leaving import Isolated

__all__ = [
    "Playing",
    "built_in",
    "fedavg",
    "ifca",
    "ifca_mir",
    "isolated",
    "local_training",
    "playing",
]

DrawModel = Callable[[Streams], Params]
ROUNDS = 4
"""A warm start shares one, and keeps its split for one."""


@dataclass(frozen=True, slots=True)
class Playing:
    """A strategy, and how it asks whoever is in a round."""

    strategy: Strategy
    clients: Clients

    def init(self, streams: Streams) -> ServerState:
        """Return the state before round 0."""
        return self.strategy.init(streams)

    def play_round(self, state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        """Play a round with these clients."""
        return self.strategy.play_round(state, self.clients.among(cohort), streams)

    def conclude(self, state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        """Let these clients choose once more."""
        return self.strategy.conclude(state, self.clients.among(cohort), streams)

    def wrapped(self, wrapper: Callable[..., Strategy], *given: object) -> "Playing":
        """Return it with a wrapper of strategies around it."""
        return replace(self, strategy=wrapper(self.strategy, *given))


def setup_of(draw_model: DrawModel, population: Cohort = (), rounds: int = ROUNDS) -> Setup:
    """Return what an algorithm knows of a run; losses are of two classes."""
    return Setup(draw_model, population, rounds, layers=(), chance_loss=0.693)


def playing(
    algorithm: Algorithm,
    draw_model: DrawModel,
    steps: Steps,
    selection: SelectionConfig = BY_LOSS,
    population: Cohort = (),
) -> Playing:
    """Return an algorithm without the wrappers that its options ask for."""
    setup = setup_of(draw_model, population)
    bare = Algorithm.strategy(algorithm, setup)
    return Playing(bare, Clients((), steps, selection))


def built_in(name: str, draw_model: DrawModel, steps: Steps, population: Cohort) -> Playing:
    """Return a built-in algorithm as its options' defaults make it, wrappers and all."""
    algorithm = create("algorithm", name, "method.name", Algorithm)
    setup = setup_of(draw_model, population)
    return Playing(algorithm.strategy(setup), Clients((), steps))


def fedavg(draw_model: DrawModel, steps: Steps) -> Playing:
    """Return FedAvg."""
    return playing(FedAvg(), draw_model, steps)


def local_training(draw_model: DrawModel, steps: Steps, population: Cohort) -> Playing:
    """Return a model for each of these clients."""
    return playing(LocalTraining(), draw_model, steps, population=population)


def isolated(draw_model: DrawModel, steps: Steps, num_clusters: int, population: Cohort) -> Playing:
    """Return FedAvg in clusters that are drawn."""
    algorithm = Isolated(num_clusters=num_clusters)
    return playing(algorithm, draw_model, steps, population=population)


def ifca(
    draw_model: DrawModel, steps: Steps, num_clusters: int = 2, *, alike: bool = False
) -> Playing:
    """Return IFCA from models that are drawn each by itself, or from one model."""
    start = "groups" if alike else "random"
    algorithm = Ifca(num_clusters=num_clusters, initialisation=start)
    return playing(algorithm, draw_model, steps)


def ifca_mir(draw_model: DrawModel, steps: Steps, selection: SelectionConfig) -> Playing:
    """Return IFCA-MIR with two clusters, from models drawn each by itself."""
    algorithm = IfcaMir(initialisation="random")
    return playing(algorithm, draw_model, steps, selection)
