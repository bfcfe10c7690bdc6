"""How much each client enters, where its own risk decides it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from covey.algorithms.base import ServerState
from covey.algorithms.summing import Asked, Dial, adjusted, counted_sums
from covey.events import Event, ExposureChosen
from covey.heads import WEIGHT_STEPS, ClusterSums, Sums, squared_steps
from covey.membership import OwnRisk, largest_weight, own_risks
from covey.rng import Streams
from covey.types import Handle

__all__ = ["exposed_by_risk"]

PASSES = 30
"""After so many, who is still above what it accepts is left out."""


def exposed_by_risk(
    state: ServerState,
    clusters: Mapping[Handle, int],
    dials: tuple[Dial, Dial],
    asked: Asked,
    streams: Streams,
) -> tuple[ClusterSums, Sequence[Event]]:
    """Return sums in which each client has the largest weight whose risk it accepts.

    Pooling and regularisation are found first, with everybody at weight 1. While nobody
    moves, and where rounds are played again with recorded choices, all weights stay.

    Args:
        state: before the round.
        clusters: what clients of the cohort chose.
        dials: pooling and regularisation, as numbers or "risk".
        asked: whose records are in the sums.
        streams: of the round.
    """
    known = state.kept(ClusterSums)
    before = {handle: j for handle, (j, _) in known.counted.items()}
    after = {**before, **clusters}
    again = asked.again and after.keys() <= before.keys()
    if known.pooling and (again or after == before):
        weights = {handle: known.counted[handle][1] for handle in after}
        counted = counted_sums(state, clusters, weights, asked)
        return adjusted(state, counted, dials, asked, streams)
    full = dict.fromkeys(after, WEIGHT_STEPS)
    counted = counted_sums(state, after, full, asked)
    sums, walked = adjusted(state, counted, dials, asked, streams)
    found, chosen = _at_rest(sums, asked)
    return found, [*walked, chosen]


@dataclass(frozen=True, slots=True, eq=False)
class _Weighed:
    """Sums over clients at their weights, and at the squares of these."""

    sums: ClusterSums
    squared: tuple[Sums, ...]

    def at(self, weights: Mapping[Handle, int], asked: Asked) -> "_Weighed":
        """Return the sums with these lower weights; of all others nothing is asked."""
        known = self.sums.counted
        own, squared = list(self.sums.sums), list(self.squared)
        d = len(self.sums.targets[0])
        for j in range(len(own)):
            less = {h: known[h][1] - w for h, w in weights.items() if known[h][0] == j}
            if not less:
                continue
            own[j] -= asked.sums(sorted(less.items()), d)
            square = [
                (h, squared_steps(known[h][1]) - squared_steps(weights[h]))
                for h in sorted(less)
            ]
            squared[j] -= asked.sums(square, d)
        moved = {handle: (known[handle][0], w) for handle, w in weights.items()}
        return _Weighed(self.sums.of(tuple(own), {**known, **moved}), tuple(squared))

    def own_risks(self, asked: Asked) -> Iterator[tuple[Handle, OwnRisk]]:
        """Yield what each client's risk is in its own cluster's head."""
        for j, inside in enumerate(self.sums.clients_per_cluster()):
            if inside:
                yield from self._in_cluster(j, asked)

    def _in_cluster(self, j: int, asked: Asked) -> Iterator[tuple[Handle, OwnRisk]]:
        head, records = self.sums.head(j, self.squared), asked.records.here()
        rows = {
            handle: records.rows(asked.everybody[handle].train, weight)
            for handle, (cluster, weight) in sorted(self.sums.counted.items())
            if cluster == j
        }
        yield from zip(rows, own_risks(head, [*rows.values()]), strict=True)


def _at_rest(full: ClusterSums, asked: Asked) -> tuple[ClusterSums, ExposureChosen]:
    """Lower clients' weights, all at a time, until each one's risk is what it accepts.

    Who is above what it accepts takes the largest lower weight at which it would not be,
    were all others to stay. They do not: with less of them there is less to hide behind.
    So all are looked at again, and weights only ever fall, until nobody is above. Then
    each risk is exact, at everybody's weights. What is not exact is that a weight is the
    largest: a later fall of others may let it rise again, which nobody tries.
    """
    weighed, passes = _Weighed(full, full.sums), 0
    risks, lower = _looked_at(weighed, asked, passes)
    while lower:
        passes += 1
        weighed = weighed.at(lower, asked)
        risks, lower = _looked_at(weighed, asked, passes)
    counted = weighed.sums.counted
    weights = {handle: counted[handle][1] / WEIGHT_STEPS for handle in sorted(risks)}
    return weighed.sums, ExposureChosen(weights, risks, passes)


def _looked_at(
    weighed: _Weighed, asked: Asked, passes: int
) -> tuple[dict[Handle, float], dict[Handle, int]]:
    """Return each client's risk, and the weights of those who accept less."""
    risks: dict[Handle, float] = {}
    lower: dict[Handle, int] = {}
    for handle, own in weighed.own_risks(asked):
        weight = weighed.sums.counted[handle][1]
        accepted = asked.everybody[handle].preference.risk_threshold
        risks[handle] = own.at(weight)
        if not weight or risks[handle] <= accepted:
            continue
        left_out = passes >= PASSES
        lower[handle] = 0 if left_out else largest_weight(own.at, accepted, weight - 1)
    return risks, lower
