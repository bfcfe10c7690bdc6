"""Models that are none: what diverged, or answers no better than whoever guesses.

An attack on such a model finds nothing, because there is nothing in it: "no signal" would
read like privacy, and is only the lack of a model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from covey.data.examples import Client, Examples
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.assessment import Assessment, RedTeam, Target
from covey.membership.estimates import Withheld
from covey.params import not_finite
from covey.rng import Streams
from covey.types import Params

__all__ = [
    "STALLED",
    "ConstantPredictor",
    "best_constant",
    "has_finite_examples",
    "has_non_finite_values",
    "no_better_than_guessing",
    "unless_diverged",
]

MAX_EXAMPLES = 2_000
"""Examples that a model is judged on, evenly spaced, and at least one per client."""

ROUNDING = 1e-4
"""Share of a loss by which single precision may understate it."""

EXPLODED = 3.0
"""So often the loss of guessing, a model in the middle of a run has diverged."""

STALLED = (
    "its training diverged: no update of its clients was finite, so all were refused"
)
"""Why a model that did not move is none."""


@dataclass(frozen=True, slots=True)
class ConstantPredictor:
    """The best answer that looks at no input, on given examples.

    Attributes:
        loss: its mean loss, in nats; no other constant answer has a lower one.
        accuracy: of the best constant prediction; None where nothing is right or wrong.
    """

    loss: float
    accuracy: float | None


def best_constant(labels: Tensor) -> ConstantPredictor | None:
    """Return the best constant answer; None where it is perfect, and nobody beats it.

    One class:       loss = H(p) = -sum_c p_c ln p_c,     accuracy = max_c p_c
    Several labels:  the means over labels l of H(p_l) and of max(p_l, 1 - p_l)
    A number:        loss = Var(y) / 2, at the mean

    p are the shares among these very labels, so that the constant is fitted to what it is
    judged on: whoever answers without looking at the input has at least this loss.
    """
    y = labels.double()
    if not len(y):
        return None
    if labels.is_floating_point():
        loss, accuracy = float(y.var(correction=0)) / 2, None
    elif labels.dim() == 1:
        shares = torch.bincount(labels).double() / len(labels)
        loss, accuracy = float(torch.special.entr(shares).sum()), float(shares.max())
    else:
        ones = y.mean(dim=0)
        both = torch.stack([ones, 1 - ones])
        loss = float(torch.special.entr(both).sum(dim=0).mean())
        accuracy = float(both.amax(dim=0).mean())
    return ConstantPredictor(loss, accuracy) if loss > 0 else None


def no_better_than_guessing(
    engine: Engine,
    params: Params,
    clients: Sequence[Client],
    times: float = 1.0,
    whose: str = "its clients' examples",
) -> str:
    """Say why a model knows nothing of these clients' examples; "" if it may know some.

    It knows nothing if its mean loss is not below the best constant's and, where answers
    are right or wrong, its accuracy is not clearly above the best constant's:

        mean loss >= loss*
        accuracy <= a* + max(2 sqrt(a* (1 - a*) / n), (1 - a*) / 10)

    Both, so that a model whose losses are badly scaled but whose answers are right stays
    a model, and so does one that is right no more often but knows how sure it is. The
    examples are those it trains on: where it has learnt anything, it shows here. a* (1 -
    a*) bounds the variance of any share in [0, 1] with this mean, so the 2 SE hold for
    several labels as well. The tenth of the way to perfect is what random weights may
    reach by luck, on however many examples. Where the best constant is perfect nobody can
    tell: "".

    Args:
        engine: scores, and draws nothing.
        params: the model.
        clients: who trains it; only examples that are finite are looked at.
        times: how often loss* the mean loss must be, at least. Above 1 it tells models
            that diverged from those that have not learnt anything yet, which are near
            loss*; numbers, whose loss at the start has no scale, are then not judged.
        whose: what the examples are called in the answer.
    """
    some = _some([c.train for c in clients if has_finite_examples(c)])
    constant = best_constant(some.labels) if some is not None else None
    if some is None or constant is None or (times > 1 and constant.accuracy is None):
        return ""
    (scored,) = engine.score([ScoringJob(params, some)])
    loss, n = float(scored.losses.double().mean()), len(some)
    if loss < times * constant.loss * (1 - ROUNDING):
        return ""
    found = f"of {loss:.3g} nats" if math.isfinite(loss) else "that is not finite"
    told = f"a mean loss {found}, and {constant.loss:.3g} without looking at inputs"
    if scored.correct is not None and constant.accuracy is not None:
        accuracy, a = float(scored.correct.double().mean()), constant.accuracy
        if accuracy > a + max(2 * math.sqrt(a * (1 - a) / n), (1 - a) / 10):
            return ""
        told += f"; an accuracy of {accuracy:.3f}, and {a:.3f} without"
    return f"it does no better than guessing on {n} of {whose}: {told}"


def has_non_finite_values(params: Params) -> str:
    """Say which numbers of a model are not finite; "" if all are."""
    entry = not_finite(params)
    return f"its {entry} holds numbers that are not finite" if entry else ""


def unless_diverged(
    engine: Engine,
    attack: RedTeam,
    source: str,
    start: Sequence[Params],
    rounds: int,
) -> RedTeam:
    """Return the same red team, which gives no estimate for a model that is none.

    Every finding says who found it, and when.

    While a run goes on, a model may be near guessing because it has not learnt anything
    yet; at its end there is no yet.

    Args:
        engine: scores, and draws nothing.
        attack: the red team.
        source: its name.
        start: the models that the run begins with. One that nobody has moved since has
            not diverged.
        rounds: of the run.
    """

    def assess(target: Target, streams: Streams) -> Assessment:
        reason = target.diverged or has_non_finite_values(target.params)
        if not reason and not _same(target.params, start[target.cluster]):
            times = 1.0 if target.round_index >= rounds else EXPLODED
            reason = no_better_than_guessing(
                engine, target.params, target.members, times
            )
        void = Assessment(Withheld(reason, diverged=True))
        found = void if reason else attack(target, streams)
        stamped = replace(found.finding, source=source, round_index=target.round_index)
        return found._replace(finding=stamped)

    return assess


def has_finite_examples(client: Client) -> bool:
    """Say whether no input and no label of a client is NaN or infinite.

    Whatever a model answers to others says nothing about the model.
    """
    return all(
        bool(torch.isfinite(values).all())
        for side in (client.train, client.holdout)
        for values in (side.inputs, side.labels)
        if values.is_floating_point()
    )


def _same(left: Params, right: Params) -> bool:
    return all(torch.equal(value, right[name]) for name, value in left.items())


def _some(sets: Sequence[Examples]) -> Examples | None:
    """Return evenly spaced examples of all sets; None if there are none."""
    step = max(1, math.ceil(sum(map(len, sets)) / MAX_EXAMPLES))
    some = [each.take(torch.arange(0, len(each), step)) for each in sets if len(each)]
    return Examples.joined(some) if some else None
