"""What a proof says: the facts it is made of, and the sentences they oblige it to say.

Every sentence follows from the facts alone, so that no proof can claim more than its
own figures bear.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import ConfigDict

from covey.base.names import Basis, round_number

T = TypeVar("T")

AnswerKind = Literal["deny", "subtract", "roll_back", "retrain", "calibrate"]

Fate = Literal["deleted", "unchanged", "outside", "missing"]
"""What became of a copy; "unchanged": of a model that the answer did not change."""

STRICT = ConfigDict(strict=True, extra="forbid")
"""How a document is read back: no value is bent into shape, none is passed over."""

FORBIDDEN = (
    "gdpr art. 17 compliant",
    "data erased",
    "forgotten",
    "proof of unlearning",
    "client did not participate",
)
"""What no proof may say, in lower case: none of it can be known from a run's record."""

NOT_KEPT = "The server kept sums of clusters, and no client's own."
KEPT = (
    "The server kept every client's own sums as well, the requester's too until the "
    "answer, and keeps those of the clients that stay."
)


@dataclass(frozen=True)  # slots would make `Told[float](0.5)` raise
class ValueOrReason(Generic[T]):
    """A value; or None, and why it is not known or has no bound."""

    __pydantic_config__ = STRICT

    value: T | None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.value is None and not self.reason:
            raise ValueError("expected a value or a reason, found neither: give one")


@dataclass(frozen=True, slots=True)
class HeldRound:
    """A round in which an anonymity set held the requester.

    Attributes:
        size_left: the set's members that count towards x, without the requester and
            whoever else left.
        diameter: the largest L2 distance between two of its updates, when formed.
    """

    __pydantic_config__ = STRICT

    round_index: int
    cluster: int
    size_left: int
    diameter: ValueOrReason[float]


@dataclass(frozen=True, slots=True)
class Influence:
    """A published value that depended on the requester's presence.

    Numbers alone, so that nobody else can be named here.

    Attributes:
        value: clients, a risk or a price; None where the cluster was left.
    """

    __pydantic_config__ = STRICT

    round_index: int
    what: Literal["cluster size", "risk", "price", "cluster left"]
    cluster: int
    value: int | float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledCopy:
    """A copy that had been written out of the run, and what became of it.

    Attributes:
        what: a model, or a page that shows the run as it was.
        sha256: of the copy; None: it was never whole.
        path_sha256: of where it was written, as the run's record has it.
        recipient: for whom, if that was told; never a client of the run.
        fate: "outside" and "missing" are not deleted.
        notify: whether the recipient is to be told that the model is superseded.
    """

    __pydantic_config__ = STRICT

    what: str
    sha256: str | None
    path_sha256: str
    recipient: str | None
    fate: Fate
    notify: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtractedSums:
    """The sums that one cluster's model is solved from, before and after an answer.

    Attributes:
        before: SHA-256 of the whole numbers, with whoever left.
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
class EarlierHeads:
    """Ridge heads under noise that the requester's records were in, and are out there.

    Attributes:
        heads: how many.
        weight: the largest with which they were in one.
        bound: how often anybody who has all of them is right at most about one record.
    """

    heads: int
    weight: float
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedFacts:
    """What is known of an answer before it is carried out. No name, no handle.

    Attributes:
        asked: when the request came, ISO 8601.
        subject: `subject_mark` of the requester.
        model_before: SHA-256 of the cluster models' safetensors bytes before.
        rounds: those in which a set held the requester.
        deniability_threshold: x, members that must remain; None where no sets are used.
        min_anonymity: k, the smallest set; None where no sets are used.
        max_distance: L2, beyond which a member does not count towards x; None if all do.
        first_round: in which the requester's data were used; None if in none.
        first_affected_round: whose set fell below x; None if none did.
        first_replayed_round: None if nothing was replayed.
        rounds_replayed: how many.
        representative_probability: that the requester's update ever stood for its set.
        refutation: probability that who holds two candidates' updates tells the right
            one; 0.5 is a guess, 1 is certainty.
        touched: what else depended on the requester.
        secrets: "seeded" or "os", where representatives and noise came from.
        raw_updates_deleted: whether what the requester had sent, if stored, was.
        superseded_deleted: how many artefacts of each kind the answer made obsolete and
            were deleted before signing.
        basis: what the request rests on.
        replayed: how rounds were played again: with the others' choices as "recorded",
            "anew", "calibrated", or without asking anybody, from sums ("subtracted");
            None: not said, or none was.
        sealed_record_kept: whether the requester's name and salt together still find it,
            for a stronger answer.
    """

    __pydantic_config__ = STRICT

    asked: str
    subject: str
    answer: AnswerKind
    model_before: str
    rounds: tuple[HeldRound, ...]
    deniability_threshold: int | None
    min_anonymity: int | None
    max_distance: float | None
    first_round: int | None
    first_affected_round: int | None
    first_replayed_round: int | None
    rounds_replayed: int
    representative_probability: ValueOrReason[float]
    refutation: ValueOrReason[float]
    touched: tuple[Influence, ...]
    secrets: Literal["seeded", "os"]
    raw_updates_deleted: ValueOrReason[bool]
    superseded_deleted: Mapping[str, int]
    basis: Basis = "none"
    replayed: Literal["recorded", "anew", "calibrated", "subtracted"] | None = None
    sealed_record_kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(RecordedFacts):
    """All that is known of an answer. No name, no handle: only the requester's mark.

    Attributes:
        covey_version: that gave the answer.
        request: the request's identifier.
        run: the run's identifier.
        answered: when it was answered, ISO 8601.
        ledger_head: the ledger's hash when the answer was given.
        ledger_events: the position of that hash, counted from 1.
        model_after: SHA-256 as `model_before`, after the answer.
        guarantee: of differential privacy, with mechanism, relation and adversary.
        measured: an attack on the requester's data before and after, with intervals.
        copies: of models and pages that had been exported or shown.
        receipt: SHA-256 of the receipt that was signed when it was asked; None: there is
            none.
        tree_root: of the Merkle tree over the ledger's events up to `ledger_events`.
        consistency: the path that shows that this tree begins with the receipt's.
        subtracted: every cluster's sums; only where some were subtracted.
        own_sums_kept: whether the server kept each client's own sums, so that what was
            subtracted came from there; only of subtractions.
        earlier_heads: only of subtractions from heads under noise.
    """

    __pydantic_config__ = STRICT

    covey_version: str
    request: str
    run: str
    answered: str
    ledger_head: str
    ledger_events: int
    model_after: str
    guarantee: ValueOrReason[Mapping[str, Any]]
    measured: ValueOrReason[Mapping[str, Any]]
    copies: tuple[SettledCopy, ...] = ()
    receipt: str | None = None
    tree_root: str | None = None
    consistency: tuple[str, ...] = ()
    subtracted: tuple[SubtractedSums, ...] = ()
    own_sums_kept: bool = False
    earlier_heads: EarlierHeads | None = None


def claim(facts: Facts) -> str:
    """Return the one thing that the proof claims."""
    start, count = facts.first_replayed_round, facts.rounds_replayed
    match facts.answer:
        case "deny":
            return (
                "In every recorded round whose anonymity set held the requester, what "
                "was released is attributable to at least "
                f"{facts.deniability_threshold} remaining clients, within the diameter "
                "where one is recorded."
            )
        case "subtract" if start is None:
            return "No sums that count hold the requester's records: none were changed."
        case "subtract":
            return (
                "Every cluster's head was solved again from sums over the records of "
                "clients that stay, the requester's subtracted, with the others in the "
                "clusters that are recorded. A head whose cluster nobody is left in was "
                "set back to the one that the run began with."
            )
        case "roll_back":
            return f"Replayed without the requester: {counted(count, 'round')}, {beginning(start)}."
        case "retrain" if start is None:
            return "No round that counts holds the requester's data, so none was replayed."
        case "retrain":
            return (
                "Everything from before the requester's first round was replayed "
                f"without it: {counted(count, 'round')}, {beginning(start)}."
            )
        case "calibrate":
            return (
                "The requester's contribution was estimated from stored updates and "
                f"taken out of {counted(count, 'round')}, {beginning(start)}."
            )


def beginning(start: int | None) -> str:
    """Return where a replay began, in words."""
    if start is None:
        return "from nowhere"
    name = f"round {round_number(start)}" if start else "the first round"
    return f"from just before {name}"


def counted(count: int, what: str) -> str:
    """Return a number of things."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def limits(facts: Facts) -> tuple[str, ...]:
    """Return, in plain words, what the answer did not do and does not say."""
    return (
        *not_claimed(facts),
        *_earlier_rounds(facts),
        *kept(facts),
        _measured(facts),
        guaranteed(facts),
        "Not covered: PostgreSQL's write-ahead log and backups, Flower's own database, "
        "and copies elsewhere, of models and pages, that covey has no record of.",
        "Whether this answer meets a legal duty is for a lawyer to say.",
    )


def refuters(facts: Facts) -> tuple[str, ...]:
    """Return which of the requester's data were used, and who could know or show it."""
    return (_representative(facts), *_refuters(facts))


def left_to_do(facts: Facts) -> tuple[str, ...]:
    """Return what the answer left for people to do; empty if nothing is known of."""
    return tuple(_not_deleted(facts))


def _representative(facts: Facts) -> str:
    whose = "The requester's" if facts.answer == "deny" else "Before the answer, the requester's"
    if facts.min_anonymity is None and facts.first_round is None:
        return "No round is recorded in which the requester's data were used."
    if facts.answer == "subtract":
        return (
            "Before the answer, the requester's records were in its cluster's sums as "
            "they were: nothing hid them."
        )
    if facts.min_anonymity is None:
        return f"{whose} updates were used as they were: no anonymity set hid them."
    may = f"{whose} update may have been the one that was used."
    chance = facts.representative_probability
    if chance.value is None:
        return f"{may} How probable that is, is not known: {chance.reason}."
    return (
        f"{may} Rounds in which an anonymity set held it: {len(facts.rounds)}. "
        f"Probability that it was used in at least one of them: "
        f"{_percent(chance.value)}."
    )


def not_claimed(facts: Facts) -> Iterator[str]:
    """Yield what the answer is not."""
    match facts.answer:
        case "deny":
            yield (
                "This is not an erasure: what the model learnt, it still holds. It is "
                "not equivalent to retraining without the requester."
            )
        case "roll_back" if facts.replayed == "anew":
            yield (
                "This is not an erasure, and not equivalent to retraining without the "
                "requester: the replay began with a model that may include it."
            )
        case "roll_back":
            yield (
                "This is not an erasure, and not equivalent to retraining without the "
                "requester: in the replay the others kept the clusters that they chose "
                "in its presence."
            )
        case "subtract" | "retrain" if facts.first_replayed_round is None:
            pass
        case "subtract":
            yield from _subtracted(facts)
        case "retrain":
            yield from _retrained(facts)
        case "calibrate":
            yield (
                "This is approximate. It is not an erasure, and not equivalent to "
                "retraining without the requester; how far it is from that is not "
                "bounded."
            )
    yield "Nothing is claimed about membership inference against the model."
    yield "Nothing here says that the requester took no part in the run."


def _retrained(facts: Facts) -> Iterator[str]:
    if facts.secrets == "seeded":
        yield (
            "The replay equals a run without the requester bit for bit only on the same "
            "engine and with the same version of covey."
        )
    else:
        yield (
            "The replay drew new secrets: it is a run without the requester, but nobody "
            "can repeat it bit for bit."
        )
    yield (
        "The same parameters can come from different data: this document records what "
        "was done, and the parameters alone cannot confirm it."
    )


def _subtracted(facts: Facts) -> Iterator[str]:
    yield (
        "This is not equivalent to retraining without the requester: the clusters that "
        "the others chose, risks and prices that were measured before, and pooling and "
        "regularisation where these chose them, were found in its presence."
    )
    if (earlier := facts.earlier_heads) is not None:
        yield (
            f"Whoever kept the heads that were released with the requester, "
            f"{earlier.heads} in all, can tell whether one of its records was there, and "
            f"is right with a chance of {earlier.bound:.3f} at most (0.5 is a guess), by "
            f"the noise of these heads and the weight {earlier.weight:.3f} of its records."
        )
    yield (
        "The rounds before stand in the ledger as they were, with the requester; their "
        "models and states were deleted from the run's folder, and hashes of them stay."
    )
    if facts.secrets == "seeded":
        yield (
            "The heads equal those of a run in which the requester's sums never came, and "
            "the others chose as recorded, bit for bit only on the same kind of machine "
            "and with the same version of covey; the sums themselves are exact."
        )


def _earlier_rounds(facts: Facts) -> Iterator[str]:
    first, start = facts.first_round, facts.first_replayed_round
    if facts.answer == "subtract":
        return  # a model that is solved from sums begins with no earlier one
    if first is not None and start is not None and first < start:
        yield (
            f"Every round from {round_number(first)} to {start}, before the first replayed "
            f"one, still includes the requester, and so do the models that the replay "
            f"began with."
        )


def _refuters(facts: Facts) -> Iterator[str]:
    yield (
        "Who could refute it: whoever holds the server's logs, the seed or the noise, "
        "backups, or raw updates, and the other clients, each of which knows its own."
    )
    if facts.answer == "deny":
        yield (
            "The denial is false as soon as anybody has recorded which update stood for "
            "a set, or the seed or the noise that it was drawn with."
        )
    if facts.answer == "subtract":
        yield (
            "Whoever kept a cluster's sums from before the answer finds, by subtracting "
            "those after it, the sums of the requester alone, or of those who left with "
            "it, and from the sums of few records the features of these records. "
            f"{KEPT if facts.own_sums_kept else NOT_KEPT}"
        )
        yield (
            "Whoever holds the records of everybody else in a cluster can test a guess of "
            "the requester's records against the hash of the sums before."
        )
    if facts.secrets == "seeded":
        yield (
            "The secrets are recomputable from the seed: against whoever holds it there "
            "is no deniability and no differential privacy."
        )
    else:
        yield (
            "The secrets came from the operating system and were replaced after every "
            "round: whoever kept a copy of one can recompute its round."
        )
    if facts.min_anonymity is None:
        return
    if facts.refutation.value is None:
        yield (
            "How often who holds the candidates' updates would tell the right one is "
            f"not known: {facts.refutation.reason}."
        )
    else:
        yield (
            "Who holds the updates of two candidates tells the right one with "
            f"probability {_percent(facts.refutation.value)}."
        )


def _not_deleted(facts: Facts) -> Iterator[str]:
    if facts.raw_updates_deleted.value is False:
        yield (
            "Raw updates are still stored, and they identify which update stood for "
            "its set. Delete them."
        )
    left = [each for each in facts.copies if each.fate in ("outside", "missing")]
    if left:
        yield (
            f"{_copies(len(left))} of earlier models and pages on record outside the run's "
            f"folder, where covey deletes nothing, to be deleted by whoever answered."
        )
    if owed := [each for each in facts.copies if each.notify]:
        yield (
            f"{_copies(len(owed))} of a superseded model went to recipients on record, who "
            f"are to be notified (GDPR Art. 19)."
        )


def kept(facts: Facts) -> Iterator[str]:
    """Yield what is kept of the requester."""
    yield (
        "The requester's mark stays in the ledger, with its request and the answer: "
        "only its name and salt together make it again."
    )
    if facts.sealed_record_kept:
        yield (
            "A sealed record is kept in the ledger, which only the requester's name and "
            "salt together open: it finds the requester's rounds again, so that a "
            "stronger answer can still be given. Such an answer destroys it."
        )


def _copies(count: int) -> str:
    return f"{count} {'copy' if count == 1 else 'copies'}"


def _measured(facts: Facts) -> str:
    if facts.measured.value is None:
        return (
            "No attack on the requester's data was measured before and after the "
            f"answer: {facts.measured.reason}."
        )
    return (
        "One attack on the requester's data was measured before and after the answer. "
        "Another attack may do better."
    )


def guaranteed(facts: Facts) -> str:
    """Return whether differential privacy is guaranteed."""
    if facts.guarantee.value is None:
        return f"No differential privacy is guaranteed: {facts.guarantee.reason}."
    return (
        "Differential privacy is guaranteed only as stated with its mechanism, its "
        "neighbouring relation and its adversary."
    )


def _percent(probability: float) -> str:
    """Return three digits; what is not certain is never rounded to certainty."""
    if 0.9995 <= probability < 1:
        return "more than 99.9%"
    return f"{100 * probability:.3g}%"
