"""FedAvg whose step is scaled by running means over mappings, in the order they are in.

theta <- theta + step (mean - theta);  step = 1 / (1 + running mean of losses, of weights)

No method of anybody's: it tells apart any two orders of what an algorithm goes on from.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import covey
from covey import Clients, ComponentState, RoundResult, ServerState, Streams


class Losses(ComponentState):
    of: Mapping[str, float] = {}


def running_mean(values: Iterable[float], share: float) -> float:
    found = 0.0
    for each in values:
        found = share * found + (1 - share) * each
    return found


class RunningMeans(covey.Algorithm):
    share: float = 0.75

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        seen = running_mean(state.kept(Losses).of.values(), self.share)
        weights = (float(v.abs().mean()) for v in state.clusters[0].values())
        seen += running_mean(weights, self.share)
        seen += running_mean(
            (int(handle[2:], 16) % 97 / 97 for handle in state.assignment), self.share
        )
        everybody = clients.all_in(0, "shared")
        result = clients.train_and_aggregate(state, everybody, streams)
        losses = clients.evaluate(result.state.clusters, streams)[:, 0].tolist()
        own = {c.handle: x for c, x in zip(clients.cohort, losses, strict=True)}
        old, mean = state.clusters[0], result.state.clusters[0]
        model = {n: old[n] + (mean[n] - old[n]) / (1 + seen) for n in old}
        after = replace(result.state, clusters=(model,))
        kept = Losses(of={**state.kept(Losses).of, **own})
        return result._replace(state=after.keeping(kept))
