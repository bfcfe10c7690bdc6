"""Who enters a cluster between rounds: a bound on clients that began in another one.

A server sees nothing of a client's choice but the choice. A few clients that all choose a
small cluster are its majority at once, and an aggregation that a majority holds is theirs.
"""

import math
from collections.abc import Mapping

from covey.algorithms.base import ServerState
from covey.algorithms.cluster_selection import SelectionResult
from covey.components.state import ComponentState
from covey.events import NewcomersWaited
from covey.rng import Streams
from covey.types import Handle

__all__ = ["Founders", "bounded_newcomers"]


class Founders(ComponentState):
    """The cluster that each client was in when clients first chose for themselves."""

    key = "founders"
    clusters: Mapping[Handle, int] = {}


def bounded_newcomers(
    choice: SelectionResult,
    before: ServerState,
    share: float,
    streams: Streams,
    recorded: Mapping[Handle, int] | None = None,
) -> SelectionResult:
    """Return the choices without those newcomers that a cluster has no room for.

    Of the clients that choose a cluster, its founders F train it in any case, and of all
    others max(1, floor(share |F|)), drawn anew in every round. The rest sit the round out:
    they train nothing, and stay counted where they were. A cluster none of whose founders
    takes part has no bound.

    Founders are who a cluster had when clients first chose for themselves (after a warm
    start), or else who chose it then. Time makes nobody a founder: who waits long enough
    would be in.

    Args:
        choice: what the clients chose.
        before: the state before the round.
        share: newcomers per founder.
        streams: of the round.
        recorded: who trained what when the round was played first: that is repeated.
    """
    clusters = choice.clusters
    founded = before.kept(Founders).clusters or before.assignment or clusters
    state = choice.state.keeping(Founders(clusters=dict(founded)))
    choice = choice._replace(state=state)
    if recorded is not None:
        again = {h: j for h, j in clusters.items() if h in recorded}
        return choice._replace(clusters=again)
    waiting: set[Handle] = set()
    facts: list[NewcomersWaited] = []
    for j in sorted(set(clusters.values())):
        here = sorted(h for h, chosen in clusters.items() if chosen == j)
        new = [h for h in here if founded.get(h) != j]
        founders = len(here) - len(new)
        room = max(1, math.floor(share * founders + 1e-9))  # .7 * 10 is below 7
        if not founders or len(new) <= room:
            continue
        order = streams.at("newcomers", j).generator().permutation(len(new))
        out = [new[i] for i in order[room:]]
        waiting.update(out)
        facts.append(NewcomersWaited(j, founders, len(new), len(out)))
    return choice._replace(
        clusters={h: j for h, j in clusters.items() if h not in waiting},
        events=(*choice.events, *facts),
    )
