import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey import Examples
from covey.data.sets import NpzFolder


def read_clients(folder: Path) -> dict[str, Examples]:
    request: Any = SimpleNamespace(folder=folder, label="")
    return NpzFolder().clients(request)


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
