import numpy as np
import pytest

from covey import ChecksumError, DataError
from data.layouts import read_source, write_idx


def write_mnist(folder, train_labels=(7, 1)):
    """Unzipped, so that no published sum stands in the way of made-up images."""
    images = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    for part, labels in {"train": train_labels, "t10k": (2, 5)}.items():
        write_idx(folder / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.array(labels))
    return images


def test_digits_come_with_scikit_learn(tmp_path):
    source = read_source("digits", tmp_path)
    assert source.train.inputs.shape == (1797, 1, 8, 8)
    # The first row of the first digit, 0 0 5 13 9 1 0 0 of 16.
    row = [0, 0, 80, 207, 143, 16, 0, 0]
    assert source.train.inputs[0, 0, 0].tolist() == row
    assert source.train.inputs.max() == 255
    assert source.train.labels.unique().tolist() == list(range(source.num_classes))
    assert source.test is None


def test_idx_files_become_images_of_one_channel(tmp_path):
    images = write_mnist(tmp_path)
    source = read_source("mnist", tmp_path)
    assert np.array_equal(source.train.inputs[:, 0].numpy(), images)
    assert source.train.labels.tolist() == [7, 1]
    assert source.test is not None
    assert source.test.labels.tolist() == [2, 5]


def test_labels_must_match_the_images(tmp_path):
    write_mnist(tmp_path, train_labels=(1, 2, 3))
    with pytest.raises(DataError, match=r"train-labels.* must hold 2 labels, found 3"):
        read_source("mnist", tmp_path)


def test_made_up_bytes_under_a_published_name_are_refused(tmp_path):
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", np.zeros((2, 28, 28)))
    with pytest.raises(ChecksumError, match="must have MD5"):
        read_source("mnist", tmp_path)


def test_real_mnist_is_mnist(real_data):
    source = read_source("mnist", real_data)
    assert source.train.labels.bincount().tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    mean = source.train.inputs.float().mean() / 255
    assert float(mean) == pytest.approx(0.1307, abs=1e-4)


def test_real_cifar10_uses_the_batches_that_are_there(real_data, tmp_path):
    for name in ("data_batch_2", "test_batch"):
        (tmp_path / name).symlink_to(real_data / "cifar-10-batches-py" / name)
    source = read_source("cifar10", tmp_path)
    assert source.train.inputs.shape == (10_000, 3, 32, 32)
    assert source.test is not None
    assert source.test.labels.bincount().tolist() == [1_000] * 10
    # The published channel means of the data set; one batch is within 0.01 of them.
    means = source.train.inputs.float().mean(dim=(0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.01)
    (note,) = source.notes
    assert "data_batch_1, data_batch_3, data_batch_4, data_batch_5" in note
