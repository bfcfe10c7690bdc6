"""Signed tree heads: the published form, and every change of it."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.errors import LedgerError
from covey.unlearning.signature import PublicKey, SigningKey
from covey.unlearning.tree_head import TreeHead, origin_of

KEY = SigningKey.from_private_bytes(bytes(32))
WITNESS = SigningKey.from_private_bytes(bytes([1] * 32))
HEAD = TreeHead(origin_of("1a2b" * 16), 42, bytes(range(32)))


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
    name, _, key = [
        "sum.golang.org",
        "033de0ae",
        "Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8",
    ]
    raw = base64.b64decode(key)
    assert raw[0] == 1
    from covey.unlearning.tree_head import _key_id

    assert _key_id(name, PublicKey.from_public_bytes(raw[1:]), 1).hex() == "033de0ae"


@given(
    st.integers(0, 2**60), st.binary(min_size=32, max_size=32), st.integers(1, 2**40)
)
def test_what_is_written_reads_back_and_verifies(size, root, seconds):
    head = TreeHead("covey.run/x", size, root).signed(KEY)
    head = head.cosigned("witness-1", WITNESS, seconds)
    again = TreeHead.parse(head.note())
    assert again == head
    assert again.is_signed_by(KEY.public_key())
    assert not again.is_signed_by(WITNESS.public_key())
    assert again.seen_at(WITNESS.public_key()) == seconds
    assert again.seen_at(KEY.public_key()) is None


def test_who_signs_again_replaces_its_own_signature_only():
    head = (
        HEAD.signed(KEY).cosigned("w", WITNESS, 5).cosigned("w", WITNESS, 6).signed(KEY)
    )
    assert len(head.signatures) == 2
    assert head.seen_at(WITNESS.public_key()) == 6


def test_no_byte_of_a_note_can_be_flipped():
    note = HEAD.signed(KEY).cosigned("w", WITNESS, 5).note().encode()
    for at in range(len(note)):
        flipped = note[:at] + bytes([note[at] ^ (1 << at % 7)]) + note[at + 1 :]
        try:
            head = TreeHead.parse(flipped.decode(errors="replace"))
        except LedgerError:
            continue
        whole = (
            head.is_signed_by(KEY.public_key())
            and head.seen_at(WITNESS.public_key()) == 5
        )
        assert not whole, at


@given(st.text(max_size=60))
def test_what_is_no_note_is_refused_in_a_sentence(note):
    with pytest.raises(LedgerError, match="must be a checkpoint"):
        TreeHead.parse(note)
