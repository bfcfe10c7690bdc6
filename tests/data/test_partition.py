import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.data.partition import apportion, divide

seeds = st.integers(0, 2**32 - 1)
block_sizes = st.lists(st.integers(0, 20), min_size=1, max_size=10)
share_lists = st.lists(st.floats(0.01, 1), min_size=1, max_size=6)


def cut(seed, count, sizes):
    return divide(count, sizes, np.random.default_rng(seed))


@given(seed=seeds, sizes=block_sizes, beyond=st.integers(0, 20))
def test_blocks_have_their_sizes_and_never_overlap(seed, sizes, beyond):
    blocks = cut(seed, sum(sizes) + beyond, sizes)
    assert [len(block) for block in blocks] == sizes
    assert len(set(torch.cat(blocks).tolist())) == sum(sizes)


@given(seed=seeds, sizes=block_sizes)
def test_sizes_that_add_up_use_everything(seed, sizes):
    together = torch.cat(cut(seed, sum(sizes), sizes))
    assert sorted(together.tolist()) == list(range(sum(sizes)))


@given(seed=seeds, sizes=block_sizes)
def test_blocks_are_determined_by_the_seed(seed, sizes):
    first, second = cut(seed, 200, sizes), cut(seed, 200, sizes)
    assert torch.equal(torch.cat(first), torch.cat(second))


@given(total=st.integers(0, 1_000), shares=share_lists)
def test_apportioned_counts_add_up_and_are_off_by_less_than_one(total, shares):
    counts = apportion(total, shares)
    assert sum(counts) == total
    for count, share in zip(counts, shares, strict=True):
        assert abs(count - total * share / sum(shares)) < 1


@pytest.mark.parametrize(
    ("total", "shares", "counts"),
    [
        (40, (0.15, 0.85), [6, 34]),
        (100, (0.29, 0.71), [29, 71]),  # 0.29 * 100 is a little below 29 in binary
        (10, (0.25, 0.75), [3, 7]),  # 2.5 and 7.5: the earlier is rounded up
        (7, (1.0, 1.0, 1.0), [3, 2, 2]),
    ],
)
def test_largest_remainders_by_hand(total, shares, counts):
    assert apportion(total, shares) == counts
