"""What settings need of measured risk, and of what its measurement may rest on."""

from collections.abc import Iterator

from covey.components.capability import Capability, Claim
from covey.config.sections import Sections

__all__ = ["claims_of_risk"]


def claims_of_risk(config: Sections) -> Iterator[Claim]:
    """Yield what settings beside the estimator of risk need of it, or rule out."""
    if config.method.pooling == "risk":
        yield Claim(
            "method.pooling = 'risk'",
            frozenset({Capability.MEASURED_RISK}),
            remedy="Choose a source of risk, or a fixed share of pooling.",
        )
    if config.population.holdout == 0:
        yield Claim(
            "population.holdout = 0",
            rules_out=frozenset({Capability.HELD_OUT_EXAMPLES}),
            remedy="Reserve some (0.2), or choose another redteam.source.",
        )
    if config.privacy.adaptive_clip:
        yield Claim(
            "privacy.adaptive_clip = true",
            rules_out=frozenset({Capability.SETTLED_ROUNDS}),
            remedy="Set adaptive_clip = false, or choose another redteam.source.",
        )
