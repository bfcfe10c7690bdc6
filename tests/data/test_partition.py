import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey import DataError, Examples
from covey.data.examples import Source
from covey.data.partition import ByWriter, Dirichlet, apportion

seeds = st.integers(0, 2**32 - 1)
block_sizes = st.lists(st.integers(0, 20), min_size=1, max_size=10)
share_lists = st.lists(st.floats(0.01, 1), min_size=1, max_size=6)


def source(labels, writers=None) -> Source:
    labels = torch.tensor(labels, dtype=torch.int64)
    return Source("images", Examples(labels.view(-1, 1), labels), None, 10, writers=writers)


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


def test_a_tiny_alpha_gives_one_class_and_a_huge_one_the_same_mix_to_all():
    labels = np.repeat(np.arange(10), 1_000)
    one_class = by_class(labels.tolist(), [50] * 40, alpha=1e-6)
    assert all(len(set(labels[block].tolist())) == 1 for block in one_class)
    alike = by_class(labels.tolist(), [500] * 4, alpha=1e6)
    for block in alike:
        # 50 of each class are expected, standard deviation 6.7: six of them.
        assert abs(np.bincount(labels[block], minlength=10) - 50).max() < 40


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


def test_what_a_class_no_longer_has_comes_from_those_that_are_left():
    labels = [0] * 3 + [1] * 97
    (block,) = by_class(labels, [100], alpha=1e-6, seed=1)
    assert sorted(block.tolist()) == list(range(100))


def test_a_block_is_in_random_order_so_that_its_end_is_a_sample_of_it():
    labels = np.repeat(np.arange(2), 500)
    (block,) = by_class(labels.tolist(), [1_000])
    # 100 of 200 expected, standard deviation 6.3.
    assert 60 < labels[block[-200:]].sum() < 140


@settings(max_examples=50)
@given(seed=seeds, amounts=st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_each_block_has_one_writer_of_its_own(seed, amounts):
    generator = np.random.default_rng(seed)
    writers = torch.repeat_interleave(torch.arange(len(amounts)) + 5, torch.tensor(amounts))[
        generator.permutation(sum(amounts))
    ]
    # As many blocks as writers, each as large as can be: only one way fits them all.
    sizes = generator.permutation(amounts).tolist()
    blocks = by_writer(writers.tolist(), sizes, seed)
    assert [len(block) for block in blocks] == sizes
    found = [set(writers[block].tolist()) for block in blocks]
    assert all(len(each) == 1 for each in found)
    assert len(set.union(*found)) == len(amounts)
    assert len(set(torch.cat(blocks).tolist())) == sum(sizes)


def test_a_writer_and_its_images_are_drawn_at_random():
    drawn = {
        tuple(sorted(by_writer([3] * 9 + [4] * 9, [3], seed)[0].tolist())) for seed in range(20)
    }
    assert {block[0] < 9 for block in drawn} == {True, False}
    assert len(drawn) > 10


def test_too_few_writers_are_refused_with_the_numbers():
    writers = [0] * 3 + [1] * 5 + [2] * 5
    by_writer(writers, [5, 2, 5])
    with pytest.raises(DataError, match=r"3 clients need 3 writers with 4 .*found 2\."):
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
