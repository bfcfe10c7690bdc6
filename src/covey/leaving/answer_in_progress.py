"""A request whose answer is recorded: what its proof needs until it is signed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter, ValidationError

from covey.leaving.facts import STRICT, AttackFigure, Superseded, Unmeasured, ValueOrReason
from covey.leaving.plan import Option
from covey.ledger.requests import LeaveRequest, damaged_note, mistimed


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerInProgress:
    """A request that is being served: what its proof needs, and no event holds.

    Attributes:
        option: the answer, and the rounds that are played again.
        until: the round before which all of them have been played.
        salt: hex; what the requester receives with the answer.
        subject: its mark.
        model_before: SHA-256 of the cluster models before the answer.
        measured_before: how well the model gave the requester away.
        updates_stored: whether there are raw updates to delete.
        superseded: how many artefacts of each kind the answer makes obsolete.
        cluster: the one cluster that ever met the client; None: there may be more.
    """

    __pydantic_config__ = STRICT

    option: Option
    until: int
    salt: str = field(repr=False)
    subject: str
    model_before: str
    measured_before: ValueOrReason[AttackFigure, Unmeasured]
    updates_stored: bool
    superseded: Mapping[Superseded, int]
    cluster: int | None = None

    @classmethod
    def of(cls, request: LeaveRequest) -> "AnswerInProgress":
        """Return what is known of a request that is being served.

        Raises:
            LedgerError: it is not, or what stands with it is something else.
        """
        if request.served is None:
            raise mistimed(request.id, "served", request.state)
        try:
            return _json.validate_json(request.served)
        except ValidationError as error:
            raise damaged_note(request.id, error) from error

    def noted(self, request: LeaveRequest, sealed: str | None) -> LeaveRequest:
        """Return a request with what its answer needs, and with what finds the client again."""
        return replace(request, served=_json.dump_json(self).decode(), sealed=sealed)

    @property
    def subtracts(self) -> bool:
        """Whether the last round is solved again from sums without the requester."""
        return self.option.answer == "subtract" and self.option.first_replayed_round is not None


_json = TypeAdapter(AnswerInProgress)
