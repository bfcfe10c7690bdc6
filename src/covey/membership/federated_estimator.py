"""Risk from what the clients count of their own losses."""

from typing import ClassVar

from covey.components.capability import Capability
from covey.data.examples import Client, Examples
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.assessment import Target
from covey.membership.base import (
    FEWEST_REPORTING,
    Count,
    Counts,
    RiskContext,
    RiskEstimator,
)
from covey.membership.estimates import MIN_RECORDS, Finding, Withheld, estimate_of
from covey.membership.loss_histograms import (
    auc_of_counts,
    combined_counts,
    loss_counts,
    rates_of_counts,
)
from covey.rng import Streams

__all__ = ["FederatedEstimator", "local_loss_counter"]


class FederatedEstimator(RiskEstimator):
    """Ask every client for counts of its own losses; trusts no server, needs no shadow.

    Members and non-members come from the same clients, so they match by construction.
    Who counts far from what most do is left out (`combined_counts`).
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.HELD_OUT_EXAMPLES}
    )
    counts: ClassVar[bool] = True

    def estimate(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Finding:
        """Return the loss threshold's risk, fitted and judged on counts."""
        count = context.count or local_loss_counter(context.engine)
        inside, outside = target.counts or count(target, streams)
        if context.count is not None and not inside.any() and not outside.any():
            return Withheld(
                f"fewer than {FEWEST_REPORTING} clients told counts, or fewer than may be "
                f"summed under masks; of so few one that lies decides the figure"
            )
        members, non_members = int(inside.sum()), int(outside.sum())
        sides = f"{members} members and {non_members} held-out examples of its clients"
        if min(members, non_members) < MIN_RECORDS:
            return Withheld(f"{sides}, and at least {MIN_RECORDS} of each are needed")
        rates = rates_of_counts(inside, outside)
        return estimate_of(rates, auc_of_counts(inside, outside), sides)


def local_loss_counter(engine: Engine) -> Count:
    """Return how clients count, where their examples are at hand."""

    def count(target: Target, streams: Streams) -> tuple[Counts, Counts]:
        inside = {client: client.train for client in target.members}
        outside = {client: client.holdout for client in target.members}
        return combined_counts(
            _counts(engine, target, inside, streams),
            _counts(engine, target, outside, streams),
        )

    return count


def _counts(
    engine: Engine, target: Target, sets: dict[Client, Examples], streams: Streams
) -> list[Counts]:
    scored = engine.score([ScoringJob(target.params, each) for each in sets.values()])
    return [
        loss_counts(
            each.losses.double().numpy(),
            streams.at("folds", len(each.losses), client.name).generator(),
        )
        for each, client in zip(scored, sets, strict=True)
    ]
