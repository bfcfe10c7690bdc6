from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from covey import Params
from covey.algorithms.start import gap_split, update_directions

seeds = st.integers(0, 2**32 - 1)


def blobs(sizes: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Clouds of deviation 1 whose centres lie 30 apart, and who belongs to which."""
    centres = 30 * np.eye(len(sizes), 4)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    noise = np.random.default_rng(seed).normal(size=(len(truth), 4))
    return centres[truth] + noise, truth


@pytest.mark.parametrize("sizes", [(10, 10), (4, 20), (8, 8, 8)])
def test_well_separated_groups_are_found(sizes):
    points, truth = blobs(sizes, seed=1)
    found = gap_split(points, len(sizes), np.random.default_rng(0))
    assert adjusted_rand_score(truth, found.labels) == 1


def drawn_updates(seed: int, clients: int = 5) -> list[Params]:
    draws = torch.Generator().manual_seed(seed)
    return [
        {"a": torch.randn(2, 3, generator=draws), "b": torch.randn(4, generator=draws)}
        for _ in range(clients)
    ]


def products(updates: Sequence[Params]) -> np.ndarray:
    rows = update_directions(updates)
    return rows @ rows.T


@given(seeds)
def test_directions_have_the_cosines_of_the_centred_updates(seed):
    updates = drawn_updates(seed)
    rows = torch.stack([torch.cat([each["a"].flatten(), each["b"]]) for each in updates]).double()
    rows = rows - rows.mean(dim=0)
    expected = torch.nn.functional.cosine_similarity(rows[:, None], rows, dim=2)
    np.testing.assert_allclose(products(updates), expected.numpy(), atol=1e-6)
