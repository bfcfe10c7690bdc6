"""What every data source, shift and partition keeps to, built in or a user's own."""

import numpy as np
import pytest
import torch

from covey import Examples, Partition, PublishedData, Shift
from covey.base.built_ins import built_ins
from covey.base.components import create
from plugins.partition_shards import Shards
from plugins.shift_contrast import NoisyContrast


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
