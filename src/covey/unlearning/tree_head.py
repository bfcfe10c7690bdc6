"""Signed tree heads of a ledger, in the form that transparency logs share.

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
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cryptography.exceptions import InvalidSignature

from covey.base.errors import LedgerError
from covey.unlearning.signature import Check, KeyRecord, PublicKey, SigningKey, check_key

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
