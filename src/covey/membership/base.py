"""What an estimator of membership risk is, and what it is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from numpy import ndarray

from covey.components.capability import Capability
from covey.components.component import Component
from covey.data.examples import Client, Examples
from covey.data.shift import ShiftRange
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.assessment import Assessment, Counts, Profile, Target
from covey.membership.estimates import Finding, RiskEstimate
from covey.membership.ground_truth import Reference
from covey.membership.references import PlayRound
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "FEWEST_REPORTING",
    "Count",
    "CountAll",
    "Counts",
    "RiskContext",
    "RiskEstimator",
]

Count = Callable[[Target, Streams], tuple[Counts, Counts]]
"""What members count (`combined_counts`): of their training and held-out losses."""

FEWEST_REPORTING = 5
"""Remote clients that must report: of fewer, one that lies decides the figure."""

CountAll = Callable[
    [Sequence[Target], Callable[[int], Streams]], Sequence[tuple[Counts, Counts]]
]
"""The same of several clusters at once, each with the streams of its own."""


def _no_examples() -> Examples:
    return Examples(torch.empty(0), torch.empty(0, dtype=torch.int64))


def _no_round(_: int, params: Params, __: object, ___: Streams) -> Params:
    return params


@dataclass(frozen=True, slots=True, eq=False)
class RiskContext:
    """What an estimator may use beside the model that it looks at.

    On a client there is the engine alone.

    Attributes:
        engine: scores examples, and trains.
        count: how members count their own losses; None: their examples are at hand.
        reference: matched non-members, which only a simulation has.
        pool: the server's own examples, not shifted, disjoint from every client's.
        shifts: per group, how its inputs differ from the pool's.
        start: per cluster, the model that the run began with.
        play_round: the round of this index, by the run's own recipe, over any data sets.
        streams: the server's own, independent of the clients'.
        population_profile: the profile of the whole population.
        shared_rounds: how many rounds everybody played together at first (warm start).
    """

    engine: Engine
    count: Count | None = None
    reference: Reference = field(default_factory=lambda: Reference(()))
    pool: Examples = field(default_factory=_no_examples)
    shifts: tuple[ShiftRange, ...] = ()
    start: tuple[Params, ...] = ()
    play_round: PlayRound = _no_round
    streams: Streams = field(default_factory=lambda: Streams(0))
    population_profile: Profile = ()
    shared_rounds: int = 0

    def losses(self, params: Params, sets: Sequence[Examples]) -> list[ndarray]:
        """Return a model's loss on every example, set by set, in nats."""
        scored = self.engine.score([ScoringJob(params, each) for each in sets])
        return [each.losses.double().numpy() for each in scored]


class RiskEstimator(Component):
    """Measures how well members of a cluster model can be told from non-members.

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
    ...         return RiskEstimate(0.5 + self.slope * gap, standard_error=0.05)

    Name it in `[redteam] source = "package.module:LossGap"`, with its options in
    `[redteam.source_options]`, or pass it: `covey.Config(redteam=LossGap(slope=0.2))`.

    Attributes:
        on_clients: whether every client measures for itself, and tells nobody: then each
            target has that one client as its member.
        counts: whether it takes what members count of each model: remote ones are then
            asked about all models at once.
        note: what a reader of the results must know of it.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.CLIENT_DATA})
    on_clients: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    note: ClassVar[str] = ""

    def estimate(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Finding:
        """Return the risk of one cluster model, or why there is no estimate.

        Args:
            target: the model, its members, and the round before which it is measured.
            context: what there is to measure with.
            streams: all randomness, of this cluster and round.
        """
        raise NotImplementedError

    def assess(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Assessment:
        """Return what was found, and what to keep for the next time.

        An estimator that remembers anything overrides this instead: it finds a
        `ComponentState` of its own by `covey.kept(target.states, ...)`.
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
            return finding if isinstance(finding, RiskEstimate) else None

        return {c.handle: [found(c, j) for j in range(len(models))] for c in cohort}
