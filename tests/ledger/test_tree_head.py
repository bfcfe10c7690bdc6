"""Signed tree heads and proofs of what a log holds: the published forms, and every change."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import CoveyError, LedgerError
from covey.ledger.tree import LogProof, TreeHead, begins_with, head_of, origin_of, witness_request
from covey.unlearning.signature import (
    COSIGNATURE,
    KeyRecord,
    PublicKey,
    SigningKey,
    key_id,
    key_line,
    key_records,
)
from runtime.witnesses import cosigned

KEY = SigningKey.from_private_bytes(bytes(32))
WITNESS = SigningKey.from_private_bytes(bytes([1] * 32))
KNOWN = [KeyRecord(WITNESS.public_key(), name="w")]
HEAD = TreeHead(origin_of("1a2b" * 16), 42, bytes(range(32)))
ROOT = base64.b64encode(bytes(range(32))).decode()
SIGNED = HEAD.signed(KEY).note()
LINE = SIGNED.splitlines()[4]
HASHES = [f"{i:064x}" for i in range(9)]
SHOWN = LogProof(b"entry", 3, (bytes(32), bytes([9] * 32)), HEAD.signed(KEY))


def seen_at(head: TreeHead) -> float | None:
    found = head.cosigned_by(KNOWN)
    return found.moment.timestamp() if found else None


def test_a_key_has_the_mark_that_the_public_go_checksum_database_publishes(tmp_path):
    published = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"
    raw = base64.b64decode(published.split("+", 2)[2])
    public = PublicKey.from_public_bytes(raw[1:])
    assert key_id("sum.golang.org", public, raw[0]).hex() == "033de0ae"
    assert key_line("sum.golang.org", public, raw[0]) == published


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


@given(
    st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32), st.integers(1, 253_402_300_799)
)
def test_what_is_written_reads_back_and_verifies(size, root, seconds):
    head = cosigned(TreeHead("covey.run/x", size, root).signed(KEY), "w", WITNESS, seconds)
    again = TreeHead.parse(head.note())
    assert again == head
    assert again.is_signed_by(KEY.public_key())
    assert not again.is_signed_by(WITNESS.public_key())
    assert seen_at(again) == seconds
    assert again.cosigned_by([KeyRecord(KEY.public_key(), name="w")]) is None
    assert again.cosigned_by([KeyRecord(WITNESS.public_key(), name="another")]) is None
    assert again.cosigned_by([KeyRecord(WITNESS.public_key())]) is None


def flipped(text: str):
    written = text.encode()
    for at in range(len(written)):
        changed = written[:at] + bytes([written[at] ^ (1 << at % 7)]) + written[at + 1 :]
        yield at, changed.decode(errors="replace")


def test_no_byte_of_a_note_can_be_flipped():
    for at, note in flipped(cosigned(HEAD.signed(KEY), "w", WITNESS, 5).note()):
        try:
            head = TreeHead.parse(note)
        except LedgerError:
            continue
        assert not (head.is_signed_by(KEY.public_key()) and seen_at(head) == 5), at


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
        witness_request(HASHES, 4, KEY),
    ],
)
def test_what_is_no_checkpoint_is_refused(note):
    with pytest.raises(LedgerError, match="must be a checkpoint"):
        TreeHead.parse(note)


@given(st.text(max_size=60))
def test_what_is_no_note_is_refused_in_a_sentence(note):
    for read in (TreeHead.parse, TreeHead.parse_body, LogProof.parse):
        with pytest.raises(LedgerError, match="must be a checkpoint"):
            read(note)


def test_of_two_keys_the_one_that_may_speak_is_heard():
    revoked = KeyRecord(WITNESS.public_key(), revoked=datetime(1999, 1, 1, tzinfo=UTC), name="w")
    other = KeyRecord(KEY.public_key(), name="v")
    head = cosigned(cosigned(HEAD.signed(KEY), "w", WITNESS, 10**9), "v", KEY, 10**9)
    for keys in ([revoked, other], [other, revoked]):
        seen = head.cosigned_by(keys)
        assert seen is not None
        assert (seen.key, seen.check.ok) == (other, True)
    alone = head.cosigned_by([revoked])
    assert alone is not None
    assert alone.check.ok is False


def test_the_lines_are_those_of_a_tlog_proof():
    lines = SHOWN.text().split("\n")
    assert lines[:3] == ["c2sp.org/tlog-proof@v1", "extra ZW50cnk=", "index 3"]
    assert [base64.b64decode(each) for each in lines[3:5]] == list(SHOWN.path)
    assert "\n".join(lines[5:]) == f"\n{SIGNED}"
    assert LogProof.parse(SHOWN.text()) == SHOWN
    bare = LogProof(b"", 0, (), HEAD.signed(KEY))
    with pytest.raises(LedgerError):  # an entry is what it must show
        LogProof.parse(bare.text())


@pytest.mark.parametrize(
    "text",
    [
        *(SHOWN.text().replace("index 3", f"index {i}") for i in ("-1", "03", "1" + "0" * 30)),
        SHOWN.text().replace("@v1", "@v2"),
        SHOWN.text().replace("ZW50cnk=", "ZW50cnl="),
        SHOWN.text().replace("A=\n", "B=\n", 1),
        SHOWN.text().replace("index 3\n", "index 3\n" + f"{ROOT}\n" * 62),
        SHOWN.text().replace("index 3\n", "index 3\n\n"),
        SIGNED,
    ],
)
def test_what_is_no_tlog_proof_is_refused(text):
    with pytest.raises(LedgerError, match="must be a checkpoint"):
        LogProof.parse(text)


def test_a_request_has_the_lines_of_add_checkpoint():
    first = witness_request(HASHES, 0, KEY)
    assert first == f"old 0\n\n{head_of(HASHES).signed(KEY).note()}"
    start, _, note = witness_request(HASHES, 4, KEY).partition("\n\n")
    old, *path = start.split("\n")
    assert (old, [len(base64.b64decode(each)) for each in path]) == ("old 4", [32, 32])
    assert begins_with(HASHES, TreeHead.parse(note))
    for size in (-5, 10, 10**30):
        with pytest.raises(LedgerError, match="taken out"):
            witness_request(HASHES, size, KEY)


@pytest.mark.parametrize("size", [0, -5, 10, 10**30])
def test_no_history_begins_with_an_impossible_size(size):
    assert not begins_with(HASHES, TreeHead("o", size, head_of(HASHES).root))


def test_lines_of_witnesses_are_read_with_what_is_written_before_them(tmp_path):
    line = key_line("witness.example/w1", WITNESS.public_key(), COSIGNATURE)
    path = tmp_path / "witness.key"
    path.write_text(f"revoked: 2098-01-01T00:00:00.000+00:00\n{line}\n")
    (read,) = key_records(path)
    assert (read.name, read.public) == ("witness.example/w1", WITNESS.public_key())
    assert read.revoked == datetime(2098, 1, 1, tzinfo=UTC)
    as_log = key_line("witness.example/w1", WITNESS.public_key(), 1)
    for changed in (
        as_log,
        line.replace("w1", "w2"),
        line[:-4],
        f"{line[:-3]}====",
        "a+00000000+=",
    ):
        path.write_text(f"{changed}\n")
        with pytest.raises(CoveyError):
            key_records(path)
