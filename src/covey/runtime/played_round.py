"""A round as a program is told of it, right after it was recorded."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from covey.history import History
from covey.risk import RiskEstimate
from covey.runtime.session import Session
from covey.types import ClientName, Handle

__all__ = ["ClientValues", "OnRound", "PlayedRound", "played_round"]


@dataclass(frozen=True, slots=True)
class ClientValues:
    """What is known of one client after a round; None: it is not known here.

    Attributes:
        cluster: the one that it chose last.
        risk: the estimate of its cluster's model that is in force.
        threshold: the highest risk that it accepts.
        loss: of its training in this round, in nats: the mean over the batches of its last
            epoch. It is recorded nowhere, and not known of clients that are apart, of
            those that did not train now, and where their gradients are private.
    """

    cluster: int | None
    risk: float | None
    risk_standard_error: float | None
    threshold: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """One round that was just recorded; figures that are not known are None.

    Attributes:
        round: its number, from 0.
        participants: how many clients took part.
        loss: of training, in nats: the mean over the clients of whom it is known.
        clients: per cluster, how many clients chose it last.
        risks: per cluster, the estimate in force with its standard error.
        moved: how many of the participants changed their cluster.
        over: how many clients are in a cluster whose risk is above what they accept.
        again: whether the round was played before, and rolled back as a client left.
        values: what is known of each client that has not left, by name.
    """

    round: int
    participants: int
    accuracy: float | None
    accuracy_by_group: Mapping[str, float]
    squared_error: float | None
    squared_error_by_group: Mapping[str, float]
    loss: float | None
    clients: tuple[int, ...]
    risks: tuple[RiskEstimate | None, ...]
    moved: int
    over: int | None
    again: bool
    values: Mapping[ClientName, ClientValues]


OnRound = Callable[[PlayedRound], None]
"""Called once with each round that is recorded, and never with one that was before.

What it raises stops the run, which can be resumed: the round is kept.
"""


def played_round(
    session: Session, history: History, losses: Mapping[Handle, float], *, again: bool
) -> PlayedRound:
    """Return the newest round of a story, with the losses of those who trained in it."""
    row = history.rounds[-1]
    return PlayedRound(
        round=row.round_index,
        participants=row.participants,
        accuracy=row.accuracy,
        accuracy_by_group=row.accuracy_by_group,
        squared_error=row.squared_error,
        squared_error_by_group=row.squared_error_by_group,
        loss=fmean(losses.values()) if losses else None,
        clients=row.clients,
        risks=row.risks,
        moved=row.moved,
        over=row.over,
        again=again,
        values={
            client.name: _values(client.handle, history, losses.get(client.handle))
            for client in session.run.population.clients
        },
    )


def _values(handle: Handle, history: History, loss: float | None) -> ClientValues:
    cluster = history.assignment.get(handle)
    found = None if cluster is None else history.figures.get(cluster)
    thresholds = history.started.risk_thresholds if history.started else {}
    return ClientValues(
        cluster=cluster,
        risk=found.risk if found else None,
        risk_standard_error=found.standard_error if found else None,
        threshold=thresholds.get(handle),
        loss=loss,
    )
