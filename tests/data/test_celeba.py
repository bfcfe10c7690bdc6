"""CelebA in its publisher's layout, written by the tests."""

from pathlib import Path

import pytest
import torch

from covey.data.formats import parse_image
from data.layouts import encoded, face, read_source, write_celeba

PATH = Path("somewhere.jpg")


@pytest.mark.parametrize("place", ["celeba", "."])
def test_celebas_files_become_images_with_forty_labels(tmp_path, place):
    write_celeba(tmp_path / place)
    source = read_source("celeba", tmp_path)
    assert source.test is not None
    assert source.train.inputs.shape == (2, 3, 32, 32)
    assert source.test.inputs.shape == (1, 3, 32, 32)
    assert source.train.labels.tolist() == [
        [int(k == number) for k in range(40)] for number in (0, 2)
    ]
    assert source.test.labels.nonzero().tolist() == [[0, 3]]
    assert (source.num_classes, source.notes) == (40, ())


def test_the_middle_square_is_kept_and_made_small():
    exact = parse_image(encoded(face(), "PNG"), PATH)
    assert exact.dtype == torch.uint8
    assert exact[0].max() == 0  # nothing of the red above and below
    assert exact[2].max() == 0
    assert exact[1, :, :15].max() == 0
    assert exact[1, :, 17:].min() == 255
    stored = parse_image(encoded(face()), PATH)
    assert (stored.int() - exact.int()).abs().float().mean() < 3  # JPEG loses a little
