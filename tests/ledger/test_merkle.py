"""Merkle trees: the vectors of RFC 6962's first implementation, laws, and forged paths."""

import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.ledger.tree import (
    consistency_proof,
    inclusion_proof,
    is_consistent,
    is_included,
    leaf_hash,
    root_of,
)

EMPTY = hashlib.sha256().digest()

# github.com/google/certificate-transparency, merkletree/merkle_tree_test.cc
ENTRIES = [
    bytes.fromhex(each)
    for each in (
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
LEAVES = [leaf_hash(each) for each in ENTRIES]
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
        assert [each.hex() for each in inclusion_proof(LEAVES[:size], index)] == path
    for (before, after), path in GROWTHS.items():
        assert [each.hex() for each in consistency_proof(LEAVES[:after], before)] == path


def by_definition(found: list[bytes]) -> bytes:
    """MTH of RFC 6962, 2.1, as it is printed."""
    if len(found) < 2:
        return found[0] if found else EMPTY
    k = 1
    while 2 * k < len(found):
        k *= 2
    both = by_definition(found[:k]) + by_definition(found[k:])
    return hashlib.sha256(b"\x01" + both).digest()


@given(st.integers(0, 70))
def test_the_root_is_the_one_that_is_defined(size):
    assert root_of(leaves(size)) == by_definition(leaves(size))


@given(sizes, st.data())
def test_every_leaf_is_shown_to_be_in_the_tree_by_few_hashes(size, data):
    index = data.draw(st.integers(0, size - 1))
    found = leaves(size)
    path = inclusion_proof(found, index)
    assert is_included(found[index], index, size, path, root_of(found))
    assert len(path) <= math.ceil(math.log2(size))


@given(sizes, st.data())
def test_every_tree_is_shown_to_begin_with_those_before_it(size, data):
    small = data.draw(st.integers(1, size))
    found = leaves(size)
    path, roots = (consistency_proof(found, small), (root_of(found[:small]), root_of(found)))
    assert is_consistent((small, size), roots, path)
    assert len(path) <= math.ceil(math.log2(size)) + 1
    assert not is_consistent((0, size), (EMPTY, roots[1]), [])
    assert not is_consistent((0, 0), (EMPTY, EMPTY), [])


@given(sizes, st.data())
def test_a_path_of_anything_else_shows_nothing(size, data):
    index = data.draw(st.integers(0, size - 1))
    found = leaves(size)
    path, root = inclusion_proof(found, index), root_of(found)
    assert not is_included(leaf_hash(b"forged"), index, size, path, root)
    assert not is_included(found[index], index, size, [*path, root], root)
    assert not is_included(found[index], index, size, path, EMPTY)
    assert not is_included(found[index], size, size, path, root)
    assert not is_included(found[index], -1, size, path, root)
    if path:
        assert not is_included(found[index], index, size, path[1:], root)
        assert not is_included(found[index], index, size, [root, *path[1:]], root)


@given(st.integers(1, 70), st.data())
def test_a_path_in_a_tree_is_none_in_one_that_is_twice_as_large(size, data):
    index, small = data.draw(st.integers(0, size - 1)), data.draw(st.integers(1, size))
    found = leaves(size)
    path, root = inclusion_proof(found, index), root_of(found)
    assert not is_included(found[index], index, 2 * size, path, root)
    grown, roots = consistency_proof(found, small), (root_of(found[:small]), root)
    assert not is_consistent((small, 2 * size), roots, grown)
    assert not is_consistent((size, size), (root, root), [root])


@given(st.integers(2, 70), st.data())
def test_a_history_that_was_rewritten_is_not_consistent_with_the_one_before(size, data):
    small = data.draw(st.integers(1, size - 1))
    at = data.draw(st.integers(0, small - 1))
    before, found = leaves(size)[:small], leaves(size)
    rewritten = [*found[:at], leaf_hash(b"rewritten"), *found[at + 1 :]]
    roots = root_of(before), root_of(rewritten)
    for path in (
        consistency_proof(found, small),
        consistency_proof(rewritten, small),
        consistency_proof(rewritten, small)[1:],
        [*consistency_proof(found, small), EMPTY],
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
