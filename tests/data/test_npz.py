import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import DataError, Examples
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


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (zeros(2, 3, 4, 3), LABELS, "either second or last"),
        (np.array([[np.nan], [0]]), LABELS, "inputs must be finite"),
        (zeros(3, 5, 4), LABELS, r"found \(3, 1, 5, 4\) and \(2,\)"),
        (zeros(2, 5, 4), LABELS - 1, "class numbers"),
        (np.array([{}, {}]), LABELS, "plain arrays"),
    ],
)
def test_unclear_arrays_are_refused_by_file_name(tmp_path, x, y, message):
    np.savez(tmp_path / "ada.npz", x=x, y=y)
    with pytest.raises(DataError, match=message) as caught:
        read_clients(tmp_path)
    assert "ada.npz" in str(caught.value)
