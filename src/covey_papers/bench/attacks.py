"""Clients that collude: what they send in place of what they trained.

Every attack stays inside what a server on Flower accepts (`covey.flower`): no update is
longer than 5 times the median of the others. Colluders know all honest updates of their
cluster. They do not know by which rule updates are aggregated.

References:
    Baruch, Baruch, Goldberg, A Little Is Enough, 2019, section 3.
    Bagdasaryan, Veit, Hua, Estrin, Shmatikov, How To Backdoor Federated Learning, 2020,
    section 4.2: model replacement.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from statistics import median
from typing import Any, ClassVar, cast

import torch
from pydantic import Field

from covey.aggregation import (
    Aggregation,
    AggregationResult,
    ClientUpdate,
    FederationInfo,
)
from covey.components import Capability, create
from covey.params import add, norm, scale
from covey.rng import Streams
from covey.types import Params

__all__ = ["ATTACKS", "LABEL_FLIP", "Poisoned"]

LONGEST = 5.0
"""Times the median norm of the honest updates: what a server on Flower accepts."""
DEVIATIONS = 1.5
"""z of "a little is enough": standard deviations from the mean."""
LABEL_FLIP = "label flip"
"""The attack that is in the data: colluders train as everybody does."""

Attack = Callable[[Params, ClientUpdate, Sequence[Params], float], Params]
"""What a colluder sends, from its cluster's model, its own update, the honest ones, and
how many clients there are per colluder."""


class Poisoned(Aggregation):
    """Another aggregation, before which colluding clients replace their updates.

    Attributes:
        attack: one of `ATTACKS`.
        colluders: handles.
        merge: the aggregation that is attacked, and its options.
    """

    rules_out: ClassVar[frozenset[Capability]] = frozenset()

    attack: str
    colluders: list[str] = Field(default=[])
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
            return merge(models, self._sent(models, tuple(updates)), streams)

        return aggregate

    def _sent(
        self, models: Sequence[Params], updates: Sequence[ClientUpdate]
    ) -> tuple[ClientUpdate, ...]:
        """Return what arrives: a cluster without honest clients is not attacked."""
        honest: dict[int, list[Params]] = {}
        for each in updates:
            if each.handle not in self.colluders:
                honest.setdefault(each.cluster, []).append(each.update)
        return tuple(
            each
            if each.handle not in self.colluders or each.cluster not in honest
            else self._poisoned(each, models, updates, honest[each.cluster])
            for each in updates
        )

    def _poisoned(
        self,
        own: ClientUpdate,
        models: Sequence[Params],
        updates: Sequence[ClientUpdate],
        honest: Sequence[Params],
    ) -> ClientUpdate:
        here = sum(each.cluster == own.cluster for each in updates)
        per_colluder = here / (here - len(honest))
        made = ATTACKS[self.attack](models[own.cluster], own, honest, per_colluder)
        most, length = LONGEST * median(map(norm, honest)), norm(made)
        return replace(
            own, update=scale(made, most / length) if length > most else made
        )


def _as_trained(
    _: Params, own: ClientUpdate, __: Sequence[Params], ___: float
) -> Params:
    return own.update


def _sign_flip(
    _: Params, own: ClientUpdate, __: Sequence[Params], ___: float
) -> Params:
    """Return - 4 u_i."""
    return scale(own.update, -4.0)


def _scaling(_: Params, own: ClientUpdate, __: Sequence[Params], ___: float) -> Params:
    """Return 5 u_i: the direction is honest, the length is not."""
    return scale(own.update, LONGEST)


def _drift(_: Params, own: ClientUpdate, honest: Sequence[Params], __: float) -> Params:
    """Return u_i + c d: the same random direction d from all colluders in all rounds."""
    generator = Streams(0).at("agreed").generator()
    direction = {
        name: torch.from_numpy(generator.standard_normal(tuple(value.shape))).to(value)
        for name, value in sorted(own.update.items())
    }
    length = LONGEST * median(map(norm, honest)) / norm(direction)
    return add(own.update, scale(direction, length))


def _a_little(
    _: Params, own: ClientUpdate, honest: Sequence[Params], __: float
) -> Params:
    """Return mean - z std of the honest updates, in every coordinate."""

    def moved(name: str) -> torch.Tensor:
        values = torch.stack([each[name] for each in honest])
        return values.mean(dim=0) - DEVIATIONS * values.std(dim=0, correction=0)

    return {name: moved(name) for name in own.update}


def _replacement(
    _: Params, __: ClientUpdate, honest: Sequence[Params], per_colluder: float
) -> Params:
    """Return v for which the mean of all is - u, where u is the mean of honest updates.

    ((n - m) u + m v) / n = - u  for  v = - (2 n / m - 1) u
    """
    mean = scale(reduce(add, honest), 1 / len(honest))
    return scale(mean, 1 - 2 * per_colluder)


ATTACKS: Mapping[str, Attack] = {
    "none": _as_trained,
    "sign flip": _sign_flip,
    "scaling": _scaling,
    "drift": _drift,
    "a little is enough": _a_little,
    LABEL_FLIP: _as_trained,
    "replacement": _replacement,
}
