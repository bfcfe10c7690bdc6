"""Proofs: what was answered to a client that asked to leave, for anybody to check.

The sealed record that finds a client whose name was erased, given name and salt.

    key    = HKDF-SHA256(salt, info = name)
    sealed = nonce || AES-256-GCM(key, nonce, handle)

The salt is 16 random bytes that only the requester is given, so whoever holds the sealed
record can open it for no name that it guesses.

A proof is one JSON file in one form, signed. It names nobody: the requester recognises
itself by a salt that it alone was given.
"""

import hmac
import json
import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from covey.base.errors import LedgerError
from covey.base.names import ClientName, Handle, round_number
from covey.unlearning.proof_text import (
    FORBIDDEN,
    STRICT,
    Facts,
    RecordedFacts,
    ValueOrReason,
    beginning,
    claim,
    counted,
    left_to_do,
    limits,
    refuters,
)
from covey.unlearning.signature import Check, canonical, instant

NONCE = 12
PURPOSE = b"covey: the handle of "


def sealed(handle: Handle, name: ClientName, salt: bytes) -> str:
    """Return the handle in hex digits that only name and salt together open."""
    nonce = secrets.token_bytes(NONCE)
    return (nonce + _cipher(name, salt).encrypt(nonce, handle.encode(), None)).hex()


def unsealed(record: str, name: ClientName, salt: bytes) -> Handle | None:
    """Return the handle; None: the record is of another name, or of another salt."""
    written = bytes.fromhex(record)
    try:
        opened = _cipher(name, salt).decrypt(written[:NONCE], written[NONCE:], None)
    except InvalidTag:
        return None
    return opened.decode()


def _cipher(name: ClientName, salt: bytes) -> AESGCM:
    info = PURPOSE + name.encode("utf-8", "surrogatepass")
    return AESGCM(HKDF(SHA256(), 32, salt=None, info=info).derive(salt))


def summary_sentences(facts: Facts) -> tuple[str, str, str]:
    """Return the answer in three sentences."""
    asked = "A client asked to leave this run, and takes part in no later round of it."
    start, count = facts.first_replayed_round, facts.rounds_replayed
    again = f"{_were(count)} played again without it, {beginning(start)}"
    if start is None and facts.answer in ("subtract", "retrain", "calibrate"):
        nothing = "No round that counts holds its data, so none was played again."
        return asked, nothing, _left(facts)
    match facts.answer:
        case "deny":
            return (
                asked,
                "The model was not changed: what it learnt from the client, it still holds.",
                _hidden(facts),
            )
        case "subtract":
            return (
                asked,
                "Its records were subtracted from the sums that the models are solved "
                "from, and the models solved again.",
                _left(facts),
            )
        case "roll_back":
            return asked, f"{again}.", _before(facts)
        case "retrain":
            return asked, f"{again}; the model is what came of that.", _left(facts)
        case "calibrate":
            return (
                asked,
                f"Its contribution was estimated and taken out of "
                f"{counted(count, 'round')}, {beginning(start)}.",
                "The model is an approximation, and how far it is from one without the "
                "client is not bounded.",
            )


def answer_sentences(facts: Facts) -> tuple[str, ...]:
    """Return what the answer did, one sentence for each thing."""
    return (
        _model(facts),
        *_replayed(facts),
        *_sums_in_words(facts),
        *_deleted(facts),
        *_settled(facts),
        *_attacked(facts),
    )


def _hidden(facts: Facts) -> str:
    if not facts.rounds:
        return "No recorded round held the client in an anonymity set."
    return (
        "In every recorded round whose anonymity set held it, at least "
        f"{facts.deniability_threshold} other clients remain to whom what was released "
        f"can be attributed."
    )


def _before(facts: Facts) -> str:
    first, start = facts.first_round, facts.first_replayed_round
    if first is None or start is None or first >= start:
        return "No round before them includes it."
    rounds = f"round {start}" if first == start - 1 else f"rounds {round_number(first)} to {start}"
    return f"The model was not rid of what it learnt from the client in {rounds}."


def _left(facts: Facts) -> str:
    left = [each for each in facts.copies if each.fate in ("outside", "missing")]
    owed = len({each.recipient for each in facts.copies if each.notify})
    if not left and not owed:
        return "No copy of an earlier model or page is on record elsewhere."
    return (
        f"Copies of earlier models or pages are on record elsewhere: {len(left)} not "
        f"deleted, and {counted(owed, 'recipient')} to be told."
    )


def _were(count: int) -> str:
    return f"{counted(count, 'round')} {'was' if count == 1 else 'were'}"


def _model(facts: Facts) -> str:
    if facts.model_before == facts.model_after:
        return (
            f"The model's parameters were not changed: before and after the answer "
            f"their SHA-256 is {facts.model_after}."
        )
    return (
        f"The model's parameters were changed: their SHA-256 was {facts.model_before} "
        f"before the answer and is {facts.model_after} after it."
    )


def _replayed(facts: Facts) -> Iterator[str]:
    first, start = facts.first_round, facts.first_replayed_round
    if start is None:
        yield "No round was played again."
        return
    if facts.answer == "subtract":
        number = round_number(start)
        yield f"The heads of round {number} were solved again; no client chose or trained."
        if facts.own_sums_kept:
            yield "What was subtracted are the requester's own sums, which were kept."
        return
    yield f"{_were(facts.rounds_replayed)} played again, {beginning(start)}."
    if first is not None and first >= start > 0:
        number = round_number(first)
        yield f"No round before them includes the requester, whose first is {number}."


def _sums_in_words(facts: Facts) -> Iterator[str]:
    for each in facts.subtracted:
        gone = each.clients_before - each.clients_after
        if gone:
            yield (
                f"The sums of cluster {each.cluster} lost the records of "
                f"{counted(gone, 'client')}, of {each.clients_before}: their SHA-256 was "
                f"{each.before} and is {each.after}."
            )


def _deleted(facts: Facts) -> Iterator[str]:
    match facts.raw_updates_deleted:
        case ValueOrReason(True):
            yield "The requester's raw updates that the run had stored were deleted."
        case ValueOrReason(None, reason):
            yield f"No raw updates were deleted: {reason}."
        case _:
            yield "Raw updates were not deleted."
    kinds = "; ".join(f"{count} {kind}" for kind, count in sorted(facts.superseded_deleted.items()))
    yield f"Superseded artefacts deleted before this was signed: {kinds or 'none'}."


def _settled(facts: Facts) -> Iterator[str]:
    fates = [each.fate for each in facts.copies]
    if not fates:
        yield "No copy of a model or a page was on record."
        return
    yield (
        f"Copies of models and pages on record: {len(fates)}, of which deleted, in the "
        f"run's folder: {fates.count('deleted')}."
    )
    if stay := fates.count("unchanged"):
        yield (f"Left as they are, since the answer did not change their models: {stay}.")


def _attacked(facts: Facts) -> Iterator[str]:
    if facts.measured.value is not None:
        yield (
            "An attack on the requester's data was measured before and after the "
            "answer: see the figures and their intervals."
        )


FORMAT: Literal["covey-proof"] = "covey-proof"
VERSION: Literal[5] = 5

IDENTIFIERS = {"request", "run", "copies"}
"""Given from outside, and claiming nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Facts):
    """The document's shape: the facts, and what follows from them.

    Attributes:
        model_changed: whether the two model hashes differ.
        claim: the one thing that the proof claims.
        summary: the answer in three plain sentences.
        done: what was done, in plain words.
        refuters: what was used of the requester, and who could know or show it.
        left_to_do: for people.
        limits: what it does not say or do.
        signature: of everything else, see `covey.unlearning.signature`.
    """

    __pydantic_config__ = STRICT

    format: Literal["covey-proof"]
    version: Literal[5]
    model_changed: bool
    claim: str
    summary: tuple[str, ...]
    done: tuple[str, ...]
    refuters: tuple[str, ...]
    left_to_do: tuple[str, ...]
    limits: tuple[str, ...]
    signature: Mapping[str, str]


def proof_document(facts: Facts) -> dict[str, Any]:
    """Return the document of an answer, in plain JSON values, not yet signed.

    Raises:
        LedgerError: a text that was given says what no proof may say, or JSON has no
            word for some value.
    """
    known = asdict(facts)
    if not facts.subtracted:
        del known["subtracted"]
    if facts.earlier_heads is None:
        del known["earlier_heads"]
    if not facts.own_sums_kept:
        del known["own_sums_kept"]
    document = {
        **known,
        "format": FORMAT,
        "version": VERSION,
        "model_changed": facts.model_before != facts.model_after,
        **derived_text(facts),
    }
    if found := forbidden_phrases(document):
        raise LedgerError(
            f"A proof must claim no more than a run's record shows, but a text that "
            f"was given for it says: {', '.join(found)}. Put it in other words, or "
            f"leave it out."
        )
    return json.loads(canonical(document))


def derived_text(facts: Facts) -> dict[str, str | tuple[str, ...]]:
    """Return every sentence of a proof, by field: all of them follow from its facts."""
    return {
        "claim": claim(facts),
        "summary": summary_sentences(facts),
        "done": answer_sentences(facts),
        "refuters": refuters(facts),
        "left_to_do": left_to_do(facts),
        "limits": limits(facts),
    }


def forbidden_phrases(document: Mapping[str, Any]) -> list[str]:
    """Return what a document says that no proof may say; identifiers claim nothing."""
    claiming = {k: v for k, v in document.items() if k not in IDENTIFIERS}
    said = canonical(claiming).decode().lower()
    found = [phrase for phrase in FORBIDDEN if phrase in said]
    if "cosine" in json.dumps(claiming["guarantee"]).lower():
        found.append("a guarantee that rests on a cosine distance")
    return found


def subject_mark(name: str, salt: bytes) -> str:
    """Return HMAC-SHA256 of a client's name under its salt, as hex digits.

    Names can be guessed, so the salt must be random and 16 bytes or more.
    """
    return hmac.new(salt, name.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def refutation_success(distance: float, noise_std: float) -> float:
    """Return the success of an adversary who holds both candidates' updates.

    1 - Phi(-d / (2 s)), the best test of one perturbed release; 1 without noise.

    Args:
        distance: d, L2 between the two updates, 0 or more.
        noise_std: s, of the Gaussian noise on every coordinate, 0 or more.
    """
    if noise_std == 0:
        return 1.0
    return (1 + math.erf(distance / (2 * noise_std) / math.sqrt(2))) / 2


def proof_json(document: Mapping[str, Any]) -> str:
    """Return the one form of a proof's file: indented ASCII JSON, keys sorted."""
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def proof_page(document: Mapping[str, Any]) -> str:
    """Return a signed proof as one printable page that needs nothing beside it."""
    return _page().render(proof=document)


@cache
def _page() -> Template:
    environment = Environment(
        loader=PackageLoader("covey.unlearning"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["digits"] = _digits
    environment.filters["numbered"] = _numbered
    return environment.get_template("proof.html")


def _numbered(t: int | None) -> int | None:
    return None if t is None else round_number(t)


def _digits(value: object) -> object:
    """Return a figure in three digits, and anything else as it is."""
    return f"{value:.3g}" if isinstance(value, float) else value


SALT_BYTES = 16
TOO_FEW = "the requester holds too few examples to attack"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a requester is given, and what is kept by which to know it again.

    Attributes:
        salt: hex.
        subject: its mark in the proof.
        sealed: what name and salt together open.
    """

    __pydantic_config__ = STRICT

    salt: str = field(repr=False)
    subject: str
    sealed: str

    @classmethod
    def fresh(cls, handle: Handle, name: ClientName) -> "Mark":
        """Draw a salt, and make the marks that go with it."""
        salt = secrets.token_bytes(SALT_BYTES)
        return cls(salt.hex(), subject_mark(name, salt), sealed(handle, name, salt))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFacts(RecordedFacts):
    """What is known of an answer before it is carried out, its attack included.

    Attributes:
        measured_before: how well the model gave the requester away; None: see the next.
        unmeasured: why it was not measured.
    """

    __pydantic_config__ = STRICT

    measured_before: Mapping[str, float] | None
    unmeasured: str = TOO_FEW


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that is being served.

    Attributes:
        first: the first round that is played again; None: none is.
        until: the round before which all of them have been played.
        salt: hex; what the requester is given with the answer.
        facts: what the proof says of the time before the answer.
        cluster: the one cluster that ever met the client; None: there may be more.
    """

    __pydantic_config__ = STRICT

    first: int | None
    until: int
    salt: str = field(repr=False)
    facts: MeasuredFacts
    cluster: int | None = None


REPLAYS = {"roll_back": ("recorded", "anew"), "retrain": ("anew",)}
REPLAYS |= {"calibrate": ("calibrated", "anew"), "subtract": ("subtracted",)}


def check_text(told: Proof, document: Mapping[str, Any]) -> Check:
    """Compare every sentence of a proof with those that its facts oblige it to say.

    A signer may put any sentence under a signature: only derived ones are accepted.
    """
    for name, expected in derived_text(told).items():
        if reason := _difference(getattr(told, name), expected):
            return Check.failed("text", f"{name}: {reason}")
    try:
        said = forbidden_phrases(document)
    except LedgerError as error:
        return Check.failed("text", ascii(str(error)))
    if said:
        return Check.failed("text", f"it says what no proof may say: {said[0]}")
    return Check.passed("text", "claim and limits are those that the facts bear")


def check_facts(told: Proof) -> Check:
    """Look for facts of a proof that contradict each other."""
    found = next((problem for problem in _contradictions(told)), None)
    if found:
        return Check.failed("facts", found)
    return Check.passed("facts", "they do not contradict each other")


def _difference(found: str | tuple[str, ...], expected: str | tuple[str, ...]) -> str:
    if found == expected:
        return ""
    said = (found,) if isinstance(found, str) else found
    due = (expected,) if isinstance(expected, str) else expected
    if more := next((each for each in said if each not in due), None):
        return f"{_short(more)} does not follow from the facts"
    if lacking := next((each for each in due if each not in said), None):
        return f"the facts oblige it to say {_short(lacking)}, and it does not"
    return "its sentences are not in the order that the facts give them"


def _short(sentence: str) -> str:
    """Return a sentence fit for a terminal."""
    return ascii(sentence if len(sentence) <= 90 else f"{sentence[:87]}...")


def _contradictions(told: Proof) -> Iterator[str]:
    yield from _times(told)
    yield from _replay(told)
    yield from _sets(told)
    yield from _sums(told)
    for name in ("representative_probability", "refutation"):
        value = getattr(told, name).value
        if value is not None and not 0 <= value <= 1:
            yield f"{name} is no probability: {value}"
    if told.earlier_heads is not None and told.answer != "subtract":
        yield "earlier_heads: it belongs to answers that subtract sums"
    if told.own_sums_kept and told.answer != "subtract":
        yield "own_sums_kept: it belongs to answers that subtract sums"
    if told.sealed_record_kept and told.answer == "retrain":
        yield "sealed_record_kept: after a retraining no sealed record is kept"


def _times(told: Proof) -> Iterator[str]:
    asked, answered = instant(told.asked), instant(told.answered)
    if asked is None or answered is None:
        yield "asked and answered must be moments, as ISO 8601 with an offset"
    elif answered < asked:
        yield "answered: before it was asked"


def _replay(told: Proof) -> Iterator[str]:
    start, affected = told.first_replayed_round, told.first_affected_round
    if start is None:
        if told.rounds_replayed or told.replayed or affected is not None:
            yield (
                "first_replayed_round: no round was played again, but others are counted "
                "or affected"
            )
        if told.answer == "roll_back":
            yield "first_replayed_round: a roll-back plays rounds again, and none is named"
        return
    if told.answer == "deny":
        yield "first_replayed_round: a denial plays no round again"
    elif told.replayed and told.replayed not in REPLAYS[told.answer]:
        yield f"replayed: {told.answer} does not play rounds again as {told.replayed}"
    if told.rounds_replayed < 1:
        yield "rounds_replayed: a round was played again, but none is counted"
    if affected is None or affected < start:
        yield "first_affected_round: it comes before the first replayed round, or is none"


def _sums(told: Proof) -> Iterator[str]:
    due = told.answer == "subtract" and told.first_replayed_round is not None
    if due != bool(told.subtracted):
        yield "subtracted: it belongs to answers that subtracted sums, and to those"
    if due and told.replayed != "subtracted":
        yield "replayed: sums were subtracted, and it does not say so"
    if due and told.rounds_replayed != 1:
        yield "rounds_replayed: a subtraction solves the heads of one round again"
    for j, each in enumerate(told.subtracted):
        gone = each.clients_before - each.clients_after
        if each.cluster != j or each.clients_after < 0 or gone < 0:
            yield "subtracted: clusters out of order, or of fewer clients than none"
        elif not gone and each.before != each.after:
            yield "subtracted: sums that nobody left were changed"


def _sets(told: Proof) -> Iterator[str]:
    places = [(each.round_index, each.cluster) for each in told.rounds]
    if len(set(places)) < len(places) or [t for t, _ in places] != sorted(t for t, _ in places):
        yield "rounds: they are not in order, or one of them stands there twice"
    first = told.first_round
    if places and (first is None or places[0][0] < first):
        yield "first_round: a set held the requester before its first round"
