"""Signed tree heads: the published form, and every change of it."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import LedgerError
from covey.unlearning.signature import KeyRecord, PublicKey, SigningKey
from covey.unlearning.tree_head import LATEST, TreeHead, origin_of

KEY = SigningKey.from_private_bytes(bytes(32))
WITNESS = SigningKey.from_private_bytes(bytes([1] * 32))
LOGS, WITNESSES = ([KeyRecord(each.public_key())] for each in (KEY, WITNESS))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEAD = TreeHead(origin_of("1a2b" * 16), 42, bytes(range(32)))


def seen_at(head: TreeHead) -> float | None:
    found = head.cosigned_by(WITNESSES)
    return found[1].timestamp() if found else None


def test_the_lines_are_those_of_a_checkpoint():
    lines = HEAD.signed(KEY).note().split("\n")
    assert lines[:4] == [
        "covey.run/1a2b1a2b1a2b1a2b",
        "42",
        base64.b64encode(bytes(range(32))).decode(),
        "",
    ]
    assert lines[4].startswith("— covey.run/1a2b1a2b1a2b1a2b ")
    assert lines[5:] == [""]


def test_a_signature_of_the_public_go_checksum_database_verifies():
    # sum.golang.org's key, and its tree of 1 record, from the design of Go's module proxy
    name, _, key = ["sum.golang.org", "033de0ae", "Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"]
    raw = base64.b64decode(key)
    assert raw[0] == 1
    from covey.unlearning.tree_head import _key_id

    assert _key_id(name, PublicKey.from_public_bytes(raw[1:]), 1).hex() == "033de0ae"


@given(st.integers(0, 2**60), st.binary(min_size=32, max_size=32), st.integers(1, LATEST))
def test_what_is_written_reads_back_and_verifies(size, root, seconds):
    head = TreeHead("covey.run/x", size, root).signed(KEY)
    head = head.cosigned("witness-1", WITNESS, seconds)
    again = TreeHead.parse(head.note())
    assert again == head
    assert again.signed_by(LOGS, NOW)
    assert again.signed_by(WITNESSES, NOW) is None
    assert seen_at(again) == seconds
    assert again.cosigned_by(LOGS) is None


def test_who_signs_again_replaces_its_own_signature_only():
    head = HEAD.signed(KEY).cosigned("w", WITNESS, 5).cosigned("w", WITNESS, 6).signed(KEY)
    assert len(head.signatures) == 2
    assert seen_at(head) == 6


def test_no_byte_of_a_note_can_be_flipped():
    note = HEAD.signed(KEY).cosigned("w", WITNESS, 5).note().encode()
    for at in range(len(note)):
        flipped = note[:at] + bytes([note[at] ^ (1 << at % 7)]) + note[at + 1 :]
        try:
            head = TreeHead.parse(flipped.decode(errors="replace"))
        except LedgerError:
            continue
        assert not (head.signed_by(LOGS, NOW) and seen_at(head) == 5), at


@given(st.text(max_size=60))
def test_what_is_no_note_is_refused_in_a_sentence(note):
    with pytest.raises(LedgerError, match="must be a checkpoint"):
        TreeHead.parse(note)


def test_of_two_keys_the_one_that_may_speak_is_heard():
    revoked = KeyRecord(WITNESS.public_key(), revoked=datetime(1999, 1, 1, tzinfo=UTC))
    head = HEAD.signed(KEY).cosigned("w", WITNESS, 10**9).cosigned("v", KEY, 10**9)
    for keys in ([revoked, *LOGS], [*LOGS, revoked]):
        key, _, spoke = head.cosigned_by(keys) or (None, None, None)
        assert key == LOGS[0]
        assert spoke is not None
        assert spoke.ok
    alone = head.cosigned_by([revoked])
    assert alone is not None
    assert alone[2].ok is False
