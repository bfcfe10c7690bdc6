"""A federation whose clients are remote, as the server sees it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from covey.algorithms import ClientRequest, ClientResponse, Cohort
from covey.data import Examples
from covey.events import Event
from covey.types import ClientName

__all__ = ["ClientBackend", "ClientReports", "DataProfile", "KnowsKeys"]


@dataclass(frozen=True, slots=True)
class DataProfile:
    """What a server must know of the clients' data to build a model.

    Attributes:
        shape: of one example.
        images: whether examples are uint8 images, or else features or ids.
        whole: whether they are whole numbers: ids for an embedding.
    """

    shape: tuple[int, ...]
    images: bool
    classes: int
    whole: bool = False

    def empty_examples(self) -> Examples:
        """Return no examples, of this kind."""
        plain = torch.int64 if self.whole else torch.float32
        dtype = torch.uint8 if self.images else plain
        labels = torch.empty(0, dtype=torch.int64)
        return Examples(torch.empty((0, *self.shape), dtype=dtype), labels)


@dataclass(frozen=True, slots=True)
class ClientReports:
    """What came of asking, beside the answers.

    Attributes:
        events: who did not answer, who was refused and why, what clients report.
        leaving: clients that ask to be forgotten.
    """

    events: tuple[Event, ...] = ()
    leaving: tuple[ClientName, ...] = ()


@runtime_checkable
class ClientBackend(Protocol):
    """A way to remote clients."""

    @property
    def profile(self) -> DataProfile:
        """What their data look like."""
        ...

    def available_clients(self) -> Collection[ClientName]:
        """Return who can be asked now."""
        ...

    def ask(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Return the answers that came in time and in order, in the cohort's order."""
        ...

    def reports(self) -> ClientReports:
        """Return what has happened since the last time this was asked."""
        ...


@runtime_checkable
class KnowsKeys(Protocol):
    """A way to remote clients that knows them by keys; their names stay bound to these."""

    def keys(self) -> Mapping[ClientName, str]:
        """Return the fingerprint of the key of each client that has come."""
        ...
