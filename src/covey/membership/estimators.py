"""Estimators of membership risk: from clients' counts, by the clients, from the truth, or none.

The federated red team needs counts alone. Every client scores its own members and its own holdout
with the cluster model, and sends how many losses fell between agreed thresholds, split at random
into a few folds. The server adds the counts of all clients but those that differ too much from
most.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from covey.base.built_ins import component
from covey.base.components import Component, Positive
from covey.base.figure import RiskEstimate
from covey.base.names import Handle, Params
from covey.base.rng import Draws, Streams
from covey.data.examples import Client, Examples, ShiftRange
from covey.engine.protocol import Engine, ScoringJob
from covey.engine.recipe import Recipe
from covey.membership.attacks import cross_fitted, folds, scores_of
from covey.membership.controls import copied
from covey.membership.intervals import MIN_RECORDS, stratified
from covey.membership.references import PlayRound
from covey.membership.truth import Assessment, Counts, NonMembers, Profile, Target, true_risk
from covey.secure_sums.noise import NoiseShares, Numbers
from covey.secure_sums.server import secure_sum

CountFunction = Callable[[Target, Streams], tuple[Counts, Counts]]
"""What members count (`combined_counts`): of their training and held-out losses."""

FEWEST_REPORTING = 5
"""Remote clients that must report: of fewer, one that lies decides the figure."""

CountAll = Callable[[Sequence[Target], Callable[[int], Streams]], Sequence[tuple[Counts, Counts]]]
"""The same of several clusters at once, each with the streams of its own."""


FOLDS = 5

EDGES = np.geomspace(1e-6, 20.0, 80)
"""The agreed thresholds, in nats: over-fitted members differ by orders of magnitude."""

LARGEST = 5
"""A client counts as so many times the median of the clients' examples at most."""

FENCE = 4.0
"""Standard deviations from the median at which a client's own AUC is left out."""

MIN_TO_COMPARE = 3
"""Clients from which on they are compared."""

SHAPE = FOLDS, len(EDGES) + 1

COUNTS_NORM = math.sqrt(2)
"""What a client's counts have at most where each side of them adds up to 1."""


@dataclass(frozen=True, slots=True, eq=False)
class RiskContext:
    """What an estimator may use beside the model that it looks at.

    On a client there is the engine alone.

    Attributes:
        engine: scores examples, and trains.
        count: how members count their own losses; None: their examples are at hand.
        shares: the noise that they add to their counts; None: none.
        reference: matched non-members, which only a simulation has.
        pool: the server's own examples, not shifted, disjoint from every client's.
        shifts: per group, how its inputs differ from the pool's.
        start: per cluster, the model that the run began with.
        init: draws a fresh model.
        recipe: how a client trains in the round of this index.
        play_round: the round of this index, by the run's own recipe, over any data sets.
        streams: the server's own, independent of the clients'.
        population_profile: the profile of the whole population.
        shared_rounds: how many rounds everybody played together at first (warm start).
    """

    engine: Engine
    count: CountFunction | None = None
    shares: NoiseShares | None = None
    reference: NonMembers = field(default_factory=lambda: NonMembers(()))
    pool: Examples = field(
        default_factory=lambda: Examples(torch.empty(0), torch.empty(0, dtype=torch.int64))
    )
    shifts: tuple[ShiftRange, ...] = ()
    start: tuple[Params, ...] = ()
    init: Callable[[Streams], Params] = lambda _: {}
    recipe: Callable[[int], Recipe] = lambda _: Recipe()
    play_round: PlayRound = lambda _, params, __, ___: params
    streams: Streams = field(default_factory=lambda: Streams(0))
    population_profile: Profile = ()
    shared_rounds: int = 0

    def losses(self, params: Params, sets: Sequence[Examples]) -> list[ndarray]:
        """Return a model's loss on every example, set by set, in nats."""
        scored = self.engine.score([ScoringJob(params, examples) for examples in sets])
        return [row.losses.double().numpy() for row in scored]


class RiskEstimator(Component):
    """Measures how well members of a cluster model can be separated from non-members.

    Your own is a subclass with one method, here with one option:

    >>> class LossGap(RiskEstimator):
    ...     slope: float = 0.1
    ...
    ...     def estimate(self, target, context, streams):
    ...         inside, outside = [
    ...             np.concatenate(context.losses(target.params, sets)).mean()
    ...             for sets in zip(*((c.train, c.holdout) for c in target.members))
    ...         ]
    ...         gap = outside - inside
    ...         return RiskEstimate(Figure(0.5 + self.slope * gap, error=0.05))

    Name it in `[risk] name = "package.module:LossGap"`, with `slope` beside it, or pass
    it: `covey.Config(risk=LossGap(slope=0.2))`.

    Attributes:
        on_clients: whether every client measures for itself, and reports nothing: then each
            target has that one client as its member.
        counts: whether it takes what members count of each model: remote ones are then
            called with all models at once.
        note: what a reader of the results must know of it.
        measures: whether it measures anything.
        needs_client_data: whether it looks at every client's examples, which remote clients
            do not show.
        needs_holdout: whether clients must hold examples out.
        needs_pool: whether the server must have examples like the clients', of classes, and
            know all clients from the start.
        every: rounds between two measurements; a figure expires after twice as long.
    """

    measures: ClassVar[bool] = True
    needs_client_data: ClassVar[bool] = True
    needs_holdout: ClassVar[bool] = False
    needs_pool: ClassVar[bool] = False
    on_clients: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    note: ClassVar[str] = ""

    every: Positive = 5

    def estimate(self, target: Target, context: RiskContext, streams: Streams) -> RiskEstimate:
        """Return the risk of one cluster model, or why there is no estimate.

        Args:
            target: the model, its members, and the round before which it is measured.
            context: what there is to measure with.
            streams: all randomness, of this cluster and round.
        """
        raise NotImplementedError

    def assess(self, target: Target, context: RiskContext, streams: Streams) -> Assessment:
        """Return what was found, and what to keep for the next time.

        An estimator that remembers anything overrides this instead: it finds a
        `ComponentState` of its own by `covey.get_state(target.states, ...)`.
        """
        return Assessment(self.estimate(target, context, streams))

    def judge(
        self,
        models: tuple[Params, ...],
        cohort: Sequence[Client],
        context: RiskContext,
        streams: Streams,
    ) -> dict[Handle, list[RiskEstimate | None]]:
        """Return what each client finds of each model, where clients measure."""

        def found(client: Client, j: int) -> RiskEstimate | None:
            target = Target(j, models[j], (client,), 0)
            at = streams.at("own risk", client.name).at(j)
            finding = self.estimate(target, context, at)
            return finding if finding.is_known else None

        return {c.handle: [found(c, j) for j in range(len(models))] for c in cohort}


def combined_counts(inside: Sequence[Counts], outside: Sequence[Counts]) -> tuple[Counts, Counts]:
    """Return the sums of clients' counts, of members and of held-out examples.

    Left out is who is further than 4 max(s_i, s) from the median of the clients' own AUCs;
    s_i^2 = (m + n + 1) / (12 m n) with its m members and n held-out examples, and s is
    1.4826 times the median distance. A client with more than 5 times the median of all
    examples counts as having so many. Where no client does, these are plain sums.
    """
    if not inside:
        nothing = np.zeros((1, 1), dtype=np.int64)
        return nothing, nothing
    usual = _usual(inside, outside)
    pairs = [(inside[i], outside[i]) for i in usual]
    sizes = [int(a.sum() + b.sum()) for a, b in pairs]
    most = LARGEST * int(np.median(sizes)) if len(sizes) >= MIN_TO_COMPARE else max(sizes)
    shares = [
        (a, b) if size <= most else (a * most // size, b * most // size)
        for (a, b), size in zip(pairs, sizes, strict=True)
    ]
    return (np.sum([a for a, _ in shares], axis=0), np.sum([b for _, b in shares], axis=0))


def _usual(inside: Sequence[Counts], outside: Sequence[Counts]) -> list[int]:
    """Return the places of the clients whose own AUC is not far from most."""
    both = [i for i, a in enumerate(inside) if a.sum() and outside[i].sum()]
    if len(both) < MIN_TO_COMPARE:
        return list(range(len(inside)))
    aucs = np.array([auc_of_counts(inside[i], outside[i]) for i in both])
    away = np.abs(aucs - np.median(aucs))
    spread = 1.4826 * np.median(away)
    sizes = [(float(inside[i].sum()), float(outside[i].sum())) for i in both]
    errors = np.array([(m + n + 1) / (12 * m * n) for m, n in sizes])
    far = away > FENCE * np.maximum(np.sqrt(errors), spread)
    left_out = {i for i, odd in zip(both, far, strict=True) if odd}
    return [i for i in range(len(inside)) if i not in left_out]


def loss_counts(
    losses: Float[ndarray, " examples"], generator: np.random.Generator
) -> Int[ndarray, "folds bins"]:
    """Return what a client sends: the number of losses per fold and bin."""
    bins = np.searchsorted(EDGES, losses, side="left")
    counts = np.zeros((FOLDS, len(EDGES) + 1), dtype=np.int64)
    np.add.at(counts, (folds(len(losses), FOLDS, generator), bins), 1)
    return counts


def risk_of_counts(members: Counts, non_members: Counts, rests_on: str = "") -> RiskEstimate:
    """Return the risk by a loss threshold fitted on the other folds, for each fold.

    A record counts as a member if its loss lies in or below the threshold's bin.
    """

    def excess(among: Bool[ndarray, " folds"]) -> Float[ndarray, " bins"]:
        below, wrong = (
            side[among].sum(0).cumsum() / max(1, side[among].sum())
            for side in (members, non_members)
        )
        return below - wrong

    hits = rejections = 0
    for fold in range(FOLDS):
        threshold = int(np.argmax(excess(np.arange(FOLDS) != fold)))
        hits += members[fold, : threshold + 1].sum()
        rejections += non_members[fold, threshold + 1 :].sum()
    return RiskEstimate.of_rates(
        float(hits / members.sum()),
        float(rejections / non_members.sum()),
        int(members.sum()),
        int(non_members.sum()),
        fitted=float(1 + excess(np.full(FOLDS, fill_value=True)).max()) / 2,
        auc=auc_of_counts(members, non_members),
        rests_on=rests_on,
    )


def auc_of_counts(members: Counts, non_members: Counts) -> float:
    """Return the probability that a member's bin is lower; the same bin counts half."""
    p, q = members.sum(0) / members.sum(), non_members.sum(0) / non_members.sum()
    above = 1 - q.cumsum()
    return float((p * (above + q / 2)).sum())


@component("risk_estimator", "federated", default=True)
class FederatedEstimator(RiskEstimator):
    """Ask every client for counts of its own losses; trusts no server, needs no shadow.

    Members and non-members come from the same clients, so they match by construction.
    Who counts far from what most do is left out (`combined_counts`).
    """

    needs_client_data: ClassVar[bool] = False
    needs_holdout: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def estimate(self, target: Target, context: RiskContext, streams: Streams) -> RiskEstimate:
        """Return the loss threshold's risk, fitted and judged on counts."""
        clients = target.members
        if context.count is not None:
            inside, outside = target.counts or context.count(target, streams)
            if not inside.any() and not outside.any():
                return RiskEstimate.unknown(
                    f"fewer than {FEWEST_REPORTING} clients sent counts, or fewer than may "
                    f"be summed under masks; of so few one that lies decides the figure"
                )
        elif why := copied((c.train for c in clients), (c.holdout for c in clients)):
            return RiskEstimate.unknown(why)
        else:
            pairs = _client_counts(context.engine, target.params, clients, streams)
            inside, outside = combined_counts(
                [members for members, _ in pairs], [others for _, others in pairs]
            )
        members, non_members = int(inside.sum()), int(outside.sum())
        sides = f"{members} members and {non_members} held-out examples of its clients"
        if context.shares is not None:
            sides = f"the counts of {members} clients, which count alike, under their noise"
        if min(members, non_members) < MIN_RECORDS:
            return RiskEstimate.unknown(f"{sides}, and at least {MIN_RECORDS} of each are needed")
        risk = risk_of_counts(inside, outside, sides)
        if context.shares is None:
            return risk
        # each rate is a sum of some of the bins, by the noise of so many clients
        noise = context.shares.std(members) * math.sqrt(inside.size / 2) / members
        figure = replace(risk.figure, error=math.hypot(risk.figure.error or 0.0, noise))
        return replace(risk, figure=figure)


def _client_counts(
    engine: Engine, params: Params, clients: Sequence[Client], streams: Streams
) -> list[tuple[Counts, Counts]]:
    """Return what each client counts of its losses, of its members and of its holdout."""
    sides = [(c, side) for c in clients for side in (c.train, c.holdout)]
    scored = engine.score([ScoringJob(params, side) for _, side in sides])
    counts = [
        loss_counts(
            row.losses.double().numpy(),
            streams.at("folds", len(row.losses), client.name).generator(),
        )
        for row, (client, _) in zip(scored, sides, strict=True)
    ]
    return list(zip(counts[::2], counts[1::2], strict=True))


def own_counts(
    engine: Engine, params: Params, client: Client, streams: Streams
) -> tuple[Counts, Counts]:
    """Return what a client counts by itself: nothing, if it holds out copies."""
    ((inside, outside),) = _client_counts(engine, params, [client], streams)
    if copied([client.train], [client.holdout]):
        return 0 * inside, 0 * outside
    return inside, outside


def numbers_of_counts(
    sides: tuple[Counts, Counts], shares: NoiseShares | None, draws: Callable[[], Draws]
) -> Numbers:
    """Return a client's counts as the numbers that are added up.

    Under noise every client counts alike: 1, and which part of each side is in which bin.
    """
    if shares is None:
        return np.concatenate([side.ravel() for side in sides]).astype(np.int64)
    parts = np.concatenate([side.ravel() / max(1, side.sum()) for side in sides])
    return np.concatenate([[1], shares.numbers(parts, draws())])


def count_of_counts(shares: NoiseShares | None) -> int:
    """Return how many numbers `numbers_of_counts` returns."""
    return 2 * math.prod(SHAPE) + (shares is not None)


def counts_of_numbers(numbers: Numbers, shares: NoiseShares | None) -> tuple[Counts, Counts]:
    """Return what was counted together, in clients where they count alike.

    Each fold then has its share of the clients: what noise adds to that is in the last bin,
    where hardly a loss is.
    """
    if shares is None:
        inside, outside = numbers.reshape(2, *SHAPE)
        return inside, outside
    sides = shares.values(numbers[1:]).reshape(2, *SHAPE)
    sides[:, :, -1] += numbers[0] / FOLDS - sides.sum(axis=2)
    return sides[0], sides[1]


def masked_loss_counter(
    engine: Engine, min_cohort: int, shares: NoiseShares | None = None
) -> CountFunction:
    """Return how clients count under masks; fewer than so many count nothing.

    No client can be left out for counting otherwise than most: whose counts are odd, no server
    sees. `shares` is the noise that they add to their counts; None: none.
    """

    def count(target: Target, streams: Streams) -> tuple[Counts, Counts]:
        nothing = np.zeros(SHAPE, dtype=np.int64)
        if len(target.members) < min_cohort:
            return nothing, nothing

        def own(client: Client) -> Numbers:
            sides = own_counts(engine, target.params, client, streams)
            return numbers_of_counts(sides, shares, streams.at("own noise", client.name).draws)

        sending = {member.handle: partial(own, member) for member in target.members}
        added = secure_sum(sending, count_of_counts(shares), min_cohort).values
        return counts_of_numbers(added, shares)

    return count


@component("risk_estimator", "client")
class ClientEstimator(RiskEstimator):
    """Let each client attack its own members with its own holdout; nothing is sent."""

    needs_client_data: ClassVar[bool] = False
    needs_holdout: ClassVar[bool] = True
    on_clients: ClassVar[bool] = True
    note: ClassVar[str] = (
        "Each client judged the risk for itself and sent it to nobody: there is no risk to "
        "show before the audit at the end."
    )

    def estimate(self, target: Target, context: RiskContext, streams: Streams) -> RiskEstimate:
        """Return what the members find, weighted by their examples."""
        rows = self.judge((target.params,), target.members, context, streams)
        known = [risk for row in rows.values() for risk in row if risk is not None]
        combined = stratified(known)
        if combined is None:
            return RiskEstimate.unknown(
                f"no member has {MIN_RECORDS} examples and {MIN_RECORDS} held-out ones"
            )
        return replace(combined, rests_on=f"{len(known)} members, each by itself")

    def judge(
        self,
        models: tuple[Params, ...],
        cohort: Sequence[Client],
        context: RiskContext,
        streams: Streams,
    ) -> dict[Handle, list[RiskEstimate | None]]:
        """Return what each client finds of each model on its own examples.

        The threshold is cross-fitted: the best one on 50 records of pure noise would
        already score 0.56. A client with 40 members and 10 held-out examples ends with a
        standard error of 0.10: this is for clients with hundreds of examples. A model that
        answers with a loss that is not finite has no estimate.
        """
        enough = (c for c in cohort if min(len(c.train), len(c.holdout)) >= MIN_RECORDS)
        able = [client for client in enough if not copied([client.train], [client.holdout])]
        jobs = [
            ScoringJob(model, side)
            for client in able
            for side in (client.train, client.holdout)
            for model in models
        ]
        losses = iter(row.losses.double().numpy() for row in context.engine.score(jobs))
        estimates: dict[Handle, list[RiskEstimate | None]] = {
            client.handle: [None] * len(models) for client in cohort
        }
        for client in able:
            inside, outside = ([next(losses) for _ in models] for _ in range(2))
            for j, both in enumerate(zip(inside, outside, strict=True)):
                if all(np.isfinite(side).all() for side in both):
                    sides = scores_of(both[0]), scores_of(both[1])
                    generator = streams.at("own risk", client.name).at(j).generator()
                    estimates[client.handle][j] = cross_fitted(*sides, generator)
        return estimates


@component("risk_estimator", "none")
class NoEstimator(RiskEstimator):
    """Measure nothing: clients know no risk, and choose without one."""

    measures: ClassVar[bool] = False
    needs_client_data: ClassVar[bool] = False

    def estimate(
        self,
        target: Target,  # noqa: ARG002
        context: RiskContext,  # noqa: ARG002
        streams: Streams,  # noqa: ARG002
    ) -> RiskEstimate:
        """Return that there is none."""
        return RiskEstimate.unknown("it is not measured")


@component("risk_estimator", "oracle")
class OracleEstimator(RiskEstimator):
    """Look at the real members and at matched non-members."""

    note: ClassVar[str] = "Clients saw the true risk of every cluster: an oracle."

    def estimate(self, target: Target, context: RiskContext, streams: Streams) -> RiskEstimate:
        """Return what the audit at the end of a run would say now."""
        truth = true_risk(context.engine, target.params, target.members, context.reference, streams)
        return replace(truth, rests_on="the truth, which only a simulation has")
