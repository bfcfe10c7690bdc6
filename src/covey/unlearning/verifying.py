"""Checking a proof, and the signed tree heads of a ledger.

Signed tree heads of a ledger, in the form that transparency logs share.

    covey.run/1a2b3c4d5e6f7a8b       the origin: which log
    42                               how many events the tree has
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

    - covey.run/1a2b3c4d5e6f7a8b Az3grlgtzPICa5OS8npVmf1Myq/...

(with an em dash before each signature). A log's signature is Ed25519 over the text up to
the empty line; a witness's covers a line with the time before that text.

References:
    C2SP tlog-checkpoint, signed-note and tlog-cosignature.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from pydantic import TypeAdapter, ValidationError

from covey.base.errors import LedgerError
from covey.base.names import another_format, round_number
from covey.unlearning.proof import (
    VERSION,
    Proof,
    check_facts,
    check_text,
    proof_json,
    subject_mark,
    unsealed,
)
from covey.unlearning.signature import (
    Check,
    KeyRecord,
    PublicKey,
    SigningKey,
    check_key,
    check_signature,
)

LOG, WITNESS = 1, 4
"""The key types of the two signatures."""
LATEST = 253_402_300_799
"""The last second of the year 9999."""

LINE = re.compile("— ([^ +\n]+) ([A-Za-z0-9+/=]+)")


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One line of signature.

    Attributes:
        name: who signed, as it calls itself.
        value: four bytes that name the key, and what follows them.
    """

    name: str
    value: bytes

    def line(self) -> str:
        """Return the line."""
        return f"— {self.name} {base64.b64encode(self.value).decode()}\n"


@dataclass(frozen=True, slots=True)
class TreeHead:
    """The root of a ledger's tree, and who signed it.

    Attributes:
        origin: which ledger it is of, see `origin_of`.
        size: events in the tree.
        root: of the tree over them.
    """

    origin: str
    size: int
    root: bytes
    signatures: tuple[NoteSignature, ...] = ()

    @property
    def body(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def note(self) -> str:
        """Return the signed note."""
        return f"{self.body}\n{''.join(each.line() for each in self.signatures)}"

    @classmethod
    def parse(cls, note: object) -> "TreeHead":
        """Read a signed note, a string; no signature is checked.

        Raises:
            LedgerError: it is none.
        """
        try:
            return cls._parsed(note)
        except ValueError as error:
            raise LedgerError(
                f"A tree head must be a checkpoint as transparency logs write it, but "
                f"{str(error)!a}. Fetch it again from who signed it."
            ) from error

    @classmethod
    def _parsed(cls, note: object) -> "TreeHead":
        if not isinstance(note, str):
            raise ValueError("it is no text")  # noqa: TRY004 - as of any other note
        note.encode()  # half characters can be in no file
        body, _, rest = note.partition("\n\n")
        origin, size, root, *more = body.split("\n")
        found = [LINE.fullmatch(line) for line in rest.splitlines()]
        signatures = tuple(
            NoteSignature(each[1], base64.b64decode(each[2], validate=True))
            for each in found
            if each
        )
        head = cls(origin, int(size), base64.b64decode(root), signatures)
        if more or not origin or None in found or len(head.root) != 32:
            raise ValueError("its lines are not those of a checkpoint")
        if head.note() != note:
            raise ValueError("it is not in the one form of a checkpoint")
        return head

    def signed(self, key: SigningKey) -> "TreeHead":
        """Return the head with the log's own signature, in place of an older one."""
        value = _key_id(self.origin, key.public_key(), LOG) + key.sign(self.body.encode())
        return self._with(NoteSignature(self.origin, value))

    def cosigned(self, name: str, key: SigningKey, seconds: int) -> "TreeHead":
        """Return the head with a witness's signature of so many seconds since 1970."""
        value = (
            _key_id(name, key.public_key(), WITNESS)
            + seconds.to_bytes(8, "big")
            + key.sign(_cosigned_text(self.body, seconds))
        )
        return self._with(NoteSignature(name, value))

    def signed_by(self, keys: Sequence[KeyRecord], moment: datetime) -> Check | None:
        """Say whether the log's key that signed may speak then; None: none of these did."""
        found = [check_key(key, moment) for key in keys if self._is_signed_by(key.public)]
        return next((each for each in found if each.ok), found[0] if found else None)

    def cosigned_by(self, keys: Sequence[KeyRecord]) -> tuple[KeyRecord, datetime, Check] | None:
        """Return which witness's key cosigned, when, and whether it may speak then."""
        found = [
            (key, moment, check_key(key, moment))
            for key in keys
            if (moment := self._seen_at(key.public)) is not None
        ]
        speaking = (each for each in found if each[2].ok)
        return next(speaking, found[0] if found else None)

    def _is_signed_by(self, key: PublicKey) -> bool:
        known = _key_id(self.origin, key, LOG)
        return any(
            _verifies(key, each.value[4:], self.body.encode())
            for each in self.signatures
            if each.value[:4] == known and each.name == self.origin
        )

    def _seen_at(self, key: PublicKey) -> datetime | None:
        for each in self.signatures:
            seconds = int.from_bytes(each.value[4:12], "big")
            text = _cosigned_text(self.body, seconds)
            known = each.value[:4] == _key_id(each.name, key, WITNESS)
            if known and seconds <= LATEST and _verifies(key, each.value[12:], text):
                return datetime.fromtimestamp(seconds, UTC)
        return None

    def _with(self, signature: NoteSignature) -> "TreeHead":
        name, known = signature.name, signature.value[:4]
        others = tuple(
            each for each in self.signatures if (each.name, each.value[:4]) != (name, known)
        )
        return replace(self, signatures=(*others, signature))


def origin_of(first_hash: str) -> str:
    """Return the name of a ledger's log, from the hash of its first event."""
    return f"covey.run/{first_hash[:16]}"


def _cosigned_text(body: str, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{body}".encode()


def _key_id(name: str, key: PublicKey, kind: int) -> bytes:
    named = name.encode() + b"\n" + bytes([kind]) + key.public_bytes_raw()
    return hashlib.sha256(named).digest()[:4]


def _verifies(key: PublicKey, value: bytes, text: bytes) -> bool:
    try:
        key.verify(value, text)
    except InvalidSignature:
        return False
    return True


FIELDS = {each.name for each in fields(Proof)} - {"subtracted", "own_sums_kept", "earlier_heads"}
"""What every proof says; the others belong to subtractions."""


@dataclass(frozen=True, slots=True)
class LedgerAnswer:
    """What a ledger records of the answer that a proof speaks of.

    Attributes:
        expected: by field of the proof, the value that follows from the ledger's events.
        problems: what of the proof does not fit them otherwise, in sentences.
        not_compared: fields that the ledger knows nothing of: the operator's word.
        handle: whom the request was about.
        sealed: what the requester's name and salt open; None: nothing was kept.
        subject: the requester's mark in the event that says that it left; "": none.
        names: of the clients that the ledger knows.
    """

    expected: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    handle: str = ""
    sealed: str | None = None
    subject: str = ""
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ChainView:
    """What a proof is compared with, of the ledger that it speaks of.

    Attributes:
        hashes: of every event; the first one is at position 1.
        verified: whether the ledger's own chain is whole.
        head_model_hash: the model hash that the ledger had recorded when the answer was
            given, at the proof's position; None if it records none.
        answer: what the events say of the answer; None: they were not looked at.
        problem: why it is not verified.
    """

    hashes: Sequence[str]
    verified: bool
    head_model_hash: str | None = None
    answer: LedgerAnswer | None = None
    problem: str = "the ledger's own chain is broken"


def verify(
    written: bytes,
    trusted: Sequence[KeyRecord] | None = None,
    chain: ChainView | None = None,
    name_and_salt: tuple[str, bytes] | None = None,
) -> list[Check]:
    """Check a proof's file; whatever the bytes are, this returns what failed.

    Args:
        written: the file as it is: any byte that differs from its one form fails.
        trusted: the signer's keys, from elsewhere than the proof.
        chain: of the ledger that the proof speaks of, if it is at hand.
        name_and_salt: of the requester, if it is the one who checks.
    """
    try:
        document = json.loads(written.decode("ascii"))
        _check_version(document)
        parsed = _reader()(written)
        one_form = proof_json(document).encode() == written
        _require_all_fields(document)
    except (ValueError, RecursionError) as error:
        return [Check.failed("format", f"not a covey proof: {_reason(error)}")]
    checks = [
        _check_form(parsed, one_form=one_form),
        *check_signature(document, trusted, "answered"),
        check_text(parsed, document),
        check_facts(parsed),
        _check_set_sizes(parsed),
        _check_model(parsed),
    ]
    answer = chain.answer if chain is not None else None
    if chain is not None:
        checks.append(_check_ledger(parsed, chain))
    if answer is not None:
        checks.append(_check_record(document, answer))
    if name_and_salt is not None:
        checks.append(_check_subject(parsed, *name_and_salt, answer))
    return [*checks, _operators_word(answer)]


@cache
def _reader() -> Callable[[bytes], Proof]:
    return TypeAdapter(Proof).validate_json


def _reason(error: Exception) -> str:
    """Return what is wrong and where, fit for a terminal whatever the bytes were."""
    if not isinstance(error, ValidationError):
        return ascii(str(error))
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(ascii, first['loc'])) or 'document'}: {first['msg']}"


def _require_all_fields(document: Mapping[str, Any]) -> None:
    if lacking := FIELDS - document.keys():
        raise ValueError(f"{min(lacking)}: it lacks this field")


def _check_version(document: object) -> None:
    match document:
        case {"format": "covey-proof", "version": found} if found != VERSION:
            raise ValueError(another_format("it", _brief(found), VERSION))
        case _:
            pass


def _check_form(told: Proof, *, one_form: bool) -> Check:
    if not one_form:
        return Check.failed("format", "the file is not in the one form of a proof")
    if not all((told.limits, told.done, told.summary)):
        return Check.failed("format", "what was done, or its limits, are not said")
    return Check.passed("format", f"{told.format} of format {told.version}")


def _check_set_sizes(told: Proof) -> Check:
    if told.answer != "deny":
        return Check.passed("set sizes", f"{told.answer} does not rest on them")
    x = told.deniability_threshold
    if x is None:
        return Check.failed("set sizes", "a denial needs a deniability_threshold")
    small = [held for held in told.rounds if held.size_left < x]
    if small:
        return Check.failed(
            "set sizes",
            f"in round {round_number(small[0].round_index)} {small[0].size_left} members "
            f"remain, fewer than {x}",
        )
    return Check.passed("set sizes", f"at least {x} members remain in every set")


def _check_model(told: Proof) -> Check:
    changed = told.model_before != told.model_after
    if told.model_changed != changed:
        return Check.failed("model", "model_changed contradicts the two hashes")
    if changed and told.answer == "deny":
        return Check.failed("model", "a denial must not change the model")
    return Check.passed("model", "changed" if changed else "not changed")


def _check_ledger(told: Proof, chain: ChainView) -> Check:
    at, count = told.ledger_events, len(chain.hashes)
    recorded = chain.head_model_hash
    if not chain.verified:
        found = chain.problem
    elif not 1 <= at <= count:
        found = f"the proof was made at event {at}, but the ledger has {count}"
    elif chain.hashes[at - 1] != told.ledger_head:
        found = f"event {at} of the ledger is not the one that the proof was made at"
    elif recorded is not None and recorded != told.model_after:
        found = "the ledger recorded another model when the answer was given"
    else:
        return Check.passed("ledger", f"the proof was made at event {at} of {count}")
    return Check.failed("ledger", found)


def _check_record(document: Mapping[str, Any], answer: LedgerAnswer) -> Check:
    """Compare a proof's facts with what follows from the ledger's events."""
    wrong = [
        f"{field}: the ledger gives {_brief(value)}, the proof says "
        f"{_brief(document.get(field, 'nothing'))}"
        for field, value in answer.expected.items()
        if field not in document or document[field] != value
    ]
    if problems := [*answer.problems, *wrong]:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return Check.failed("record", f"{problems[0]}{more}")
    return Check.passed("record", f"{len(answer.expected)} facts follow from the ledger's events")


def _brief(value: object) -> str:
    """Return a value fit for a terminal."""
    written = ascii(value)
    return written if len(written) <= 80 else f"{written[:77]}..."


def _operators_word(answer: LedgerAnswer | None) -> Check:
    """Say what rests on nothing but the word of who signed."""
    fields = ", ".join(answer.not_compared) if answer else "all facts"
    return Check("operator", None, f"on the signer's word alone: {fields}.")


def _check_subject(told: Proof, name: str, salt: bytes, answer: LedgerAnswer | None) -> Check:
    mark = subject_mark(name, salt)
    if not hmac.compare_digest(mark.encode(), told.subject.encode()):
        return Check.failed("subject", "the proof is about somebody else, or another salt")
    if answer is None:
        return Check.passed("subject", "the proof is about this client")
    problem = ""
    if not hmac.compare_digest(mark.encode(), answer.subject.encode()):
        problem = "the ledger's event of this answer holds another mark, or none"
    elif name in answer.names:
        problem = "the ledger still names this client"
    elif answer.sealed and unsealed(answer.sealed, name, salt) != answer.handle:
        problem = "the ledger's request of the same number is of another client"
    if problem:
        return Check.failed("subject", problem)
    return Check.passed("subject", "the proof, and the ledger's answer, are this client's")
