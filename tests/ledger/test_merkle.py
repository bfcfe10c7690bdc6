"""Merkle trees and signed tree heads: vectors, laws, forged paths, every change."""

import base64
import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import LedgerError
from covey.base.signature import SigningKey
from covey.ledger.tree import (
    TreeHead,
    begins_with,
    consistency_proof,
    head_of,
    inclusion_proof,
    is_consistent,
    is_included,
    leaf_hash,
    origin_of,
    root_of,
)

EMPTY = hashlib.sha256().digest()

# github.com/google/certificate-transparency, merkletree/merkle_tree_test.cc
ENTRIES = [
    bytes.fromhex(text)
    for text in (
        *("", "00", "10", "2021", "3031", "40414243", "5051525354555657"),
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [leaf_hash(entry) for entry in ENTRIES]
PATHS = {
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
}
GROWTHS = {
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
    (1, 8): PATHS[0, 8],
}

sizes = st.integers(1, 70)


def leaves(size: int) -> list[bytes]:
    return [leaf_hash(str(i).encode()) for i in range(size)]


def test_the_roots_of_the_vectors():
    assert root_of([]) == EMPTY
    assert [root_of(LEAVES[: n + 1]).hex() for n in range(8)] == ROOTS


def test_the_paths_of_the_vectors():
    for (index, size), path in PATHS.items():
        assert [hash_value.hex() for hash_value in inclusion_proof(LEAVES[:size], index)] == path
    for (before, after), path in GROWTHS.items():
        assert [
            hash_value.hex() for hash_value in consistency_proof(LEAVES[:after], before)
        ] == path


def by_definition(hashes: list[bytes]) -> bytes:
    """MTH of RFC 6962, 2.1, as it is printed."""
    if len(hashes) < 2:
        return hashes[0] if hashes else EMPTY
    k = 1
    while 2 * k < len(hashes):
        k *= 2
    both = by_definition(hashes[:k]) + by_definition(hashes[k:])
    return hashlib.sha256(b"\x01" + both).digest()


@given(st.integers(0, 70))
def test_the_root_is_the_one_that_is_defined(size):
    assert root_of(leaves(size)) == by_definition(leaves(size))


@given(sizes, st.data())
def test_every_leaf_is_shown_to_be_in_the_tree_by_few_hashes(size, data):
    index = data.draw(st.integers(0, size - 1))
    hashes = leaves(size)
    path = inclusion_proof(hashes, index)
    assert is_included(hashes[index], index, size, path, root_of(hashes))
    assert len(path) <= math.ceil(math.log2(size))


@given(sizes, st.data())
def test_every_tree_is_shown_to_begin_with_those_before_it(size, data):
    small = data.draw(st.integers(1, size))
    hashes = leaves(size)
    path, roots = (consistency_proof(hashes, small), (root_of(hashes[:small]), root_of(hashes)))
    assert is_consistent((small, size), roots, path)
    assert len(path) <= math.ceil(math.log2(size)) + 1
    assert not is_consistent((0, size), (EMPTY, roots[1]), [])
    assert not is_consistent((0, 0), (EMPTY, EMPTY), [])


@given(sizes, st.data())
def test_a_path_of_anything_else_shows_nothing(size, data):
    index = data.draw(st.integers(0, size - 1))
    hashes = leaves(size)
    path, root = inclusion_proof(hashes, index), root_of(hashes)
    assert not is_included(leaf_hash(b"forged"), index, size, path, root)
    assert not is_included(hashes[index], index, size, [*path, root], root)
    assert not is_included(hashes[index], index, size, path, EMPTY)
    assert not is_included(hashes[index], size, size, path, root)
    assert not is_included(hashes[index], -1, size, path, root)
    if path:
        assert not is_included(hashes[index], index, size, path[1:], root)
        assert not is_included(hashes[index], index, size, [root, *path[1:]], root)


@given(st.integers(1, 70), st.data())
def test_a_path_in_a_tree_is_none_in_one_that_is_twice_as_large(size, data):
    index, small = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    hashes = leaves(size)
    path, root = inclusion_proof(hashes, index), root_of(hashes)
    assert not is_included(hashes[index], index, 2 * size, path, root)
    grown, roots = consistency_proof(hashes, small), (root_of(hashes[:small]), root)
    assert not is_consistent((small, 2 * size), roots, grown)
    assert not is_consistent((size, size), (root, root), [root])


@given(st.integers(2, 70), st.data())
def test_a_history_that_was_rewritten_is_not_consistent_with_the_one_before(size, data):
    small = data.draw(st.integers(1, size - 1))
    at = data.draw(st.integers(0, small - 1))
    before, hashes = leaves(size)[:small], leaves(size)
    rewritten = [*hashes[:at], leaf_hash(b"rewritten"), *hashes[at + 1 :]]
    roots = root_of(before), root_of(rewritten)
    for path in (
        consistency_proof(hashes, small),
        consistency_proof(rewritten, small),
        consistency_proof(rewritten, small)[1:],
        [*consistency_proof(hashes, small), EMPTY],
        [],
    ):
        assert not is_consistent((small, size), roots, path)
    assert not is_consistent((size, small), (roots[1], roots[0]), [])


def test_there_is_no_proof_of_what_is_not_there():
    for call in (
        lambda: inclusion_proof([], 0),
        lambda: inclusion_proof(LEAVES, 8),
        lambda: consistency_proof(LEAVES, 0),
        lambda: consistency_proof(LEAVES, 9),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()


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
