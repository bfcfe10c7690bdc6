"""What one line of the list of runs says."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["RunEntry", "RunState"]

RunState = Literal["running", "waiting", "finished", "damaged", "unreadable"]
"""running: a process holds the right to write it; waiting: not at its end, and nobody
plays it; damaged: what is there is not what covey wrote; unreadable: it cannot be looked
at from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """A run as it was found. What is not known is None, or "" for texts.

    Attributes:
        place: its folder; of a ledger in a database without a folder, the URL, without a
            password.
        folder: None where only a ledger's URL was given.
        name: its folder below the root that it was found under, or the URL's `run`.
        reason: what `state` rests on, where that is not plain: the fault, for example.
        rounds_played: those that count; rounds that were taken back do not.
        last_event: the kind of the newest event.
        last_event_at: when it was recorded, ISO 8601.
        age_seconds: how long ago that was.
        clients: those that have not left.
        size_bytes: of all files in the folder, but for runs inside it.
        ledger_head: the newest hash, cut to 12 digits; what it seals is verified only if
            `is_verified` says so.
        open_requests: to leave, that wait for an answer or are being answered.
        undelivered_answers: whose salt nobody has acknowledged.
        proofs: how many there are in the folder.
        guarantees: of differential privacy, that hold; each a sentence.
        guarantee_reason: why none holds, or why that is not known.
        is_verified: whether the ledger's whole chain was read.
    """

    place: str
    folder: Path | None
    name: str
    state: RunState
    reason: str = ""
    method: str = ""
    rounds_played: int | None = None
    rounds_planned: int | None = None
    last_event: str = ""
    last_event_at: str = ""
    age_seconds: float | None = None
    clients: int | None = None
    size_bytes: int = 0
    ledger_head: str = ""
    open_requests: int | None = None
    undelivered_answers: int = 0
    proofs: int = 0
    guarantees: tuple[str, ...] = ()
    guarantee_reason: str = ""
    is_verified: bool = False

    def answer(self) -> dict[str, Any]:
        """Return it for a program, in JSON's values."""
        told = asdict(self)
        folder = None if self.folder is None else str(self.folder)
        return {**told, "folder": folder, "guarantees": list(self.guarantees)}
