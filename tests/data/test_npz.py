import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import DataError, Examples
from covey.data.clients import clients_of
from covey.data.sets import NpzFolder

LABELS = np.array([0, 2])


def read_clients(folder: Path) -> dict[str, Examples]:
    request: Any = SimpleNamespace(folder=folder)
    return NpzFolder().clients(request)


def zeros(*shape):
    return np.zeros(shape, dtype=np.uint8)


@given(
    count=st.integers(1, 5),
    height=st.integers(4, 6),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_images_come_back_with_channels_second_however_they_lay(count, height, channels, seed):
    shape = (count, channels, height, 7)
    x = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    y = np.arange(count)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "ada.npz"), x=x, y=y)
        np.savez(Path(folder, "bob.npz"), x=np.moveaxis(x, 1, -1), y=y)
        clients = read_clients(Path(folder))
    assert list(clients) == ["ada", "bob"]
    for examples in clients.values():
        assert np.array_equal(examples.inputs.numpy(), x)
        assert examples.labels.tolist() == y.tolist()


def test_images_without_channels_get_one(tmp_path):
    np.savez(tmp_path / "ada.npz", x=zeros(2, 5, 4), y=LABELS)
    assert read_clients(tmp_path)["ada"].inputs.shape == (2, 1, 5, 4)


def test_features_come_back_as_float32(tmp_path):
    x = np.array([[0.5, -1.0], [2.0, 3.0]])
    np.savez(tmp_path / "ada.npz", x=x, y=LABELS.astype(np.uint8))
    examples = read_clients(tmp_path)["ada"]
    assert examples.inputs.dtype == torch.float32
    assert examples.inputs.tolist() == x.tolist()
    assert examples.labels.dtype == torch.int64


@pytest.mark.parametrize("dtype", [np.int16, np.uint32, np.int64])
def test_whole_numbers_come_back_whole(tmp_path, dtype):
    x = np.array([[5, 2_000], [0, 1]], dtype=dtype)
    np.savez(tmp_path / "ada.npz", x=x, y=LABELS)
    inputs = read_clients(tmp_path)["ada"].inputs
    assert inputs.dtype == torch.int64
    assert inputs.tolist() == x.tolist()


@pytest.mark.parametrize(
    ("y", "dtype"),
    [(LABELS * 0.5, torch.float32), (np.array([[0, 1, 1], [1, 0, 0]]), torch.int64)],
    ids=["numbers", "several-labels"],
)
def test_labels_may_be_numbers_or_several_per_example(tmp_path, y, dtype):
    np.savez(tmp_path / "ada.npz", x=zeros(2, 5, 4), y=y)
    labels = read_clients(tmp_path)["ada"].labels
    assert labels.dtype == dtype
    assert labels.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (zeros(2, 3, 4, 3), LABELS, "either second or last"),
        (zeros(2, 5, 4, 7), LABELS, "either second or last"),
        (zeros(2, 5), LABELS, "either second or last"),
        (np.array([[np.nan], [0]]), LABELS, "inputs must be finite"),
        (zeros(3, 5, 4), LABELS, r"found \(3, 1, 5, 4\) and \(2,\)"),
        (zeros(0, 5, 4), LABELS[:0], "must bring an example"),
        (zeros(2, 5, 4), LABELS - 1, "class numbers"),
        (zeros(2, 5, 4), LABELS * np.nan, "labels must be finite"),
        (zeros(2, 5, 4), LABELS[:, None] * 0.5, r"\(2, 1\) of torch.float32"),
        (zeros(2, 5, 4), LABELS[:, None] - 1, "class numbers"),
        (np.array([{}, {}]), LABELS, "plain arrays"),
    ],
)
def test_unclear_arrays_are_refused_by_file_name(tmp_path, x, y, message):
    np.savez(tmp_path / "ada.npz", x=x, y=y)
    with pytest.raises(DataError, match=message) as caught:
        read_clients(tmp_path)
    assert "ada.npz" in str(caught.value)


def test_a_file_without_labels_is_refused(tmp_path):
    np.savez(tmp_path / "ada.npz", x=zeros(2, 5, 4))
    with pytest.raises(DataError, match="plain arrays x and y"):
        read_clients(tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\3\4 cut short"])
def test_a_corrupt_file_is_refused(tmp_path, content):
    (tmp_path / "ada.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"ada\.npz must be an \.npz file"):
        read_clients(tmp_path)


def test_a_lone_array_is_refused(tmp_path):
    with (tmp_path / "ada.npz").open("wb") as file:
        np.save(file, zeros(2, 5, 4))
    with pytest.raises(DataError, match=r"ada\.npz must be an \.npz file"):
        read_clients(tmp_path)


def test_clients_whose_examples_differ_in_shape_are_refused(tmp_path):
    np.savez(tmp_path / "ada.npz", x=zeros(2, 5, 4), y=LABELS)
    np.savez(tmp_path / "bob.npz", x=zeros(2, 5, 5), y=LABELS)
    with pytest.raises(DataError, match=r"those of ada .*\(1, 5, 4\) .*of bob .*\(1, 5, 5\)"):
        clients_of(read_clients(tmp_path))


def test_a_folder_without_clients_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"one \.npz file per client, found none"):
        read_clients(tmp_path)
