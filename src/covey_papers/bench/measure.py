"""The one loop of the bench: play a federation, and hold two red teams to the truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from covey.algorithms import Clients, ServerState, Strategy, targets
from covey.build import (
    BuiltRun,
    Components,
    build_run,
    clients_of,
    compose,
    red_team_of,
)
from covey.config import Config
from covey.data import Examples
from covey.engine import Recipe
from covey.events import RiskMeasured
from covey.membership import (
    DIVERGED,
    MIN_RECORDS,
    RedTeam,
    RiskEstimate,
    Target,
    negative_control,
    positive_control,
    true_risk,
)
from covey_papers.bench.profiler import Clock, Cost, Metered
from covey_papers.bench.scenarios import BenchSet

__all__ = [
    "RANDOM_LABELS",
    "SOURCES",
    "UNSEEN_HALVES",
    "Measured",
    "Row",
    "measured",
]

SOURCES = ("shadow", "federated")

RANDOM_LABELS, UNSEEN_HALVES = "random labels", "unseen halves"
"""The controls' names: the attack must find the first, and must not find the second."""

LEARNT = 100
"""Examples of the positive control; half of them are learnt by heart."""

BY_HEART = Recipe(local_epochs=100, batch_size=10, learning_rate=0.03, momentum=0.9)


@dataclass(frozen=True, slots=True)
class Row:
    """One cluster model at one round: the truth, and what each source said of it.

    Attributes:
        size: examples that the cluster's clients train on.
        matchable: whether the server's pool holds enough to match that.
        truth: risk of the same attack on the real members and matched non-members.
        truth_error: its standard error.
        told: per source, its figure.
    """

    set_name: str
    cluster: int
    size: int
    matchable: bool
    round_index: int
    truth: float
    truth_error: float
    told: Mapping[str, RiskMeasured]


@dataclass(frozen=True, slots=True)
class Measured:
    """One federation's rows, and what its clients and each source cost.

    Attributes:
        costs: of "clients" and of each source.
        looks, rounds: how often the sources looked in how many rounds.
        controls: by name, what the attack shows where the answer is known.
    """

    rows: tuple[Row, ...]
    costs: Mapping[str, Cost]
    looks: int
    rounds: int
    controls: Mapping[str, RiskEstimate]


@dataclass(frozen=True, slots=True, eq=False)
class _Stand:
    """A run, and who looks at it, each with an engine that counts."""

    name: str
    run: BuiltRun
    strategy: Strategy
    clients: Clients
    meters: Mapping[str, Metered]
    attacks: Mapping[str, RedTeam]


def measured(bench: BenchSet, clock: Clock, observe: Callable[[Row], None]) -> Measured:
    """Play one federation, and look at every cluster before the rounds `bench.looks`.

    Both sources see the same states, and nobody acts on what they say.
    """
    stand = _stand(bench, clock)
    run, clients = stand.run, stand.meters["clients"]
    state, rows = stand.strategy.init(run.streams), list[Row]()
    for t in range(max(bench.looks)):
        cohort, streams = run.population.clients, run.streams.at("round", t)
        with clients:
            present = stand.clients.among(cohort)
            state = stand.strategy.play_round(state, present, streams).state
        if state.round_index in bench.looks:
            state, found = _looked(stand, state)
            rows += found
            for row in found:
                observe(row)
    return Measured(
        rows=tuple(rows),
        costs={name: meter.cost for name, meter in stand.meters.items()},
        looks=len(bench.looks),
        rounds=max(bench.looks),
        controls=_controls(stand.run, state),
    )


def _controls(run: BuiltRun, state: ServerState) -> Mapping[str, RiskEstimate]:
    """Attack random labels learnt by heart, and halves of what no model has seen."""
    unseen = Examples.joined(run.reference.by_group)
    streams = run.streams.at("controls")
    few = unseen.take(torch.arange(min(len(unseen), LEARNT)))
    start = run.init(streams)
    halves = {
        f"{UNSEEN_HALVES}, cluster {j}": negative_control(
            run.engine, params, unseen, streams.at(j)
        )
        for j, params in enumerate(state.clusters)
    }
    learnt = positive_control(run.engine, start, BY_HEART, few, streams)
    return {RANDOM_LABELS: learnt, **halves}


def _stand(bench: BenchSet, clock: Clock) -> _Stand:
    """Set up the run with a pool, as shadows need one, and both sources beside it."""
    run = build_run(_with_source(bench, "shadow"))
    meters = {name: Metered(run.engine, clock) for name in ("clients", *SOURCES)}

    blind = _with_source(bench, "none")
    parts = Components(blind, run.population, meters["clients"], run.init)
    strategy = compose(parts)
    start = strategy.init(run.streams).clusters

    def attack(source: str) -> RedTeam | None:
        config = _with_source(bench, source)
        return red_team_of(
            Components(config, run.population, meters[source], run.init), start
        )

    attacks = {name: attack(name) for name in SOURCES}
    known = {name: each for name, each in attacks.items() if each is not None}
    return _Stand(bench.name, run, strategy, clients_of(parts), meters, known)


def _with_source(bench: BenchSet, source: str) -> Config:
    redteam = {**bench.settings.get("redteam", {}), "source": source}
    return Config.of({**bench.settings, "redteam": redteam})


def _looked(stand: _Stand, state: ServerState) -> tuple[ServerState, list[Row]]:
    by_handle = {client.handle: client for client in stand.run.population.clients}
    rows = list[Row]()
    for target in targets(state, by_handle):
        told = dict[str, RiskMeasured]()
        for source, attack in stand.attacks.items():
            streams = stand.run.streams.at("round", target.round_index, "red team")
            with stand.meters[source]:
                seen = replace(target, states=state.states)
                assessment = attack(seen, streams.at(target.cluster))
            told[source] = assessment.finding.event(target.cluster)
            if assessment.state is not None:
                state = state.keeping(assessment.state)
        rows += _row(stand, target, told)
    return state, rows


def _row(stand: _Stand, target: Target, told: Mapping[str, RiskMeasured]) -> list[Row]:
    """Return the row, if there is a truth: of a model that diverged there is none."""
    run, at = stand.run, ("round", target.round_index, "audit", target.cluster)
    truth = true_risk(
        run.engine, target.params, target.members, run.reference, run.streams.at(*at)
    )
    if truth is None or any(each.reason.startswith(DIVERGED) for each in told.values()):
        return []
    size = sum(len(client.train) for client in target.members)
    return [
        Row(
            set_name=stand.name,
            cluster=target.cluster,
            size=size,
            matchable=size + MIN_RECORDS <= len(run.population.pool),
            round_index=target.round_index,
            truth=truth.risk,
            truth_error=truth.standard_error,
            told=told,
        )
    ]
