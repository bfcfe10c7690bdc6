"""Eq. 6 and Conjecture 1, measured: models that a round's anonymity sets allow instead.

A released model M rests on one member r of each anonymity set, its representative. Had another
member i been drawn, under the same noise, the round would have released

    M' = M + p_c / (sum_c p_c) (u_i - u_r)

Both are plausible to whoever sees M and the sets. For an adversary A and records D they are
functionally equivalent if A((x, y), M) = A((x, y), M') for all (x, y) in D (Eq. 6), which
Conjecture 1 has of models with |M - M'| <= epsilon. Here A answers "member" where the loss is
below the threshold that is the most accurate on M, and D are the records of a set's members.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024, 2.4.
    Kong, Roy Chowdhury, Chaudhuri, Forgeability and Membership Inference Attacks, 2022.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy import ndarray

from covey.aggregation.anonymity import HiddenSet
from covey.aggregation.base import mean_per_cluster
from covey.aggregation.server import Models
from covey.algorithms.state import ServerState
from covey.base import events
from covey.base.errors import RunError
from covey.base.history import of_kinds
from covey.base.names import Params
from covey.base.params import add, flatten, model_hash, scale, subtract, trained
from covey.data.examples import Client, Examples
from covey.engine.protocol import Scored, ScoringJob
from covey.membership.attacks import best_threshold, scores_of
from covey.runs.folder import rounds_in
from covey.runs.session import Session, rounds_of
from covey.runs.states import kept_state
from covey.settings.aggregation import hidden_sets
from covey.settings.run import BuiltRun

VIEW = (
    "The operator's view, in a simulation: it has every client's update and records. Who sees the "
    "models and the ledger has neither, and cannot measure this."
)
NOT_SAID = (
    "That answers agree says nothing about whether a client took part, and an attack that is "
    "stronger, or that holds the updates, may distinguish the models."
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A number's middle and its largest value."""

    median: float
    largest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return that of these, of which there is at least one."""
        return cls(float(np.median(values)), float(max(values)))


@dataclass(frozen=True, slots=True)
class PlausibleModels:
    """What an adversary answers to the models that the sets of one round allow.

    Attributes:
        view: who could find this, in words.
        round_index: of the round, the last one whose state before it is there.
        sets: of at least two members.
        alternatives: models M', one for each member that was not the representative of its set.
        records: of all members of these sets.
        equivalent_sets: those on all of whose records no answer to the nearest M' differs.
        differing_nearest: over clients, the share of its records on which the answer to the
            nearest M' of its set is another one than to M, in [0, 1].
        differing_any: the same, of the M' of its set where that is largest.
        distance: over sets, |M - M'| of the nearest M', as a share of how far the round moved
            the model, |M - M_before| (L2).
        not_said: what does not follow.
    """

    view: str
    round_index: int
    sets: int
    alternatives: int
    records: int
    equivalent_sets: int
    differing_nearest: Spread
    differing_any: Spread
    distance: Spread
    not_said: str


@dataclass(frozen=True, slots=True)
class _Alternatives:
    """One set's: each row is one M', from the nearest one on.

    Attributes:
        distances: |M - M'| / |M - M_before|.
        differing: per M' and member, the share of its records.
    """

    distances: ndarray
    differing: ndarray
    records: int


def plausible_models(session: Session) -> PlausibleModels:
    """Play a run's last round again, and compare its models with those that its sets allow.

    Args:
        session: the run, finished and open to be read, with its data.

    Raises:
        RunError: it has no sets, or the round cannot be repeated.
    """
    if session.run.config.secrets.source != "seeded":
        raise RunError(
            "A round must be drawn again from its seed, found secrets.source = 'os': measure a run "
            "with the same settings and secrets.source = 'seeded'."
        )
    state, sets, released = _played_again(session)
    by_cluster: dict[int, list[HiddenSet]] = {}
    for anonymity_set in sets:
        by_cluster.setdefault(anonymity_set.members[0].cluster, []).append(anonymity_set)
    comparisons = [
        alternatives
        for j, own in by_cluster.items()
        for alternatives in _compared(session.run, state.clusters[j], released[j], own)
    ]
    if not comparisons:
        raise RunError(
            "An anonymity set of the last round must have a second member, found none: measure a "
            "run with aggregation.min_anonymity of 2 or more."
        )
    return PlausibleModels(
        view=VIEW,
        round_index=state.round_index,
        sets=len(comparisons),
        alternatives=sum(len(comparison.distances) for comparison in comparisons),
        records=sum(comparison.records for comparison in comparisons),
        equivalent_sets=sum(not comparison.differing[0].any() for comparison in comparisons),
        differing_nearest=Spread.of(
            [share for comparison in comparisons for share in comparison.differing[0]]
        ),
        differing_any=Spread.of(
            [share for comparison in comparisons for share in comparison.differing.max(axis=0)]
        ),
        distance=Spread.of([comparison.distances[0] for comparison in comparisons]),
        not_said=NOT_SAID,
    )


def _played_again(session: Session) -> tuple[ServerState, tuple[HiddenSet, ...], Models]:
    """Return the state before the last round that can be repeated, its sets, and its models."""
    run, record = session.run, session.record
    last = rounds_of(run.config, record.history) - 1
    t = max(s for s in (0, *(r + 1 for r in rounds_in(session.folder.checkpoints))) if s <= last)
    if t == 0:
        state = run.algorithm.init(run.streams)
    else:
        state = kept_state(session.folder, session.ledger, after=t - 1)
    facts = [event for at, event in record.events if at == t]
    handles = next(of_kinds(facts, events.CohortSampled)).handles
    chosen = next(f for f in of_kinds(facts, events.ClientsAssigned) if f.by != "final").clusters
    cohort = tuple(client for client in run.population.clients if client.handle in handles)
    if len(cohort) < len(handles):
        raise RunError(
            f"A round must be replayed with all who took part, found {len(handles) - len(cohort)} "
            f"of round {t + 1} gone: measure a run that nobody left after its last round."
        )
    streams = session.secrets.at_round(t).at("round", t)
    clients = run.clients(cohort, t, recorded={t: chosen})
    clients = replace(clients, steps=replace(clients.steps, stores_updates=True))
    played = run.algorithm.round(state, clients, streams)
    merge, size = streams.at("merge"), len(run.population.clients)
    sets = hidden_sets(run.config, size, state.clusters, played.stored, merge)
    if not sets:
        raise RunError(
            f"The last round must have formed sets, by aggregation.name = 'anonymity-sets', found "
            f"{run.config.aggregation.name!r} and none: measure another."
        )
    released = mean_per_cluster(
        state.clusters, [anonymity_set.released() for anonymity_set in sets], merge
    ).clusters
    recorded = [event.model_hash for event in of_kinds(facts, events.ModelsMerged)]
    if recorded != [model_hash(released)]:
        raise RunError(
            f"Round {t + 1} must come out as recorded when it is played again, found other models, "
            f"as with another engine or version of covey, a server optimizer, pooled models or a "
            f"calibrated round: measure a run without these, where it was played."
        )
    return state, sets, released


def _compared(
    run: BuiltRun, before: Params, released: Params, sets: Sequence[HiddenSet]
) -> Iterator[_Alternatives]:
    """Compare one cluster's model with those that each of its sets allows."""
    clients = {client.handle: client for client in run.population.clients}
    moved = max(_distance(released, before), np.finfo(float).tiny)
    total = sum(anonymity_set.weight for anonymity_set in sets)
    inside = [clients[member.handle] for held in sets for member in held.members]
    threshold = _threshold(run, released, inside)
    for held in sets:
        one = held.members[held.representative].update
        models = [
            add(released, scale(subtract(member.update, one), held.weight / total))
            for i, member in enumerate(held.members)
            if i != held.representative
        ]
        if not models:
            continue
        records = [clients[member.handle].train for member in held.members]
        together = Examples.joined(records)
        jobs = [ScoringJob(model, together) for model in (released, *models)]
        answers = np.stack([_scores(scored) >= threshold for scored in run.engine.score(jobs)])
        differs = np.split(answers[1:] != answers[0], np.cumsum([*map(len, records)])[:-1], axis=1)
        distances = np.array([_distance(released, model) for model in models]) / moved
        order = np.argsort(distances, kind="stable")
        shares = np.stack([differences.mean(axis=1) for differences in differs], axis=1)
        yield _Alternatives(distances[order], shares[order], len(together))


def _threshold(run: BuiltRun, model: Params, members: Sequence[Client]) -> float:
    """Return the score from which on "member" is the most accurate answer on this model."""
    population = run.population
    groups = {client.group or 0 for client in members}
    by_group = (enumerate(examples) for examples in (population.non_members, population.test))
    others = [examples for g, examples in chain.from_iterable(by_group) if g in groups]
    others = [
        examples for examples in (*others, *(client.holdout for client in members)) if len(examples)
    ]
    if not others:
        raise RunError(
            "A threshold must have records that nobody trained on, found none: reserve some by "
            "population.audit_examples or population.holdout."
        )
    jobs = (Examples.joined([client.train for client in members]), Examples.joined(others))
    inside, outside = run.engine.score([ScoringJob(model, job) for job in jobs])
    return best_threshold(_scores(inside), _scores(outside))


def _scores(scored: Scored) -> ndarray:
    return scores_of(scored.losses.double().numpy())


def _distance(left: Params, right: Params) -> float:
    return float(flatten(trained(subtract(left, right))).double().norm())
