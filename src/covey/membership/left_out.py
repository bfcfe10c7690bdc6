"""Two attacks on a head that was solved, from what it would be without each record."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from covey.engine.fixed_features import LocalRecords
from covey.heads import LeftOut, joined, likelihood_ratio_successes
from covey.membership.loss_histograms import (
    auc_of_counts,
    combined_counts,
    loss_counts,
    rates_of_counts,
)
from covey.risk import RiskEstimate
from covey.rng import Streams

__all__ = ["likelihood_ratio_risk", "loss_threshold_risk", "stronger_risk"]


def stronger_risk(
    records: LocalRecords,
    labels: Sequence[Tensor],
    found: Sequence[LeftOut],
    streams: Streams,
) -> RiskEstimate:
    """Return the risk by the stronger of both attacks; client by client in the lists."""
    by_loss = loss_threshold_risk(records, labels, found, streams)
    by_ratio = likelihood_ratio_risk(found)
    return max(by_loss, by_ratio, key=lambda each: each.risk)


def loss_threshold_risk(
    records: LocalRecords,
    labels: Sequence[Tensor],
    found: Sequence[LeftOut],
    streams: Streams,
) -> RiskEstimate:
    """Return the risk by a threshold on losses, of members and of the left out."""

    def counts(name: str) -> list[np.ndarray]:
        return [
            loss_counts(
                records.losses(getattr(each, name), own).double().numpy(),
                streams.at("folds", name, place).generator(),
            )
            for place, (own, each) in enumerate(zip(labels, found, strict=True))
        ]

    inside, outside = combined_counts(counts("scores"), counts("without"))
    rates = rates_of_counts(inside, outside)
    return RiskEstimate(
        risk=rates.accuracy,
        standard_error=rates.standard_error,
        auc=auc_of_counts(inside, outside),
        members=rates.members,
        non_members=rates.non_members,
        reason="a loss threshold between records and the same records left out",
        attack="loss-left-out",
    )


def likelihood_ratio_risk(
    found: Sequence[LeftOut], precision: Tensor | None = None
) -> RiskEstimate:
    """Return how often the best attack is right, on average over the records.

    Args:
        found: client by client.
        precision: of the errors, where others' records tell it too.
    """
    successes = likelihood_ratio_successes(joined(list(found)), precision).numpy()
    n = len(successes)
    return RiskEstimate(
        risk=float(successes.mean()),
        standard_error=float(successes.std() / np.sqrt(n)),
        members=n,
        non_members=n,
        reason="the likelihood ratio of every record, in and left out",
        attack="likelihood-ratio",
    )
