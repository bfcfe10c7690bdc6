"""The true membership risk of a cluster model, from its real members: in simulations alone.

The risk of a model that diverged, or that answers no better than a guess, is unknown: an attack
on it finds nothing because the model learnt nothing, which must not be read as privacy.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Real
from numpy import ndarray
from torch import Tensor

from covey.base.built_ins import LOSS
from covey.base.component_state import ComponentState, States
from covey.base.events import ClusterAudited
from covey.base.figure import RiskEstimate
from covey.base.names import Handle, Params
from covey.base.params import not_finite
from covey.base.rng import Streams
from covey.data.examples import MASKED, Client, Examples, to_floats
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.attacks import cross_fitted, scores_of
from covey.membership.controls import blind_baseline, copied
from covey.membership.intervals import MIN_RECORDS, Sides, stratified, with_extremes

Profile = tuple[tuple[int, int], ...]
"""The (group, number of examples) of each client of a cluster, sorted."""


Counts = Real[ndarray, "folds bins"]


MAX_EXAMPLES = 2_000
"""Examples that a model is judged on, evenly spaced, and at least one per client."""

ROUNDING = 1e-4
"""Share of a loss by which single precision may understate it."""

EXPLODED = 3.0
"""So often the loss of guessing, a model in the middle of a run has diverged."""

STALLED = "diverged: no update of its clients was finite, so all were refused"
"""Why a model that did not move is none."""

NEIGHBOURS = 10
"""Nearest inputs that a class is compared with; each side has as many records at least."""

FEW = f"fewer than {MIN_RECORDS} member or non-member records in every group"

APART = "members can be distinguished"


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One cluster model under attack, before the round `round_index`.

    Attributes:
        members: the clients whose latest choice is this cluster.
        states: what components have kept, an estimator its own (`covey.get_state`).
        diverged: why the model is known to be none; "" where it is not.
        counts: what its members count (`Count`), where they are known already.
    """

    cluster: int
    params: Params
    members: tuple[Client, ...]
    round_index: int
    states: States = field(default_factory=dict[str, object])
    diverged: str = ""
    counts: tuple[Counts, Counts] | None = None


class Assessment(NamedTuple):
    """The risk of one cluster's model, and what to keep for the next time, if anything."""

    estimate: RiskEstimate
    state: ComponentState | None = None


RedTeam = Callable[[Target, Streams], Assessment]
"""Looks at one cluster model."""

SelfAssessment = Callable[
    [tuple[Params, ...], Sequence[Client], Streams], dict[Handle, list[RiskEstimate | None]]
]
"""What each client finds of each model that it receives, on its own side."""


@dataclass(frozen=True, slots=True)
class ConstantPredictor:
    """The best answer that looks at no input, on some examples.

    Attributes:
        loss: its mean loss, in nats; no other constant answer has a lower one.
        accuracy: of the best constant prediction; None where nothing is right or wrong.
    """

    loss: float
    accuracy: float | None


def best_constant(labels: Tensor, *, tokens: bool = False) -> ConstantPredictor | None:
    """Return the best constant answer; None where it is perfect, and no model beats it.

    One class:       loss = H(p) = -sum_c p_c ln p_c,     accuracy = max_c p_c
    Several labels:  the means over labels l of H(p_l) and of max(p_l, 1 - p_l)
    A number:        loss = Var(y) / 2, at the mean
    Tokens:          as one class, p_c the mean over examples of the share of c among their
                     tokens that are not masked

    p are the shares among these very labels, so that the constant is fitted to what it is
    judged on: any answer without a look at the input has at least this loss.
    """
    y = labels.double()
    if not len(y):
        return None
    if labels.is_floating_point():
        loss, accuracy = float(y.var(correction=0)) / 2, None
    elif tokens or labels.dim() == 1:
        known = (labels if tokens else labels[:, None]) != MASKED
        weights = known.double() / known.sum(dim=1, keepdim=True)
        shares = torch.bincount(labels.view(known.shape)[known], weights[known]) / len(labels)
        loss, accuracy = float(torch.special.entr(shares).sum()), float(shares.max())
    else:
        ones = y.mean(dim=0)
        both = torch.stack([ones, 1 - ones])
        loss = float(torch.special.entr(both).sum(dim=0).mean())
        accuracy = float(both.amax(dim=0).mean())
    return ConstantPredictor(loss, accuracy) if loss > 0 else None


def no_better_than_guessing(
    engine: Engine,
    params: Params,
    clients: Sequence[Client],
    times: float = 1.0,
    examples_name: str = "its clients' examples",
) -> str:
    """Say why a model is no better than a guess on these clients' examples; "" if it may be.

    The answer goes on after "the model": it predicts the majority class, if it is right on
    that class and on no other example; it diverged, if its loss is EXPLODED times loss* or
    not finite; else it is no better than guessing.

    It is no better if its mean loss is not below the best constant's and, where answers
    are right or wrong, its accuracy is not clearly above the best constant's:

        mean loss >= loss*
        accuracy <= a* + max(2 sqrt(a* (1 - a*) / n), (1 - a*) / 10)

    Both, so that a model whose losses are badly scaled but whose answers are right stays
    a model, and so does one that is right no more often but is better calibrated. The
    examples are those it trains on: where it has learnt anything, it shows here. a* (1 -
    a*) bounds the variance of any share in [0, 1] with this mean, so the 2 SE hold for
    several labels as well. The tenth of the way to perfect is what random weights may
    reach by luck, on however many examples. Where the best constant is perfect this cannot
    be decided: "".

    Args:
        engine: scores, and draws nothing.
        params: the model.
        clients: who trains it; only examples that are finite are looked at.
        times: how often loss* the mean loss must be, at least. Above 1 it separates models
            that diverged from those that have not learnt anything yet, which are near
            loss*; numbers, whose loss at the start has no scale, are then not judged.
        examples_name: what the examples are called in the answer.
    """
    examples = _sample([c.train for c in clients if has_finite_examples(c)])
    if examples is None or (times > 1 and examples.labels.is_floating_point()):
        return ""
    (scored,) = engine.score([ScoringJob(params, examples)])
    constant = best_constant(examples.labels, tokens=scored.num_tokens is not None)
    if constant is None:
        return ""
    loss, n = float(scored.losses.double().mean()), len(examples)
    if loss < times * constant.loss * (1 - ROUNDING):
        return ""
    size = f"of {loss:.3g} nats" if math.isfinite(loss) else "that is not finite"
    reason = f"on {n} of {examples_name} a mean loss {size}, and {constant.loss:.3g} without inputs"
    if scored.correct is not None and constant.accuracy is not None:
        accuracy, a = float(scored.correct.double().mean()), constant.accuracy
        if accuracy > a + max(2 * math.sqrt(a * (1 - a) / n), (1 - a) / 10):
            return ""
        reason += f"; an accuracy of {accuracy:.3f}, and {a:.3f} without inputs"
    if math.isfinite(loss) and _is_right_on_one_class(scored.correct, examples.labels):
        return f"predicts the majority class: {reason}"
    if not loss < EXPLODED * constant.loss:
        return f"diverged: {reason}"
    return f"is no better than guessing: {reason}"


def _is_right_on_one_class(correct: Tensor | None, labels: Tensor) -> bool:
    """Say whether a classifier is right on the most frequent class, and on no other example."""
    if correct is None or labels.dim() != 1 or correct.shape != labels.shape:
        return False
    return torch.equal(correct.bool(), labels == labels.mode().values)


def has_non_finite_values(params: Params) -> str:
    """Say which numbers of a model are not finite, as "diverged: ..."; "" if all are."""
    entry = not_finite(params)
    return f"diverged: numbers in its {entry} are not finite" if entry else ""


def divergence(engine: Engine, target: Target, start: Sequence[Params], rounds: int) -> str:
    """Say why a cluster model is none; "" if it is one.

    While a run goes on, a model may be near guessing because it has not learnt anything
    yet; at its end there is no yet.

    Args:
        engine: scores, and draws nothing.
        target: the model.
        start: the models that the run begins with. One that no client has moved since has
            not diverged.
        rounds: of the run.
    """
    known = target.diverged or has_non_finite_values(target.params)
    if known or _same(target.params, start[target.cluster]):
        return known
    times = 1.0 if target.round_index >= rounds else EXPLODED
    return no_better_than_guessing(engine, target.params, target.members, times)


def has_finite_examples(client: Client) -> bool:
    """Say whether no input and no label of a client is NaN or infinite.

    Whatever a model answers to others says nothing about the model.
    """
    return all(
        bool(torch.isfinite(values).all())
        for side in (client.train, client.holdout)
        for values in (side.inputs, side.labels)
        if values.is_floating_point()
    )


def _same(left: Params, right: Params) -> bool:
    return all(torch.equal(value, right[name]) for name, value in left.items())


def _sample(sets: Sequence[Examples]) -> Examples | None:
    """Return evenly spaced examples of all sets; None if there are none."""
    step = max(1, math.ceil(sum(map(len, sets)) / MAX_EXAMPLES))
    examples_of = [
        examples.take(torch.arange(0, len(examples), step)) for examples in sets if len(examples)
    ]
    return Examples.joined(examples_of) if examples_of else None


@dataclass(frozen=True, slots=True, eq=False)
class NonMembers:
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
    reference: NonMembers,
    streams: Streams,
) -> RiskEstimate:
    """Attack all that these clients trained on against matching non-members.

    A loss threshold, cross-fitted within each group of clients. Unknown where no group has
    enough records on both sides.
    """
    strata: list[RiskEstimate] = []
    for group, clients in _by_group(members).items():
        inside = _scores(engine, params, [client.train for client in clients])
        outside = _scores(engine, params, reference.matching(group, clients))
        if min(len(inside), len(outside)) >= MIN_RECORDS:
            generator = streams.at("folds", str(group)).generator()
            strata.append(cross_fitted(inside, outside, generator))
    estimate = stratified(strata)
    if estimate is None:
        return RiskEstimate.unknown(FEW, LOSS)
    is_coin = estimate.risk - 0.5 < 2 * estimate.standard_error
    verdict = "no membership signal (within 2 SE of 0.5)" if is_coin else APART
    sides = f"{estimate.members} members against {estimate.non_members} matched non-members"
    return replace(estimate, source=LOSS, rests_on=f"{sides}: {verdict}")


def blind_risk(
    members: Sequence[Client], reference: NonMembers, streams: Streams
) -> RiskEstimate | None:
    """Attack the same records, group by group, without any model."""
    strata: list[RiskEstimate] = []
    for group, clients in _by_group(members).items():
        generator = streams.at("blind", str(group)).generator()
        sides = [client.train for client in clients], reference.matching(group, clients)
        if min(sum(map(len, side)) for side in sides) >= MIN_RECORDS:
            inside, outside = (_even_sample(side, generator) for side in sides)
            rows = _features(Examples.joined([inside, outside]))
            halves = rows[: len(inside)], rows[len(inside) :]
            strata.append(blind_baseline(*halves, generator))
    return stratified(strata)


def audit_clusters(
    engine: Engine,
    clusters: Sequence[Params],
    membership: Membership,
    reference: NonMembers,
    streams: Streams,
    diverged: Mapping[int, str] | None = None,
) -> tuple[ClusterAudited, ...]:
    """Audit every final cluster model; refuse the figure where the sides do not match.

    Args:
        engine: scores, and keeps what it found: records are asked for more than once.
        clusters: the models.
        membership: whose records they may remember.
        reference: non-members.
        streams: of the audit.
        diverged: why a model is none, by cluster: of it nothing is known.
    """

    def audit(j: int, params: Params) -> ClusterAudited:
        at = streams.at("cluster", j)
        chosen, trained = membership.chosen[j], membership.trained[j]
        if diverged and j in diverged:
            none = RiskEstimate.of_diverged(diverged[j], LOSS)
            return ClusterAudited(j, none, none.figure, none.figure)
        judged = tuple(dict.fromkeys((*chosen, *trained)))
        blind = blind_risk(judged, reference, at)
        # clients that never trained it: beside those that did, a mismatch would be diluted
        pooled = membership.pooled[j]
        refused = mismatch(pooled, reference, blind_risk(pooled, reference, at))
        traced = RiskEstimate.unknown(refused)
        if not refused:
            traced = true_risk(engine, params, pooled, reference, at)
        if refused := mismatch(judged, reference, blind):
            truth = exposed = traced = RiskEstimate.unknown(refused, LOSS)
        else:
            truth = true_risk(engine, params, chosen, reference, at)
            same = trained == chosen  # no client came or left: one attack answers both
            exposed = truth if same else true_risk(engine, params, trained, reference, at)
        if truth.is_known:
            inside = [_scores(engine, params, [client.train]) for client in chosen]
            outside = [
                _scores(engine, params, reference.matching(group, clients))
                for group, clients in _by_group(chosen).items()
            ]
            truth = with_extremes(truth, inside, np.concatenate(outside))
        return ClusterAudited(j, truth, exposed.figure, traced.figure, blind and blind.auc)

    return tuple(audit(j, params) for j, params in enumerate(clusters))


def mismatch(members: Sequence[Client], reference: NonMembers, blind: RiskEstimate | None) -> str:
    """Say why no attack on these sides may be believed; "" if nothing shows that."""
    others = [
        client
        for group, clients in _by_group(members).items()
        for client in reference.matching(group, clients)
    ]
    if why := copied([client.train for client in members], others):
        return f"refused: {why}"
    return refusal_reason(blind) if blind is not None and beats_chance(blind) else ""


def refusal_reason(blind: RiskEstimate) -> str:
    """Say that a classifier which never sees the model separates the sides."""
    return (
        f"refused: a classifier that never sees the model distinguishes members "
        f"from non-members with accuracy {blind.risk:.3f} +- {blind.standard_error:.3f}, "
        f"so the non-members do not match the members"
    )


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
    losses = [row.losses.double().numpy() for row in scored]
    return scores_of(np.concatenate(losses)) if losses else np.empty(0)


def _even_sample(sets: Sequence[Examples], generator: np.random.Generator) -> Examples:
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


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """One group's share of a cluster, as an audit sees it.

    Attributes:
        candidates: as many members as non-members, members first: who is judged.
        suspects: per candidate, the place of the client that holds it; of a non-member,
            the place of one that does not, as often as for members.
        background: the members that found no partner among the non-members: trained
            on by every reference, so that it is as large as the cluster.
        sizes: how many examples each client trains on.
    """

    group: int | None
    candidates: Examples
    suspects: Int[ndarray, " candidates"]
    background: Examples
    sizes: tuple[int, ...]

    @property
    def pairs(self) -> int:
        """How many members, and how many non-members, are judged."""
        return len(self.candidates) // 2


def strata_of(
    clients: Sequence[Client], reference: NonMembers, streams: Streams
) -> tuple[Stratum, ...]:
    """Pair the clients' members with non-members of their own group.

    Groups may share non-members that differ in their transform only: each image then
    serves one group, in proportion to the groups' members.
    """
    members = sum(len(client.train) for client in clients)
    groups = dict.fromkeys(client.group for client in clients)
    # the groups share the non-members, one image under each transform
    shared = len(reference.by_group[0]) if reference.by_group else 0
    order = torch.from_numpy(streams.at("non-members").generator().permutation(shared))
    strata: list[Stratum] = []
    used = 0
    for group in sorted(groups, key=lambda group: group or 0):
        places = [i for i, client in enumerate(clients) if client.group == group]
        matching = reference.matching(group, [clients[i] for i in places])
        others = Examples.joined(matching or [clients[places[0]].train.first(0)])
        if len(order) and group is not None:
            own = sum(len(clients[i].train) for i in places)
            share = len(order) * own // members
            others = others.take(order[used : used + share])
            used += share
        generator = streams.at("pairs", str(group)).generator()
        strata.append(_stratum(clients, places, others, generator))
    return tuple(strata)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of all strata, one stratum after the other.

    Attributes:
        stratum: the place of each candidate's group in `strata`.
    """

    strata: tuple[Stratum, ...]
    examples: Examples
    suspects: Int[ndarray, " records"]
    stratum: Int[ndarray, " records"]
    member: Bool[ndarray, " records"]

    @classmethod
    def of(cls, strata: Sequence[Stratum]) -> "Candidates | None":
        """Return the candidates; None if no group has enough on each side."""
        enough = tuple(stratum for stratum in strata if stratum.pairs >= MIN_RECORDS)
        if not enough:
            return None
        pairs = [stratum.pairs for stratum in enough]
        return cls(
            strata=enough,
            examples=Examples.joined([stratum.candidates for stratum in enough]),
            suspects=np.concatenate([stratum.suspects for stratum in enough]),
            stratum=np.repeat(np.arange(len(enough)), 2 * np.array(pairs)),
            member=np.concatenate([np.arange(2 * n) < n for n in pairs]),
        )

    @property
    def labels(self) -> Int[ndarray, " records"]:
        """The classes."""
        return self.examples.labels.numpy()

    def sides(
        self, scores: Float[ndarray, " records"], among: Bool[ndarray, " records"]
    ) -> list[Sides]:
        """Return, per stratum, the scores of members and of non-members among these."""
        chosen = [among & (self.stratum == s) for s in range(len(self.strata))]
        return [(scores[c & self.member], scores[c & ~self.member]) for c in chosen]


def _stratum(
    clients: Sequence[Client],
    places: Sequence[int],
    others: Examples,
    generator: np.random.Generator,
) -> Stratum:
    sizes = tuple(len(clients[i].train) for i in places)
    members = Examples.joined([clients[i].train for i in places])
    owners = np.repeat(places, sizes)
    order = generator.permutation(len(members))
    pairs = min(len(members), len(others))
    judged, rest = order[:pairs], order[pairs:]
    drawn = torch.from_numpy(generator.permutation(len(others))[:pairs])
    inside = members.take(torch.from_numpy(judged))
    return Stratum(
        group=clients[places[0]].group,
        candidates=Examples.joined([inside, others.take(drawn)]),
        suspects=np.tile(owners[judged], 2),
        background=members.take(torch.from_numpy(rest)),
        sizes=sizes,
    )
