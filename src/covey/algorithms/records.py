"""The one way from a round to what heads are solved from: records here, or messages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from covey.algorithms.backend import Backend
from covey.algorithms.base import Cohort
from covey.algorithms.local_clients import LocalClients
from covey.algorithms.masked_sums import Moves, Summed
from covey.data.examples import Client, Examples
from covey.engine.fixed_features import LocalRecords
from covey.events import Event
from covey.heads import (
    ClusterSums,
    Head,
    HeadNoise,
    SentHead,
    SumNoise,
    Sums,
    scores_without_client,
)
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["Records", "RecordsHere", "heads_of", "losses_without_oneself"]


@runtime_checkable
class Records(Protocol):
    """Clients' records, as far as sums and choices need them."""

    @property
    def classes(self) -> int:
        """How many outputs a head has."""
        ...

    @property
    def noise(self) -> SumNoise | HeadNoise | None:
        """What hides the sums, or the heads, that are released; None: nothing does."""
        ...

    @property
    def are_apart(self) -> bool:
        """Whether they are not here, and whoever is asked may give no answer."""
        ...

    @property
    def lacking(self) -> frozenset[Handle]:
        """Who was asked for its sums, and gave none that are in order."""
        ...

    @property
    def facts(self) -> tuple[Event, ...]:
        """What is to be told of their answers."""
        ...

    @property
    def summed(self) -> Summed | None:
        """Whose sums came under masks; None: masks are not asked of these clients."""
        ...

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return the mean features of every client that tells them."""
        ...

    def ready(
        self, known: ClusterSums, cohort: Cohort, d: int, round_index: int
    ) -> "Records":
        """Return the records with these clients' sums at hand, but for who is `lacking`.

        Args:
            known: the sums so far.
            cohort: whose sums are needed.
            d: how many features there are, and a bias.
            round_index: the round that they are needed in.
        """
        ...

    def under_masks(
        self, known: ClusterSums, cohort: Cohort, moves: Moves, d: int, round_index: int
    ) -> "Records":
        """Return the records with the sums of who moves at hand, each group's together.

        Args:
            known: the sums so far.
            cohort: all who want to move.
            moves: where to, and with whom.
            d: how many features there are, and a bias.
            round_index: the round that they are needed in.
        """
        ...

    def sums(self, clients: Iterable[tuple[Client, int]], d: int) -> Sums:
        """Return the sums over these clients, each at its weight; all were made `ready`."""
        ...

    def noted(self, sums: ClusterSums) -> ClusterSums:
        """Return the sums with what has to be known of whoever is counted in them."""
        ...

    def judging(
        self, backend: Backend, known: ClusterSums | None, *, last: bool
    ) -> Backend:
        """Return how clients choose among heads; nobody trains.

        Args:
            backend: how they are reached.
            known: the sums from which they compare heads that never met them; None: they
                compare the models as they are.
            last: whether it is the last choice of a run.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecordsHere:
    """Simulated clients' records."""

    records: LocalRecords

    @property
    def classes(self) -> int:
        """How many outputs a head has."""
        return self.records.classes

    @property
    def noise(self) -> SumNoise | HeadNoise | None:
        """What hides the sums, or the heads, that are released; None: nothing does."""
        return self.records.noise

    @property
    def are_apart(self) -> bool:
        """They are here."""
        return False

    @property
    def lacking(self) -> frozenset[Handle]:
        """Nobody: everything is here."""
        return frozenset()

    @property
    def facts(self) -> tuple[Event, ...]:
        """Nothing."""
        return ()

    @property
    def summed(self) -> Summed | None:
        """Nobody's: every round of secure sums is played where they are added."""
        return None

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return every client's mean features."""
        del d, round_index
        return {each.handle: self.records.mean(each.train) for each in cohort}

    def ready(
        self, known: ClusterSums, cohort: Cohort, d: int, round_index: int
    ) -> "RecordsHere":
        """Return the records as they are."""
        del known, cohort, d, round_index
        return self

    def under_masks(
        self, known: ClusterSums, cohort: Cohort, moves: Moves, d: int, round_index: int
    ) -> "RecordsHere":
        """Return the records as they are."""
        del known, cohort, moves, d, round_index
        return self

    def sums(self, clients: Iterable[tuple[Client, int]], d: int) -> Sums:
        """Return the sums over these clients, each at its weight."""
        return self.records.sums(((each.train, w) for each, w in clients), d)

    def noted(self, sums: ClusterSums) -> ClusterSums:
        """Return the sums as they are."""
        return sums

    def judging(
        self, backend: Backend, known: ClusterSums | None, *, last: bool
    ) -> Backend:
        """Return how clients compare heads that never met them, or models as they are."""
        del last
        if known is None:
            return backend
        records = self.records
        heads = [known.head(j) for j in range(len(known.gram))]

        def evaluate(_: object, cohort: Cohort, __: Streams) -> Tensor:
            found = torch.empty(len(cohort), len(heads))
            for i, client in enumerate(cohort):
                stake = known.stake(client.handle)
                found[i] = losses_without_oneself(records, client.train, heads, stake)
            return found

        return LocalClients(evaluate)


def losses_without_oneself(
    records: LocalRecords,
    examples: Examples,
    heads: Sequence[Head | SentHead],
    stake: tuple[int, Sequence[float]],
) -> Float[Tensor, " heads"]:
    """Return a client's mean loss under every head, as it would be without the client.

    Args:
        records: turns its examples into features.
        examples: the client's.
        heads: solved from everybody's sums, the client's among them.
        stake: as `ClusterSums.stake` returns it.
    """
    weight, shares = stake
    rows = records.rows(examples, weight)
    scores = (
        scores_without_client(head, rows, share)
        for head, share in zip(heads, shares, strict=True)
    )
    return torch.stack([records.losses(each, rows.labels).mean() for each in scores])


def heads_of(
    models: Sequence[Params], roots: Mapping[int, Tensor]
) -> tuple[SentHead, ...]:
    """Return heads as a client was sent them."""
    return tuple(
        SentHead.of(each["head.weight"], each["head.bias"], roots.get(j))
        for j, each in enumerate(models)
    )
