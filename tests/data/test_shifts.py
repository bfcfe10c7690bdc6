import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import ConfigError
from covey.data.examples import Brightness, Rotation, ShiftRange

GENERATOR = np.random.default_rng(0)
seeds = st.integers(0, 2**32 - 1)


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
