"""Which of an audited model's members are exposed, for whoever holds them."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey.auditor.records import Records
from covey.errors import ConfigError
from covey.membership import Signals
from covey.membership.audit_set import Candidates
from covey.membership.record_exposure import (
    ExposedCounts,
    exposed_counts,
    record_exposures,
)

__all__ = ["exposed_of", "exposures_of"]

MIN_MODELS = 4
"""References below which nobody knows how much a record's figures scatter."""


def exposures_of(
    records: Records, candidates: Candidates, signals: Signals
) -> Float[ndarray, " all"] | None:
    """Return each member's exposure, in the order in which the members came.

    NaN of members that are not judged; None where the references cannot say.
    """
    inside = signals.inside
    both_sides = (inside.any(axis=1) & ~inside.all(axis=1)).all()
    if inside.shape[1] < MIN_MODELS or not both_sides:
        return None
    chosen = candidates.member
    numbers = candidates.examples.inputs.numpy()[chosen]
    found = np.full(records.brought, np.nan)
    found[records.places[numbers]] = record_exposures(signals)[chosen]
    return found


def exposed_of(candidates: Candidates, signals: Signals) -> ExposedCounts | None:
    """Return how exposed the most exposed 1% are, all members being one holder's."""
    owner = np.zeros(len(candidates.member), dtype=np.int64)
    try:
        return exposed_counts(signals, candidates.member, owner)
    except ConfigError:  # brought references, half of which miss a record's side
        return None
