"""The truth about a cluster model, from its real members: only simulations know it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray

from covey.data.examples import Client, Examples, to_floats
from covey.engine.protocol import Engine, ScoringJob
from covey.engine.scored_once import ScoredOnce
from covey.events import ClusterAudited
from covey.membership.attacks import auc, cross_fitted, scores_of
from covey.membership.blind import blind_baseline
from covey.membership.copies import copied
from covey.membership.estimates import (
    DIVERGED,
    MIN_RECORDS,
    RiskEstimate,
    estimate_of,
    stratified,
)
from covey.membership.extremes import Extremes, extremes_of
from covey.rng import Streams
from covey.types import Params

__all__ = [
    "Membership",
    "Reference",
    "audit_clusters",
    "blind_risk",
    "true_risk",
    "without_estimate",
]


NEIGHBOURS = 10
"""Nearest inputs that a class is compared with; each side has as many records at least."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Non-members to compare with: per group, or else the members' own holdouts."""

    by_group: tuple[Examples, ...]

    def matching(self, group: int | None, clients: Sequence[Client]) -> list[Examples]:
        """Return the non-members that match these clients, who share a group."""
        if self.by_group and group is not None:
            return [self.by_group[group]]
        return [client.holdout for client in clients if len(client.holdout)]


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """Whose records a cluster model may remember.

    Attributes:
        chosen: per cluster, the clients that use it at the end.
        trained: per cluster, the clients that ever trained it.
        pooled: per cluster, the clients whose examples reached it by pooling alone.
    """

    chosen: tuple[tuple[Client, ...], ...]
    trained: tuple[tuple[Client, ...], ...]
    pooled: tuple[tuple[Client, ...], ...]


def true_risk(
    engine: Engine,
    params: Params,
    members: Sequence[Client],
    reference: Reference,
    streams: Streams,
) -> RiskEstimate | None:
    """Attack all that these clients trained on against matching non-members.

    A loss threshold, cross-fitted within each group of clients. None where no group has
    enough records on both sides.
    """
    strata: list[RiskEstimate] = []
    for group, clients in _by_group(members).items():
        inside = _scores(engine, params, [client.train for client in clients])
        outside = _scores(engine, params, reference.matching(group, clients))
        if min(len(inside), len(outside)) >= MIN_RECORDS:
            generator = streams.at("folds", str(group)).generator()
            rates = cross_fitted(inside, outside, generator)
            strata.append(estimate_of(rates, auc(inside, outside)))
    return stratified(strata)


def blind_risk(
    members: Sequence[Client], reference: Reference, streams: Streams
) -> RiskEstimate | None:
    """Attack the same records, group by group, without any model."""
    strata: list[RiskEstimate] = []
    for group, clients in _by_group(members).items():
        generator = streams.at("blind", str(group)).generator()
        sides = [client.train for client in clients], reference.matching(group, clients)
        if min(sum(map(len, side)) for side in sides) >= MIN_RECORDS:
            inside, outside = (_some(side, generator) for side in sides)
            rows = _features(Examples.joined([inside, outside]))
            halves = rows[: len(inside)], rows[len(inside) :]
            strata.append(estimate_of(*blind_baseline(*halves, generator)))
    return stratified(strata)


def audit_clusters(
    engine: Engine,
    clusters: Sequence[Params],
    membership: Membership,
    reference: Reference,
    streams: Streams,
) -> tuple[ClusterAudited, ...]:
    """Audit every final cluster model; refuse the figure where the sides do not match."""

    def audit(j: int, params: Params) -> ClusterAudited:
        at, scorer = streams.at("cluster", j), ScoredOnce(engine)
        chosen, trained = membership.chosen[j], membership.trained[j]
        figure = true_risk(scorer, params, chosen, reference, at)
        same = trained == chosen  # nobody came or left: one attack answers both
        exposed = figure if same else true_risk(scorer, params, trained, reference, at)
        judged = tuple(dict.fromkeys((*chosen, *trained)))
        blind = blind_risk(judged, reference, at)
        refused = mismatch(judged, reference, blind)
        shown = None if refused else figure
        traced = _traced(scorer, params, membership.pooled[j], reference, at)
        most = _extremes(scorer, params, chosen, reference)
        return ClusterAudited(
            cluster=j,
            clients=len(chosen),
            true_risk=shown and shown.risk,
            standard_error=shown and shown.standard_error,
            auc=shown and shown.auc,
            exposed_risk=None if refused or exposed is None else exposed.risk,
            blind_auc=blind and blind.auc,
            reason=refused or _reason(figure),
            traced_risk=None if refused else traced,
            **({} if shown is None or most is None else most._asdict()),
        )

    return tuple(audit(j, params) for j, params in enumerate(clusters))


def _extremes(
    engine: Engine, params: Params, members: Sequence[Client], reference: Reference
) -> Extremes | None:
    inside = [_scores(engine, params, [client.train]) for client in members]
    outside = [
        _scores(engine, params, reference.matching(group, clients))
        for group, clients in _by_group(members).items()
    ]
    return extremes_of(inside, np.concatenate(outside)) if outside else None


def without_estimate(audit: ClusterAudited, reason: str) -> ClusterAudited:
    """Return what is left of an audit whose model diverged: who is in it, and why."""
    return ClusterAudited(
        audit.cluster, audit.clients, *[None] * 5, reason=f"{DIVERGED}: {reason}"
    )


def _traced(
    engine: Engine,
    params: Params,
    clients: Sequence[Client],
    reference: Reference,
    streams: Streams,
) -> float | None:
    """Attack clients that never trained the model; their sides must match by themselves.

    Judged together with those who did train it, a mismatch of either would be diluted.
    """
    if mismatch(clients, reference, blind_risk(clients, reference, streams)):
        return None
    figure = true_risk(engine, params, clients, reference, streams)
    return figure and figure.risk


def mismatch(
    members: Sequence[Client], reference: Reference, blind: RiskEstimate | None
) -> str:
    """Say why no attack on these sides may be believed; "" if nothing shows that."""
    others = [
        each
        for group, clients in _by_group(members).items()
        for each in reference.matching(group, clients)
    ]
    if why := copied([client.train for client in members], others):
        return f"refused: {why}"
    return refusal_reason(blind) if blind is not None and beats_chance(blind) else ""


def refusal_reason(blind: RiskEstimate) -> str:
    """Say that a classifier which never sees the model tells the sides apart."""
    return (
        f"refused: a classifier that never sees the model tells members from "
        f"non-members with accuracy {blind.risk:.3f} +- {blind.standard_error:.3f}, "
        f"so the non-members do not match the members"
    )


def _reason(figure: RiskEstimate | None) -> str:
    if figure is None:
        return (
            f"no figure: fewer than {MIN_RECORDS} member or non-member records in every "
            f"group"
        )
    sides = f"{figure.members} members against {figure.non_members} matched non-members"
    if figure.risk - 0.5 < 2 * figure.standard_error:
        return f"{sides}: no membership signal (within 2 SE of 0.5)"
    return f"{sides}: members can be told apart"


def beats_chance(blind: RiskEstimate) -> bool:
    """Say whether the sides differ: accuracy above 0.5 by 3 SE and by 0.02."""
    excess = blind.risk - 0.5
    return excess > 3 * blind.standard_error and excess > 0.02


def _by_group(clients: Sequence[Client]) -> Mapping[int | None, list[Client]]:
    groups: dict[int | None, list[Client]] = {}
    for client in clients:
        groups.setdefault(client.group, []).append(client)
    return groups


def _scores(engine: Engine, params: Params, sets: Sequence[Examples]) -> ndarray:
    scored = engine.score([ScoringJob(params, examples) for examples in sets])
    losses = [each.losses.double().numpy() for each in scored]
    return scores_of(np.concatenate(losses)) if losses else np.empty(0)


def _some(sets: Sequence[Examples], generator: np.random.Generator) -> Examples:
    """Return up to 1,000 random examples: more only sharpen the verdict."""
    everything = Examples.joined(sets)
    order = generator.permutation(len(everything))[:1000]
    return everything.take(torch.from_numpy(order))


def _features(examples: Examples) -> ndarray:
    """Return examples as rows, inputs beside labels: sides may differ in either.

    Beside a class stands how many of the nearest other inputs share it, few where labels
    are wrong; both are repeated until they are as many columns as the inputs, of which
    trees see a random part. A number stands there times the inputs, too: their mean is
    what a linear model would learn.
    """
    inputs = to_floats(examples.inputs).float().flatten(1)  # ids count as numbers here
    labels = examples.labels
    if labels.dim() == 2:
        labels = labels.float()
    elif labels.is_floating_point():
        labels = torch.cat([labels[:, None], labels[:, None] * inputs], dim=1)
    else:
        away = torch.cdist(inputs, inputs).fill_diagonal_(torch.inf)
        near = labels[away.topk(NEIGHBOURS, largest=False).indices]
        shared = (near == labels[:, None]).float().mean(dim=1, keepdim=True)
        classes = torch.nn.functional.one_hot(labels.unique(return_inverse=True)[1])
        labels = torch.cat([classes, shared], dim=1)
        labels = labels.repeat(1, math.ceil(inputs.shape[1] / labels.shape[1]))
    return torch.cat([inputs, labels], dim=1).numpy()
