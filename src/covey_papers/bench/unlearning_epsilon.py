"""How well can models that forgot an example be told from models that never met it?

After the metric of the machine-unlearning challenge of NeurIPS 2023. What is taken: for
each example of the forget set, the logit-scaled confidence in its label of many models on
either side; an attack per threshold, with its false positives and false negatives; the
largest epsilon that some attack shows; attacks with errors of one kind alone are left
out. What differs: thresholds only, in both directions (the challenge adds attacks by two
thresholds); tens of models on either side, not hundreds, so a level is read beside a
control's and not by itself; sides without any overlap count as the largest epsilon that
so many models can show, not as infinity; and examples are summed up by means, medians and
shares above a level, without the challenge's bins and without its factor for utility.

References:
    Triantafillou et al., Are We Making Progress in Unlearning? Findings from the First
    NeurIPS Unlearning Competition, 2024 (arXiv 2406.09073), section 3.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey.rng import Streams

__all__ = [
    "LEVELS",
    "ControlRange",
    "EpsilonSummary",
    "control_range",
    "epsilons",
    "summary_of",
]

DELTA = 1e-5
LEVELS = (1.0, 2.0, 3.0)
SPLITS = 1_000
TAIL = 0.005

Confidences = Float[ndarray, "models examples"]


def epsilons(
    unlearned: Float[ndarray, "unlearned examples"],
    retrained: Float[ndarray, "retrained examples"],
    delta: float = DELTA,
) -> Float[ndarray, " examples"]:
    """Return each example's epsilon, by the best threshold on its confidence.

    epsilon = max over attacks of ln((1 - delta - FPR) / FNR), ln((1 - delta - FNR) / FPR)

    An attack says "unlearned" above a threshold, or below it. FPR is its share of the
    retrained models, FNR that of the unlearned ones that it misses. At least 0.
    """
    ceiling = np.log(min(len(unlearned), len(retrained)) - 1)
    values = np.concatenate([unlearned, retrained])
    above = (unlearned[None] > values[:, None]).mean(axis=1)
    wrong = (retrained[None] > values[:, None]).mean(axis=1)
    fpr = np.concatenate([wrong, 1 - wrong])
    fnr = np.concatenate([1 - above, above])
    apart = ((fpr == 0) & (fnr == 0)).any(axis=0)
    kept = (fpr > 0) & (fnr > 0)
    ratios = np.maximum(
        _log_ratio(1 - delta - fpr, fnr, kept), _log_ratio(1 - delta - fnr, fpr, kept)
    )
    best = np.maximum(ratios.max(axis=0), 0.0)
    return np.where(apart, ceiling, np.minimum(best, ceiling))


def _log_ratio(over: ndarray, under: ndarray, kept: ndarray) -> ndarray:
    """Return ln(over / under), and 0 where an attack is left out or says nothing."""
    told = kept & (over > 0)
    return np.log(np.where(told, over, 1.0)) - np.log(np.where(told, under, 1.0))


@dataclass(frozen=True, slots=True)
class EpsilonSummary:
    """The leaver's examples together.

    Attributes:
        above: the share of them above each of `LEVELS`.
    """

    median: float
    mean: float
    above: tuple[float, ...]


def summary_of(found: Float[ndarray, " examples"]) -> EpsilonSummary:
    """Return an example's epsilon in the middle, on average, and how many are large."""
    return EpsilonSummary(
        float(np.median(found)),
        float(found.mean()),
        tuple(float((found > level).mean()) for level in LEVELS),
    )


@dataclass(frozen=True, slots=True)
class ControlRange:
    """What models that never met the client show against each other.

    Attributes:
        mean: of the mean epsilon, over random halves.
        low, high: between which 99% of the halves lie.
    """

    mean: float
    low: float
    high: float


def control_range(never: Confidences, streams: Streams) -> ControlRange:
    """Return the mean epsilon of one half of these models against the other half.

    It is above 0, as the best of many thresholds is chosen on few models.
    """
    generator, half = streams.at("halves").generator(), len(never) // 2
    means: list[float] = []
    for _ in range(SPLITS):
        order = generator.permutation(len(never))
        one, other = never[order[:half]], never[order[half : 2 * half]]
        means.append(float(epsilons(one, other).mean()))
    low, high = np.quantile(means, [TAIL, 1 - TAIL])
    return ControlRange(float(np.mean(means)), float(low), float(high))
