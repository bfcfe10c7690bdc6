"""Clients that collude: what they send in place of what they trained.

Every attack stays inside what a server on Flower accepts (`covey.flower`): no update is
longer than 5 times the median of the others. Colluders know all honest updates of their
cluster, and whose are of the minority. They do not know by which rule updates are
aggregated. Some choose the minority's cluster as well (`Flooded`).

References:
    Baruch, Baruch, Goldberg, A Little Is Enough, 2019, section 3.
    Bagdasaryan, Veit, Hua, Estrin, Shmatikov, How To Backdoor Federated Learning, 2020,
    section 4.2: model replacement.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import median
from typing import Any, ClassVar, NamedTuple, cast

import torch
from pydantic import Field

from covey.aggregation import (
    Aggregation,
    AggregationResult,
    ClientUpdate,
    FederationInfo,
)
from covey.algorithms import (
    Backend,
    Clients,
    Cohort,
    Ifca,
    Losses,
    RoundResult,
    SelectionConfig,
    SelectionResult,
    ServerState,
    TrainAtOnce,
)
from covey.components import Capability, create
from covey.params import add, norm, scale
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["AGAINST_MINORITY", "ATTACKS", "LABEL_FLIP", "Flooded", "Poisoned", "Seen"]

LONGEST = 5.0
"""Times the median norm of the honest updates: what a server on Flower accepts."""
DEVIATIONS = 1.5
"""z of "a little is enough": standard deviations from the mean."""
LABEL_FLIP = "label flip"
"""The attack that is in the data: colluders train as everybody does."""
AGAINST_MINORITY = "against the minority"


class Seen(NamedTuple):
    """What a colluder knows of its cluster when it sends.

    Attributes:
        own: its own update, honestly trained.
        honest: the updates of all honest clients.
        minority: those of them that the minority sends.
        per_colluder: how many clients there are per colluder.
    """

    own: Params
    honest: Sequence[Params]
    minority: Sequence[Params]
    per_colluder: float


Attack = Callable[[Seen], Params]
"""What a colluder sends."""


class Poisoned(Aggregation):
    """Another aggregation, before which colluding clients replace their updates.

    Attributes:
        attack: one of `ATTACKS`.
        colluders: handles.
        minority: handles of those against whom an attack may be.
        merge: the aggregation that is attacked, and its options.
    """

    rules_out: ClassVar[frozenset[Capability]] = frozenset()

    attack: str
    colluders: list[str] = Field(default=[])
    minority: list[str] = Field(default=[])
    merge: str = "mean"
    merge_options: dict[str, Any] = Field(default={})

    def aggregate(
        self,
        models: tuple[Params, ...],
        updates: Iterable[ClientUpdate],
        streams: Streams,
    ) -> AggregationResult:
        """Aggregate what is sent, without knowing of the federation."""
        return self.prepared(FederationInfo(clients=0))(models, updates, streams)

    def prepared(self, federation: FederationInfo) -> Callable[..., AggregationResult]:
        """Return the attacked aggregation, as it is in this federation."""
        made = create(
            "aggregation", self.merge, self.merge_options, "merge", Aggregation
        )
        merge = cast("Aggregation", made).prepared(federation)

        def aggregate(
            models: tuple[Params, ...],
            updates: Iterable[ClientUpdate],
            streams: Streams,
        ) -> AggregationResult:
            return merge(models, self._sent(tuple(updates)), streams)

        return aggregate

    def _sent(self, updates: Sequence[ClientUpdate]) -> tuple[ClientUpdate, ...]:
        """Return what arrives: a cluster without honest clients is not attacked."""
        honest: dict[int, list[ClientUpdate]] = {}
        for each in updates:
            if each.handle not in self.colluders:
                honest.setdefault(each.cluster, []).append(each)
        return tuple(
            each
            if each.handle not in self.colluders or each.cluster not in honest
            else self._poisoned(each, updates, honest[each.cluster])
            for each in updates
        )

    def _poisoned(
        self,
        own: ClientUpdate,
        updates: Sequence[ClientUpdate],
        honest: Sequence[ClientUpdate],
    ) -> ClientUpdate:
        here = sum(each.cluster == own.cluster for each in updates)
        seen = Seen(
            own=own.update,
            honest=[each.update for each in honest],
            minority=[each.update for each in honest if each.handle in self.minority],
            per_colluder=here / (here - len(honest)),
        )
        made = ATTACKS[self.attack](seen)
        most, length = LONGEST * median(map(norm, seen.honest)), norm(made)
        return replace(
            own, update=scale(made, most / length) if length > most else made
        )


class Flooded(Ifca):
    """IFCA in which colluders choose the minority's cluster, whatever its loss is.

    Attributes:
        colluders: handles.
        minority: handles of those whose cluster it is.
    """

    colluders: list[str] = Field(default=[])
    minority: list[str] = Field(default=[])

    def round(
        self, state: ServerState, clients: Clients, streams: Streams
    ) -> RoundResult:
        """Play a round of IFCA with what colluders say that they chose."""
        flooding = _Flooding(
            clients.steps.backend, frozenset(self.colluders), frozenset(self.minority)
        )
        steps = replace(clients.steps, backend=flooding)
        return super().round(state, clients.asked_by(steps), streams)


@dataclass(frozen=True, slots=True)
class _Flooding:
    """Clients of whom some lie about what they choose."""

    backend: Backend
    colluders: frozenset[Handle]
    minority: frozenset[Handle]

    def evaluate(
        self, models: tuple[Params, ...], cohort: Cohort, streams: Streams
    ) -> Losses:
        return self.backend.evaluate(models, cohort, streams)

    def nearest(
        self, state: ServerState, cohort: Cohort, streams: Streams
    ) -> Mapping[Handle, int]:
        return self.backend.nearest(state, cohort, streams)

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        training: TrainAtOnce | None = None,
    ) -> SelectionResult:
        """Let honest clients choose, and send colluders to most of the minority."""
        found = self.backend.choose(selection, state, cohort, streams, training)
        theirs = Counter(j for h, j in found.clusters.items() if h in self.minority)
        target = max(sorted(theirs), key=lambda j: theirs[j])
        said = {h: target for h in found.clusters if h in self.colluders}
        return found._replace(clusters={**found.clusters, **said})


def _mean(updates: Sequence[Params]) -> Params:
    return scale(reduce(add, updates), 1 / len(updates))


def _as_trained(seen: Seen) -> Params:
    return seen.own


def _sign_flip(seen: Seen) -> Params:
    """Return - 4 u_i."""
    return scale(seen.own, -4.0)


def _scaling(seen: Seen) -> Params:
    """Return 5 u_i: the direction is honest, the length is not."""
    return scale(seen.own, LONGEST)


def _drift(seen: Seen) -> Params:
    """Return u_i + c d: the same random direction d from all colluders in all rounds."""
    generator = Streams(0).at("agreed").generator()
    direction = {
        name: torch.from_numpy(generator.standard_normal(tuple(value.shape))).to(value)
        for name, value in sorted(seen.own.items())
    }
    length = LONGEST * median(map(norm, seen.honest)) / norm(direction)
    return add(seen.own, scale(direction, length))


def _a_little(seen: Seen) -> Params:
    """Return mean - z std of the honest updates, in every coordinate."""

    def moved(name: str) -> torch.Tensor:
        values = torch.stack([each[name] for each in seen.honest])
        return values.mean(dim=0) - DEVIATIONS * values.std(dim=0, correction=0)

    return {name: moved(name) for name in seen.own}


def _replacement(seen: Seen) -> Params:
    """Return v for which the mean of all is - u, where u is the mean of honest updates.

    ((n - m) u + m v) / n = - u  for  v = - (2 n / m - 1) u
    """
    return scale(_mean(seen.honest), 1 - 2 * seen.per_colluder)


def _against_minority(seen: Seen) -> Params:
    """Return a + (a - b): as far from the majority's mean a as the minority's b, opposite.

    Among others it looks like an honest client of a second minority. Where only one of the
    two is there, nothing tells them apart, and training is honest.
    """
    others = [u for u in seen.honest if not any(u is each for each in seen.minority)]
    if not (others and seen.minority):
        return seen.own
    return add(scale(_mean(others), 2.0), scale(_mean(seen.minority), -1.0))


ATTACKS: Mapping[str, Attack] = {
    "none": _as_trained,
    "sign flip": _sign_flip,
    "scaling": _scaling,
    "drift": _drift,
    "a little is enough": _a_little,
    LABEL_FLIP: _as_trained,
    "replacement": _replacement,
    AGAINST_MINORITY: _against_minority,
}
