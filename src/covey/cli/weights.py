"""A client's risk against its weight, for a person at a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from covey.cli.tables import tabled

__all__ = ["weights_text"]


def weights_text(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of what `explain` tells of it, if anything."""
    found = told.get("risk_against_weight")
    if found is None:
        return
    if found["unknown"]:
        yield f"risk against weight: not known here. {found['unknown']}"
        return
    yield f"weight of its records in cluster {found['cluster']}: {found['weight']:.3g}"
    yield tabled(
        ("weight", "risk, likelihood ratio", "risk, loss threshold", "accuracy"),
        [
            (
                f"{each['weight']:.3f}",
                f"{each['likelihood_ratio']:.3f}",
                f"{each['loss_threshold']:.3f} ({each['standard_error']:.3f})",
                f"{each['accuracy']:.3f}",
            )
            for each in found["points"]
        ],
    )
