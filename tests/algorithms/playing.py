"""Algorithms as tests play them: with the steps of a round, on one cohort after another."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from covey import Algorithm, Clients, Params, RoundResult, ServerState, Setup, Streams
from covey.algorithms.algorithm import Opening
from covey.algorithms.clients import Federation
from covey.algorithms.fedavg import FedAvg, LocalTraining
from covey.algorithms.ifca import Ifca, IfcaMir
from covey.algorithms.redteam import RiskMeasurement
from covey.algorithms.round import RoundSteps
from covey.algorithms.run_algorithm import RunAlgorithm
from covey.algorithms.selection import BY_LOSS, SelectionConfig
from covey.algorithms.state import Cohort
from covey.base.components import create
from covey.settings.run import BuiltRun
from support.aggregating import means

DrawModel = Callable[[Streams], Params]
ROUNDS = 4
"""A warm start shares one, and keeps its split for one."""

ALIKE = Opening("random", 0, 0)
"""Clients choose from the first round on."""


@dataclass(frozen=True, slots=True)
class Playing:
    """An algorithm in its run, and how it asks whoever is in a round."""

    algorithm: RunAlgorithm
    clients: Clients

    def init(self, streams: Streams) -> ServerState:
        """Return the state before round 0."""
        return self.algorithm.init(streams)

    def play_round(self, state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        """Play a round with these clients."""
        return self.algorithm.round(state, self.clients.among(cohort), streams)

    def conclude(self, state: ServerState, cohort: Cohort, streams: Streams) -> RoundResult:
        """Let these clients choose once more."""
        return self.algorithm.finalize(state, self.clients.among(cohort), streams)

    def measured_by(self, risk: RiskMeasurement) -> "Playing":
        """Return it with somebody who measures risks before each choice."""
        return replace(self, algorithm=replace(self.algorithm, risk=risk))


class Begun(Ifca):
    """IFCA whose clusters start from one model, with an opening that a test sets."""

    opens: Opening = ALIKE

    def opening(self, rounds: int) -> Opening:
        del rounds
        return self.opens


def clients_with(federation: Federation, **how: Any) -> Clients:
    """Return how clients are asked and aggregated, by default by a mean; nobody is there."""
    steps = RoundSteps(how.pop("aggregation", means), **how)
    return Clients((), federation, steps, setup_of(lambda _: {}))


def setup_of(draw_model: DrawModel, population: Cohort = ()) -> Setup:
    """Return what an algorithm knows of a run; losses are of two classes."""
    return Setup(draw_model, population, ROUNDS, chance_loss=0.693)


def playing(
    algorithm: Algorithm, setup: Setup, steps: Clients, selection: SelectionConfig = BY_LOSS
) -> Playing:
    """Return an algorithm in its run."""
    return Playing(RunAlgorithm(algorithm, setup), replace(steps, setup=setup, selection=selection))


def built_in(name: str, draw_model: DrawModel, steps: Clients, population: Cohort) -> Playing:
    """Return a built-in algorithm as its settings' defaults make it."""
    algorithm = create("algorithm", name, "method.name", Algorithm)
    return playing(algorithm, setup_of(draw_model, population), steps)


def fedavg(draw_model: DrawModel, steps: Clients) -> Playing:
    """Return FedAvg."""
    return playing(FedAvg(), setup_of(draw_model), steps)


def local_training(draw_model: DrawModel, steps: Clients, population: Cohort) -> Playing:
    """Return a model for each of these clients."""
    return playing(LocalTraining(), setup_of(draw_model, population), steps)


def ifca(draw_model: DrawModel, steps: Clients, num_clusters: int = 2) -> Playing:
    """Return IFCA from models that are drawn each by itself."""
    algorithm = Ifca(num_clusters=num_clusters, initialisation="random")
    return playing(algorithm, setup_of(draw_model), steps)


def begun(setup: Setup, steps: Clients, opening: Opening = ALIKE, clusters: int = 2) -> Playing:
    """Return IFCA from one model, that begins in this way."""
    algorithm = Begun(num_clusters=clusters, opens=opening)
    return playing(algorithm, setup, steps)


def ifca_mir(draw_model: DrawModel, steps: Clients, selection: SelectionConfig) -> Playing:
    """Return IFCA-MIR with two clusters, from models drawn each by itself."""
    algorithm = IfcaMir(initialisation="random")
    return playing(algorithm, setup_of(draw_model), steps, selection)


def changed(settings: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """Return settings of which some sections have other keys."""
    merged = {**settings, **sections}
    inside = [key for key in sections if isinstance(settings.get(key), dict)]
    return merged | {key: {**settings[key], **sections[key]} for key in inside}


def rounds_of(run: BuiltRun, count: int) -> Iterator[RoundResult]:
    """Play so many rounds of a run with all its clients."""
    state = run.algorithm.init(run.streams)
    for t in range(count):
        clients = run.clients(run.population.clients, t)
        yield (played := run.algorithm.round(state, clients, run.streams.at("round", t)))
        state = played.state
