"""CelebA in its publisher's layout, written by the tests."""

from pathlib import Path

import numpy as np
import pytest
import torch

from covey import DataError
from covey.data import formats
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


def test_a_wide_and_a_grey_image_are_cropped_alike():
    wide = np.full((40, 100), 9, dtype=np.uint8)
    wide[:, 30:70] = 200
    image = parse_image(encoded(wide, "PNG"), PATH)
    assert image.shape == (3, 32, 32)
    assert image.unique().tolist() == [200]


def test_only_the_first_images_of_a_part_are_read_and_a_note_says_so(tmp_path, monkeypatch):
    write_celeba(tmp_path / "celeba")
    monkeypatch.setattr(formats, "MOST", {"train": 1, "test": 1})
    source = read_source("celeba", tmp_path)
    assert source.train.labels.nonzero().tolist() == [[0, 0]]
    assert source.notes == ("Of the 2 training images of celeba the first 1 are used.",)


@pytest.mark.parametrize(
    "name", ["list_attr_celeba.txt", "list_eval_partition.txt", "img_align_celeba/000003.jpg"]
)
def test_a_missing_file_is_named_with_where_to_put_it(tmp_path, name):
    write_celeba(tmp_path / "celeba")
    (tmp_path / "celeba" / name).unlink()
    with pytest.raises(DataError) as caught:
        read_source("celeba", tmp_path)
    for part in (f"celeba needs the file {name}", str(tmp_path / "celeba"), "https://"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("list_attr_celeba.txt", "000003.jpg", "000009.jpg", "after 000003.jpg, found ''"),
        ("list_attr_celeba.txt", "-1\n", "\n", "40 times -1 or 1 after 000001.jpg"),
        ("list_attr_celeba.txt", "jpg  1", "jpg  2", "found '2 -1 -1"),
        ("list_eval_partition.txt", "000002.jpg 1", "000002.jpg", "2 images of part 0"),
        ("list_eval_partition.txt", "jpg 2", "jpg 1", "0 images of part 2 (test)"),
    ],
    ids=["unknown", "39-attributes", "not-binary", "no-part", "no-test"],
)
def test_a_malformed_list_is_refused_by_name(tmp_path, name, old, new, said):
    write_celeba(tmp_path / "celeba")
    path = tmp_path / "celeba" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError) as caught:
        read_source("celeba", tmp_path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no image", encoded(face())[:700]])
def test_what_is_no_image_is_refused_by_name(content):
    with pytest.raises(DataError, match=r"somewhere\.jpg must be an image, but"):
        parse_image(content, PATH)
