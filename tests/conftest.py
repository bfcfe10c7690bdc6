import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from sklearn.datasets import load_digits

from covey.data.examples import Client, Examples, Preference

settings.register_profile("covey", deadline=None, max_examples=30)
settings.load_profile("covey")
torch.set_num_threads(1)

BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"
NOBODY = Examples(torch.empty(0, 1), torch.empty(0, dtype=torch.int64))


def client(
    name: str,
    train: Examples,
    holdout: Examples = NOBODY,
    group: int | None = None,
    preference: tuple[float, float] = (0.0, 0.8),
) -> Client:
    """A client whose handle is its name in capitals."""
    accepts = Preference(*preference)
    return Client(name, name.upper(), group, train, holdout, accepts)


@pytest.fixture(scope="session")
def make_client() -> Callable[..., Client]:
    return client


@pytest.fixture(scope="session")
def digits() -> Examples:
    """The 1,797 images of 8 x 8 pixels that scikit-learn ships, in a fixed shuffle."""
    bunch = load_digits()  # pixels 0..16
    order = np.random.default_rng(0).permutation(len(bunch.target))  # pyright: ignore
    images = np.clip(bunch.images[order] * 16, 0, 255).astype(np.uint8)  # pyright: ignore
    labels = bunch.target[order].astype(np.int64)  # pyright: ignore
    return Examples(torch.from_numpy(images)[:, None], torch.from_numpy(labels))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets; tests that need it skip where there is none."""
    folder = Path(os.environ.get("COVEY_DATA") or BESIDE_THE_REPOSITORY)
    if not folder.is_dir():
        pytest.skip(f"no data sets in {folder}: set COVEY_DATA to a folder with them")
    return folder
