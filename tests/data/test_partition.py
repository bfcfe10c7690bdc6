import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import DataError, Examples
from covey.data.examples import PublishedData
from covey.data.partition import ByWriter, Dirichlet, apportion

seeds = st.integers(0, 2**32 - 1)
block_sizes = st.lists(st.integers(0, 20), min_size=1, max_size=10)
share_lists = st.lists(st.floats(0.01, 1), min_size=1, max_size=6)


def source(labels, writers=None) -> PublishedData:
    labels = torch.tensor(labels, dtype=torch.int64)
    return PublishedData("images", Examples(labels.view(-1, 1), labels), None, 10, writers=writers)


def by_class(labels, sizes, alpha=0.5, seed=0):
    cards, generator = torch.arange(len(labels)), np.random.default_rng(seed)
    return list(Dirichlet(alpha=alpha).deal(source(labels), cards, sizes, generator))


def by_writer(writers, sizes, seed=0):
    cards, generator = torch.arange(len(writers)), np.random.default_rng(seed)
    images = source([0] * len(writers), torch.tensor(writers))
    return list(ByWriter().deal(images, cards, sizes, generator))


@settings(max_examples=50)
@given(
    seed=seeds,
    sizes=block_sizes,
    beyond=st.integers(0, 20),
    alpha=st.sampled_from([1e-300, 1e-3, 0.5, 1e3, 1e308]),
)
def test_class_blocks_have_their_sizes_and_never_overlap(seed, sizes, beyond, alpha):
    # Few labels of most classes: they run out, and others must stand in.
    labels = (np.arange(sum(sizes) + beyond) ** 2 % 7).tolist()
    if not labels:
        return
    blocks = by_class(labels, sizes, alpha, seed)
    assert [len(block) for block in blocks] == sizes
    assert len(set(torch.cat(blocks).tolist())) == sum(sizes)


def test_class_mixes_have_the_variance_of_their_distribution():
    alpha, classes, size = 0.5, 5, 200
    labels = np.repeat(np.arange(classes), 20_000)
    blocks = by_class(labels.tolist(), [size] * 300, alpha)
    shares = np.array([np.bincount(labels[b], minlength=classes) for b in blocks]) / size
    mean = 1 / classes
    spread = mean * (1 - mean) / (classes * alpha + 1)
    expected = spread + (mean * (1 - mean) - spread) / size  # and the multinomial's own
    # 300 blocks of 5 classes: the estimate's standard error is below 5%.
    assert shares.mean(axis=0) == pytest.approx(mean, abs=0.06)
    assert shares.var() == pytest.approx(expected, rel=0.2)


def test_too_few_writers_are_refused_with_the_numbers():
    writers = [0] * 3 + [1] * 5 + [2] * 5
    by_writer(writers, [5, 2, 5])
    with pytest.raises(DataError, match=r"3 clients must have .* up to 4 .*found 2:"):
        by_writer(writers, [5, 4, 5])


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
