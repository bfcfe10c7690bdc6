"""Why a paper's number may lie elsewhere: what was set, and what was measured.

A reason either speaks of method alone, with the settings of the very run filled in, or is
put together from the figures that stand beside it. What somebody expected to be measured
is no reason.
"""

from collections.abc import Sequence
from statistics import fmean

from covey.config import Config

__all__ = ["ALIKE", "non_members_reason", "with_settings"]

ALIKE = 0.02
"""Two accuracies of an attack that are no further apart than this count as equal."""

Values = Sequence[float | None]
"""One figure per repeat; None where it is unknown."""


def with_settings(text: str, config: Config) -> str:
    """Fill the settings of a run into a text: "{train.batch_size} images a step"."""
    sections = {name: getattr(config, name) for name in type(config).model_fields}
    return text.format(**sections)


def non_members_reason(matched: Values, pooled: Values, blind: Values) -> str:
    """Say what other non-members make of the same models, and whether it is membership.

    Args:
        matched: MIA accuracies against non-members that match the members.
        pooled: against non-members from the mixture of all groups.
        blind: accuracy, on the latter, of a classifier that never sees the model.
    """
    known = [_mean(each) for each in (matched, pooled, blind)]
    if any(mean is None for mean in known):
        return "What non-members that do not match make of the same models is unknown."
    own, mixture, without = (mean for mean in known if mean is not None)
    told = (
        f"The figure is {own:.3f} against non-members that match the members (same file, "
        f"same group, same transform), and {mixture:.3f} against non-members drawn from "
        f"the mixture of the groups, where a classifier that never sees the model reaches "
        f"{without:.3f}"
    )
    return f"{told}: {_verdict(mixture, without)}."


def _verdict(mixture: float, without: float) -> str:
    if mixture <= 0.5 + ALIKE:
        return "members cannot be told apart there either"
    if without >= mixture - ALIKE:
        return "the mixture's figure is distribution shift, not membership"
    if without > 0.5 + ALIKE:
        return "a part of the mixture's figure is distribution shift"
    return "distribution shift does not explain the mixture's figure"


def _mean(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
