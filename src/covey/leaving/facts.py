"""What is known of an answer: codes and numbers, which a proof signs and words are made of.

`Facts` name no one: the requester recognises itself by a mark that only its name and the
salt that it alone received make again. `AnswerInProgress` is what a proof needs until it is signed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from covey.base.events import Share
from covey.base.guarantee import Guaranteed, NoGuaranteeCode
from covey.base.names import Basis, Distance
from covey.base.signature import instant
from covey.leaving.plan import AnswerKind, Influence, Option, ReplayKind
from covey.ledger.requests import LeaveRequest, damaged_note, mistimed

T = TypeVar("T")
R = TypeVar("R", bound=str)

STRICT = ConfigDict(strict=True, extra="forbid")
"""How a document is read back: no value is bent into shape, none is passed over."""

Number = Annotated[int, Field(ge=0, lt=2**63)]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Hashes = Annotated[tuple[Hash, ...], Field(max_length=128)]
"""Hashes of a tree's nodes."""
Identifier = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
Moment = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)$")
]
"""ISO 8601 with its offset."""
Version = Annotated[str, Field(pattern=r"^(\d{1,4}\.){1,3}\d{1,4}((a|b|rc|\.dev|\.post)\d{1,4})*$")]

Fate = Literal["deleted", "unchanged", "outside", "missing"]
"""What became of a copy; "unchanged": of a model that the answer did not change."""

Superseded = Literal["pages", "states", "updates"]
"""Kinds of artefacts; "pages": report, figures, metrics, audit, baseline."""

Unmeasured = Literal["", "too-few", "not-at-hand", "gone", "diverged-before", "diverged-after"]
"""Why no attack was measured; "gone": the answer was interrupted, and the data are gone since."""


_REPLAYS: Mapping[AnswerKind, tuple[ReplayKind, ...]] = {
    "deny": (),
    "stop": (),
    "subtract": ("subtracted",),
    "roll_back": ("recorded", "anew"),
    "retrain": ("anew",),
    "calibrate": ("calibrated", "anew"),
}


@dataclass(frozen=True)  # slots would make `ValueOrReason[float, str](0.5)` raise
class ValueOrReason(Generic[T, R]):
    """A value; or None, and the code of why it is not known or has no bound."""

    __pydantic_config__ = STRICT

    value: T | None
    reason: R | Literal[""]

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.reason):
            raise ValueError("a value or a reason must be given, found both or none: give one")


def known(value: T | None, reason: R) -> ValueOrReason[T, R]:
    """Return a value, or why it is None."""
    return ValueOrReason(value, reason if value is None else "")


@dataclass(frozen=True, slots=True)
class HeldRound:
    """A round in which an anonymity set held the requester.

    Attributes:
        size_left: the set's members that count towards x, without the requester and
            all others who left.
        diameter: the largest L2 distance between two of its updates, when formed.
    """

    __pydantic_config__ = STRICT

    round_index: Number
    cluster: Number
    size_left: Number
    diameter: ValueOrReason[float, Literal["no-distances"]]


@dataclass(frozen=True, slots=True)
class AttackFigure:
    """How well a model gives the requester away.

    Attributes:
        cluster: the number of the model.
        mia_accuracy: balanced accuracy of the attack, in [0, 1].
        low: the lower end of its 95% interval.
        high: the upper end.
    """

    __pydantic_config__ = STRICT

    cluster: Number
    mia_accuracy: Share
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One attack on the requester's data, before and after; None: it gave no figure any more."""

    __pydantic_config__ = STRICT

    before: AttackFigure
    after: AttackFigure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFact:
    """A copy that had been written out of the run, and what became of it.

    Attributes:
        what: a model, or a page that shows the run as it was.
        sha256: of the copy; None: it was never whole.
        path_sha256: of where it was written, as the run's record has it.
        recipient: for whom, if that was recorded; never a client of the run. The one text
            from outside: it is shown as a quotation.
        fate: "outside" and "missing" are not deleted.
        notify: whether the recipient is to be notified that the model is superseded.
    """

    __pydantic_config__ = STRICT

    what: Literal["model", "report", "comparison", "explanation"]
    sha256: Hash | None
    path_sha256: Hash
    recipient: Annotated[str, Field(max_length=5_000)] | None
    fate: Fate
    notify: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPart:
    """A part of the run that is not covey's code.

    Attributes:
        setting: that names it, such as `train.loss`.
        name: under which settings record it.
        source: SHA-256 of its source; None: not recorded.
    """

    __pydantic_config__ = STRICT

    setting: Annotated[str, Field(pattern=r"^[a-z_.]{1,100}$")]
    name: Annotated[str, Field(pattern=r"^[\w.:-]{1,200}$")]
    source: Hash | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtractedSums:
    """The sums that one cluster's model is solved from, before and after an answer.

    Attributes:
        before: SHA-256 of the whole numbers, with all who left.
        after: the same, without.
        clients_before: how many clients' records were in them.
        clients_after: how many are.
    """

    __pydantic_config__ = STRICT

    cluster: Number
    before: Hash
    after: Hash
    clients_before: Number
    clients_after: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What rests on the signer's word, where no event says it.

    Attributes:
        covey_version: that gave the answer.
        answered: when, ISO 8601.
        subject: `subject_mark` of the requester.
        model_before: SHA-256 of the cluster models' safetensors bytes before the answer.
        model_after: the same, after it.
        raw_updates_deleted: whether what the requester had sent, if stored, was.
        superseded_deleted: how many artefacts of each kind the answer made obsolete and
            were deleted before signing.
        measured: an attack on the requester's data before and after, with intervals.
        copies: of models and pages that had been exported or shown.
        receipt: SHA-256 of the receipt that was signed for the request; None: there is
            none.
        consistency: the path that shows that the ledger's tree begins with the receipt's.
    """

    __pydantic_config__ = STRICT

    covey_version: Version
    answered: Moment
    subject: Hash
    model_before: Hash
    model_after: Hash
    raw_updates_deleted: ValueOrReason[bool, Literal["none-stored"]]
    superseded_deleted: Mapping[Superseded, Number]
    measured: ValueOrReason[Measurement, Unmeasured]
    copies: tuple[CopyFact, ...]
    receipt: Hash | None
    consistency: Hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Word):
    """All that is known of an answer. No name, no handle: only the requester's mark.

    What follows from a ledger's events is found by `covey.leaving.evidence.facts`, for who
    signs and for who checks.

    Attributes:
        request: the request's identifier.
        run: the run's identifier.
        requested: when the request came, ISO 8601.
        basis: what the request rests on.
        answer: what was answered.
        ledger_head: the ledger's hash at the moment of the answer.
        ledger_events: the position of that hash, counted from 1.
        tree_root: of the Merkle tree over the ledger's events up to `ledger_events`.
        inclusion: the path that shows that `ledger_head` is the last leaf of that tree.
        rounds: those in which a set held the requester.
        deniability_threshold: x, members that must remain; None where no sets are used.
        min_anonymity: k, the smallest set; None where no sets are used.
        max_distance: beyond which a member does not count towards x; None if all do.
        distance: by which: L2 between updates, or cosine between models; None if all count.
        first_round: in which the requester's data were used; None if in none.
        first_affected_round: the first that the answer takes back; None if none is.
        first_replayed_round: None if nothing was replayed.
        rounds_replayed: how many.
        replayed: how rounds were played again: with the others' choices as "recorded",
            "anew", "calibrated", or without asking anybody, from sums ("subtracted");
            None: none was.
        representative_probability: that the requester's update ever stood for its set.
        refutation: probability that an attacker with two candidates' updates picks the right
            one in one round, at most; 0.5 is a guess, 1 is certainty.
        touched: what else depended on the requester.
        secrets: "seeded" or "os", where representatives and noise came from.
        guarantee: of differential privacy, with mechanism, relation and adversary.
        sealed_record_kept: whether the requester's name and salt together still find it,
            for a stronger answer.
        subtracted: every cluster's sums; only where some were subtracted.
        own_parts: of the run that are not covey's code.
    """

    __pydantic_config__ = STRICT

    request: Identifier
    run: Identifier
    requested: Moment
    basis: Basis
    answer: AnswerKind
    ledger_head: Hash
    ledger_events: Annotated[int, Field(ge=1, lt=2**63)]
    tree_root: Hash
    inclusion: Hashes
    rounds: tuple[HeldRound, ...]
    deniability_threshold: Number | None
    min_anonymity: Number | None
    max_distance: float | None
    distance: Distance | None
    first_round: Number | None
    first_affected_round: Number | None
    first_replayed_round: Number | None
    rounds_replayed: Number
    replayed: ReplayKind | None
    representative_probability: ValueOrReason[Share, Literal["not-hidden"]]
    refutation: ValueOrReason[Share, Literal["no-set", "noise-unknown"]]
    touched: tuple[Influence, ...]
    secrets: Literal["seeded", "os"]
    guarantee: ValueOrReason[Guaranteed, NoGuaranteeCode]
    sealed_record_kept: bool
    subtracted: tuple[SubtractedSums, ...]
    own_parts: tuple[OwnPart, ...]

    @property
    def model_changed(self) -> bool:
        """Whether the two model hashes differ."""
        return self.model_before != self.model_after


WORD = frozenset(field.name for field in fields(Word))
"""The facts that a ledger need not hold."""


def contradictions(facts: Facts) -> list[str]:
    """Return the names of facts that the others contradict, whatever a ledger says."""
    answer, start, affected = facts.answer, facts.first_replayed_round, facts.first_affected_round
    requested, answered = instant(facts.requested), instant(facts.answered)
    held, x, measured = facts.rounds, facts.deniability_threshold, facts.measured.value
    rounds, places = [e.round_index for e in held], {(e.round_index, e.cluster) for e in held}
    attacks = [attack for attack in (measured.before, measured.after) if attack] if measured else []
    gone = [cluster.clients_before - cluster.clients_after for cluster in facts.subtracted]
    stays, subtracts = answer in ("deny", "stop"), answer == "subtract"
    wrong: Mapping[str, object] = {
        "requested": requested is None,
        "answered": answered is None or (requested and answered < requested),
        # a roll-back plays rounds again; where none is, none is counted or affected
        "first_replayed_round": start is None
        and (answer == "roll_back" or facts.rounds_replayed or facts.replayed),
        "replayed": start is not None and facts.replayed not in _REPLAYS[answer],
        # a subtraction solves the heads of one round again
        "rounds_replayed": start is not None
        and (not facts.rounds_replayed or (subtracts and facts.rounds_replayed > 1)),
        "first_affected_round": (start is None) != (affected is None)
        or (start is not None and affected is not None and affected < start),
        "first_round": rounds and (facts.first_round is None or rounds[0] < facts.first_round),
        # in order, each once, and large enough for a denial
        "rounds": rounds != sorted(rounds)
        or len(places) < len(rounds)
        or (answer == "deny" and any(hidden.size_left < (x or 0) for hidden in held)),
        "deniability_threshold": answer == "deny" and x is None,
        "distance": (facts.distance is None) != (facts.max_distance is None),
        "model_after": stays and facts.model_changed,
        # sums change where somebody left, and of no client more than before
        "subtracted": bool(gone) != (subtracts and start is not None)
        or any(cluster.cluster != j for j, cluster in enumerate(facts.subtracted))
        or any(
            n < 0 or (not n and cluster.before != cluster.after)
            for n, cluster in zip(gone, facts.subtracted, strict=True)
        ),
        "sealed_record_kept": facts.sealed_record_kept and answer == "retrain",
        "measured": any(attack.low > attack.high for attack in attacks),
        "consistency": facts.consistency and facts.receipt is None,
        "superseded_deleted": facts.superseded_deleted and answer == "stop",
        "raw_updates_deleted": facts.raw_updates_deleted.value and answer == "stop",
    }
    return [name for name, holds in wrong.items() if holds]


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
