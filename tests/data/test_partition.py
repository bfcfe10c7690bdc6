"""Partitions, shifts and sources: their laws, built in or a user's own."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError, DataError, Examples, Partition, PublishedData, Shift
from covey.base.built_ins import built_ins
from covey.base.components import create
from covey.data.examples import Brightness, Rotation, ShiftRange
from covey.data.partition import ByWriter, Dirichlet, apportion
from plugins.partition_shards import Shards
from plugins.shift_contrast import NoisyContrast

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


GENERATOR = np.random.default_rng(0)


def random_images(seed, shape):
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return torch.from_numpy(pixels)


def rotate(images, amounts):
    return Rotation().apply(images, amounts, GENERATOR)


def brighten(images, amounts):
    return Brightness().apply(images, amounts, GENERATOR)


def same(amount, images):
    return torch.full((len(images),), float(amount))


@given(seed=seeds, side=st.integers(1, 12), quarters=st.integers(-5, 5))
def test_quarter_turns_of_a_square_move_pixels_exactly(seed, side, quarters):
    images = random_images(seed, (2, 3, side, side))
    turned = rotate(images, same(90 * quarters, images))
    assert torch.equal(turned, torch.rot90(images, quarters, dims=(-2, -1)))


def test_an_oblong_turns_without_stretching_and_black_enters():
    # The middle three pixels stand up; what lay left and right of them leaves.
    image = torch.zeros((1, 1, 3, 5), dtype=torch.uint8)
    image[0, 0, 1] = torch.tensor([10, 20, 30, 40, 50])
    turned = rotate(image, torch.tensor([90.0]))
    column = [[0, 0, value, 0, 0] for value in (40, 30, 20)]
    assert turned[0, 0].tolist() == column


def test_brightness_is_clipped_and_a_negative_factor_inverts():
    image = torch.tensor([[0, 100, 200]], dtype=torch.uint8)[None, None]
    images = image.expand(4, 1, 1, 3)
    changed = brighten(images, torch.tensor([0.5, 2.0, -1.0, -2.0]))
    assert changed[:, 0, 0].tolist() == [[0, 50, 100], [0, 200, 255], [255, 155, 55], [255, 55, 0]]


@pytest.mark.parametrize("transform", [rotate, brighten])
def test_an_image_is_transformed_the_same_alone_and_among_others(transform):
    images = random_images(0, (1_100, 1, 9, 9))  # more than one chunk
    amounts = torch.linspace(-2, 40, len(images))
    together = transform(images, amounts)
    for index in (0, 999, 1_000, 1_099):
        one = slice(index, index + 1)
        assert torch.equal(transform(images[one], amounts[one]), together[one])


@pytest.mark.parametrize(("low", "high"), [(2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_an_impossible_range_is_refused(low, high):
    with pytest.raises(ConfigError, match="low <= high"):
        ShiftRange(Rotation(), low, high)


def built_in(kind, base):
    return [create(kind, name, kind, base) for name in built_ins(kind)]


SHIFTS = [*built_in("shift", Shift), NoisyContrast(noise=20.0)]
PARTITIONS = [*built_in("partition", Partition), Shards()]


def name_of(component):
    return type(component).__name__


def generator(seed=0):
    return np.random.default_rng(seed)


def images(count=1_100):
    pixels = generator().integers(0, 256, (count, 1, 4, 4), dtype=np.uint8)
    return torch.from_numpy(pixels)


@pytest.mark.parametrize("shift", SHIFTS, ids=name_of)
def test_a_shift_keeps_shape_and_kind_and_follows_its_generator(shift):
    before, amounts = images(), torch.linspace(0.1, 2.0, 1_100)
    one, same = (shift.apply(before, amounts, generator(3)) for _ in range(2))
    assert (one.shape, one.dtype) == (before.shape, torch.uint8)
    assert torch.equal(one, same)
    assert torch.equal(before, images())  # untouched
    assert torch.equal(one, before) == shift.changes_nothing


@pytest.mark.parametrize("partition", PARTITIONS, ids=name_of)
def test_a_partition_deals_each_card_once_and_follows_its_generator(partition):
    labels = torch.arange(600) % 5
    source = PublishedData("numbers", Examples(images(600), labels), None, 5, writers=labels)
    cards = torch.from_numpy(generator(1).permutation(600)[:500])
    sizes = [30, 7, 50]
    one, same = (partition.deal(source, cards, sizes, generator(2)) for _ in range(2))
    assert [len(hand) for hand in one] == sizes
    together = torch.cat(list(one))
    assert len(together.unique()) == sum(sizes)
    assert torch.isin(together, cards).all()
    assert torch.equal(together, torch.cat(list(same)))
