"""What is known of an answer: codes and numbers, which a proof signs and words are made of.

`Facts` name nobody: the requester recognises itself by a mark that only its name and the
salt that it alone was given make again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, TypeVar

from pydantic import ConfigDict

from covey.base.names import Basis
from covey.unlearning.plan import AnswerKind, Influence, ReplayKind
from covey.unlearning.signature import instant

T = TypeVar("T")
R = TypeVar("R", bound=str)

STRICT = ConfigDict(strict=True, extra="forbid")
"""How a document is read back: no value is bent into shape, none is passed over."""

Fate = Literal["deleted", "unchanged", "outside", "missing"]
"""What became of a copy; "unchanged": of a model that the answer did not change."""

Superseded = Literal["pages", "states", "updates"]
"""Kinds of artefacts; "pages": report, figures, metrics, audit, baseline."""

Unmeasured = Literal["", "too-few", "not-at-hand", "gone", "diverged-before", "diverged-after"]
"""Why no attack was measured; "gone": the answer was interrupted, and the data are gone since."""


@dataclass(frozen=True)  # slots would make `ValueOrReason[float, str](0.5)` raise
class ValueOrReason(Generic[T, R]):
    """A value; or None, and the code of why it is not known or has no bound."""

    __pydantic_config__ = STRICT

    value: T | None
    reason: R | Literal[""]

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.reason):
            raise ValueError("expected a value or a reason: give one of them")


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

    round_index: int
    cluster: int
    size_left: int
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

    cluster: int
    mia_accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """One attack on the requester's data, before and after; None: it gave no figure any more."""

    __pydantic_config__ = STRICT

    before: AttackFigure
    after: AttackFigure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCopy:
    """A copy that had been written out of the run, and what became of it.

    Attributes:
        what: a model, or a page that shows the run as it was.
        sha256: of the copy; None: it was never whole.
        path_sha256: of where it was written, as the run's record has it.
        recipient: for whom, if that was recorded; never a client of the run.
        fate: "outside" and "missing" are not deleted.
        notify: whether the recipient is to be told that the model is superseded.
    """

    __pydantic_config__ = STRICT

    what: Literal["model", "report", "comparison", "explanation"]
    sha256: str | None
    path_sha256: str
    recipient: str | None
    fate: Fate
    notify: bool


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

    cluster: int
    before: str
    after: str
    clients_before: int
    clients_after: int


@dataclass(frozen=True, slots=True)
class HeadsHeld:
    """Ridge heads under noise that a client's records were in, and that are out there.

    Attributes:
        heads: how many.
        weight: the largest with which they were in one.
        bound: how often anybody who has all of them is right at most about whether one of
            its records was there.
    """

    __pydantic_config__ = STRICT

    heads: int
    weight: float
    bound: float


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
        receipt: SHA-256 of the receipt that was signed when it was asked; None: there is
            none.
        consistency: the path that shows that the ledger's tree begins with the receipt's.
    """

    __pydantic_config__ = STRICT

    covey_version: str
    answered: str
    subject: str
    model_before: str
    model_after: str
    raw_updates_deleted: ValueOrReason[bool, Literal["none-stored"]]
    superseded_deleted: Mapping[Superseded, int]
    measured: ValueOrReason[Measurement, Unmeasured]
    copies: tuple[SettledCopy, ...]
    receipt: str | None
    consistency: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(Word):
    """All that is known of an answer. No name, no handle: only the requester's mark.

    What follows from a ledger's events is found by `covey.runtime.facts.facts`, for who
    signs and for who checks.

    Attributes:
        request: the request's identifier.
        run: the run's identifier.
        asked: when the request came, ISO 8601.
        basis: what the request rests on.
        answer: what was answered.
        ledger_head: the ledger's hash when the answer was given.
        ledger_events: the position of that hash, counted from 1.
        tree_root: of the Merkle tree over the ledger's events up to `ledger_events`.
        inclusion: the path that shows that `ledger_head` is the last leaf of that tree.
        rounds: those in which a set held the requester.
        deniability_threshold: x, members that must remain; None where no sets are used.
        min_anonymity: k, the smallest set; None where no sets are used.
        max_distance: L2, beyond which a member does not count towards x; None if all do.
        first_round: in which the requester's data were used; None if in none.
        first_affected_round: the first that the answer takes back; None if none is.
        first_replayed_round: None if nothing was replayed.
        rounds_replayed: how many.
        replayed: how rounds were played again: with the others' choices as "recorded",
            "anew", "calibrated", or without asking anybody, from sums ("subtracted");
            None: none was.
        representative_probability: that the requester's update ever stood for its set.
        refutation: probability that who holds two candidates' updates tells the right
            one; 0.5 is a guess, 1 is certainty.
        touched: what else depended on the requester.
        secrets: "seeded" or "os", where representatives and noise came from.
        guarantee: of differential privacy, with mechanism, relation and adversary.
        sealed_record_kept: whether the requester's name and salt together still find it,
            for a stronger answer.
        subtracted: every cluster's sums; only where some were subtracted.
        own_sums_kept: whether the server kept each client's own sums, so that what was
            subtracted came from there; only of subtractions.
        earlier_heads: only of subtractions from heads under noise.
    """

    __pydantic_config__ = STRICT

    request: str
    run: str
    asked: str
    basis: Basis
    answer: AnswerKind
    ledger_head: str
    ledger_events: int
    tree_root: str
    inclusion: tuple[str, ...]
    rounds: tuple[HeldRound, ...]
    deniability_threshold: int | None
    min_anonymity: int | None
    max_distance: float | None
    first_round: int | None
    first_affected_round: int | None
    first_replayed_round: int | None
    rounds_replayed: int
    replayed: ReplayKind | None
    representative_probability: ValueOrReason[float, Literal["not-hidden"]]
    refutation: ValueOrReason[float, Literal["no-set", "noise-unknown"]]
    touched: tuple[Influence, ...]
    secrets: Literal["seeded", "os"]
    guarantee: ValueOrReason[Mapping[str, Any], str]
    sealed_record_kept: bool
    subtracted: tuple[SubtractedSums, ...]
    own_sums_kept: bool
    earlier_heads: HeadsHeld | None

    @property
    def model_changed(self) -> bool:
        """Whether the two model hashes differ."""
        return self.model_before != self.model_after


WORD = frozenset(each.name for each in fields(Word))
"""The facts that a ledger need not hold."""

_REPLAYS: Mapping[AnswerKind, tuple[ReplayKind, ...]] = {
    "deny": (),
    "stop": (),
    "subtract": ("subtracted",),
    "roll_back": ("recorded", "anew"),
    "retrain": ("anew",),
    "calibrate": ("calibrated", "anew"),
}


def contradictions(facts: Facts) -> Iterator[str]:
    """Yield which facts contradict each other, whatever a ledger says; one line each."""
    asked, answered = instant(facts.asked), instant(facts.answered)
    if asked is None or answered is None:
        yield "asked and answered must be moments, as ISO 8601 with an offset"
    elif answered < asked:
        yield "answered: before it was asked"
    yield from _of_replay(facts)
    yield from _of_sets(facts)
    yield from _of_sums(facts)
    for name in ("representative_probability", "refutation"):
        value = getattr(facts, name).value
        if value is not None and not 0 <= value <= 1:
            yield f"{name} is no probability: {value}"
    found = facts.measured.value
    for figure in (found.before, found.after) if found else ():
        if figure and not (0 <= figure.mia_accuracy <= 1 and figure.low <= figure.high):
            yield "measured: not a share of right answers with its interval"
    if facts.answer != "subtract":
        for name in ("earlier_heads", "own_sums_kept"):
            if getattr(facts, name):
                yield f"{name}: it belongs to answers that subtract sums"
    if facts.sealed_record_kept and facts.answer == "retrain":
        yield "sealed_record_kept: after a retraining no sealed record is kept"


def _of_replay(facts: Facts) -> Iterator[str]:
    start, affected = facts.first_replayed_round, facts.first_affected_round
    if start is None:
        if facts.rounds_replayed or facts.replayed or affected is not None:
            yield (
                "first_replayed_round: no round was played again, but others are counted "
                "or affected"
            )
        if facts.answer == "roll_back":
            yield "first_replayed_round: a roll-back plays rounds again, and none is named"
        return
    if facts.answer in ("deny", "stop"):
        yield f"first_replayed_round: a {facts.answer} plays no round again"
    elif facts.replayed not in _REPLAYS[facts.answer]:
        yield f"replayed: {facts.answer} does not play rounds again as {facts.replayed}"
    if facts.rounds_replayed < 1:
        yield "rounds_replayed: a round was played again, but none is counted"
    if affected is None or affected < start:
        yield "first_affected_round: it comes before the first replayed round, or is none"


def _of_sets(facts: Facts) -> Iterator[str]:
    places = [(each.round_index, each.cluster) for each in facts.rounds]
    if len(set(places)) < len(places) or [t for t, _ in places] != sorted(t for t, _ in places):
        yield "rounds: they are not in order, or one of them stands there twice"
    first = facts.first_round
    if places and (first is None or places[0][0] < first):
        yield "first_round: a set held the requester before its first round"


def _of_sums(facts: Facts) -> Iterator[str]:
    due = facts.answer == "subtract" and facts.first_replayed_round is not None
    if due != bool(facts.subtracted):
        yield "subtracted: it belongs to answers that subtracted sums, and to those"
    if due and facts.rounds_replayed != 1:
        yield "rounds_replayed: a subtraction solves the heads of one round again"
    for j, each in enumerate(facts.subtracted):
        gone = each.clients_before - each.clients_after
        if each.cluster != j or each.clients_after < 0 or gone < 0:
            yield "subtracted: clusters out of order, or of fewer clients than none"
        elif not gone and each.before != each.after:
            yield "subtracted: sums that nobody left were changed"
