"""Signed tree heads: the published form, and every change."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import LedgerError
from covey.base.signature import SigningKey
from covey.ledger.tree import TreeHead, begins_with, head_of, origin_of

KEY = SigningKey.from_private_bytes(bytes(32))
OTHER = SigningKey.from_private_bytes(bytes([1] * 32))
HEAD = TreeHead(origin_of("1a2b" * 16), 42, bytes(range(32)))
ROOT = base64.b64encode(bytes(range(32))).decode()
SIGNED = HEAD.signed(KEY).note()
LINE = SIGNED.splitlines()[4]
HASHES = [f"{i:064x}" for i in range(9)]


def test_the_published_example_of_a_checkpoint_is_read():
    """Of C2SP tlog-cosignature, whose keys are not published."""
    example = (
        "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
        "— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/"
        "Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
        "— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJs"
        "X3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
    )
    head = TreeHead.parse(example)
    assert (head.size, len(head.signatures), head.note()) == (20852163, 2, example)
    assert int.from_bytes(head.signatures[1][1][4:12], "big") == 1679315147


@given(st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32))
def test_what_is_written_reads_back_and_verifies(size, root):
    head = TreeHead("covey.run/x", size, root).signed(KEY)
    again = TreeHead.parse(head.note())
    assert again == head
    assert again.is_signed_by(KEY.public_key())
    assert not again.is_signed_by(OTHER.public_key())


def flipped(text: str):
    written = text.encode()
    for at in range(len(written)):
        changed = written[:at] + bytes([written[at] ^ (1 << at % 7)]) + written[at + 1 :]
        yield at, changed.decode(errors="replace")


def test_no_byte_of_a_note_can_be_flipped():
    for at, note in flipped(HEAD.signed(KEY).note()):
        try:
            head = TreeHead.parse(note)
        except LedgerError:
            continue
        assert not head.is_signed_by(KEY.public_key()), at


@pytest.mark.parametrize(
    "note",
    [
        *(SIGNED.replace("42", size) for size in ("-5", "042", "4_2", " 42", "٤٢", "")),
        SIGNED.replace("42", "1" + "0" * 30),
        SIGNED.replace("42", str(2**63)),
        SIGNED.replace(f"{ROOT}\n", f"{ROOT}\nan extension\n"),
        SIGNED.replace(ROOT, ROOT.replace("=", "")),
        SIGNED.replace("Hh8=", "Hh9="),
        SIGNED.replace("covey.run/1a2b1a2b1a2b1a2b\n", "\n", 1),
        SIGNED.replace("\n", "\r\n"),
        SIGNED.replace("\n", "\n\x00", 1),
        SIGNED.replace("— ", "- "),
        SIGNED.removesuffix("\n"),
        f"{SIGNED}\n",
        HEAD.body,
        SIGNED + f"{LINE}\n" * 64,
        f"{SIGNED}{LINE} more\n",
        f"\ud800{SIGNED}",
    ],
)
def test_what_is_no_checkpoint_is_refused(note):
    with pytest.raises(LedgerError, match="must be a checkpoint"):
        TreeHead.parse(note)


@given(st.text(max_size=60))
def test_what_is_no_note_is_refused_in_a_sentence(note):
    with pytest.raises(LedgerError, match="must be a checkpoint"):
        TreeHead.parse(note)


@pytest.mark.parametrize("size", [0, -5, 10, 10**30])
def test_no_history_begins_with_an_impossible_size(size):
    assert not begins_with(HASHES, TreeHead("o", size, head_of(HASHES).root))
