"""Risk from what the clients count of their own losses."""

from collections.abc import Sequence
from typing import ClassVar

from covey.components.capability import Capability
from covey.data.examples import Client
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.assessment import Target
from covey.membership.base import (
    FEWEST_REPORTING,
    Counts,
    RiskContext,
    RiskEstimator,
)
from covey.membership.copies import copied
from covey.membership.estimates import MIN_RECORDS, Finding, Withheld, estimate_of
from covey.membership.loss_histograms import (
    auc_of_counts,
    combined_counts,
    loss_counts,
    rates_of_counts,
)
from covey.rng import Streams
from covey.types import Params

__all__ = ["FederatedEstimator", "own_counts"]


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
        clients = target.members
        if context.count is not None:
            inside, outside = target.counts or context.count(target, streams)
            if not inside.any() and not outside.any():
                return Withheld(
                    f"fewer than {FEWEST_REPORTING} clients told counts, or fewer than may "
                    f"be summed under masks; of so few one that lies decides the figure"
                )
        elif why := copied((c.train for c in clients), (c.holdout for c in clients)):
            return Withheld(why)
        else:
            pairs = client_counts(context.engine, target.params, clients, streams)
            inside, outside = combined_counts(
                [members for members, _ in pairs], [others for _, others in pairs]
            )
        members, non_members = int(inside.sum()), int(outside.sum())
        sides = f"{members} members and {non_members} held-out examples of its clients"
        if min(members, non_members) < MIN_RECORDS:
            return Withheld(f"{sides}, and at least {MIN_RECORDS} of each are needed")
        rates = rates_of_counts(inside, outside)
        return estimate_of(rates, auc_of_counts(inside, outside), sides)


def client_counts(
    engine: Engine, params: Params, clients: Sequence[Client], streams: Streams
) -> list[tuple[Counts, Counts]]:
    """Return what each client counts of its losses, of its members and of its holdout."""
    sides = [(c, side) for c in clients for side in (c.train, c.holdout)]
    scored = engine.score([ScoringJob(params, side) for _, side in sides])
    counts = [
        loss_counts(
            each.losses.double().numpy(),
            streams.at("folds", len(each.losses), client.name).generator(),
        )
        for each, (client, _) in zip(scored, sides, strict=True)
    ]
    return list(zip(counts[::2], counts[1::2], strict=True))


def own_counts(
    engine: Engine, params: Params, client: Client, streams: Streams
) -> tuple[Counts, Counts]:
    """Return what a client counts by itself: nothing, if it holds out copies."""
    ((inside, outside),) = client_counts(engine, params, [client], streams)
    if copied([client.train], [client.holdout]):
        return 0 * inside, 0 * outside
    return inside, outside
