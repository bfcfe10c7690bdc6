import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from covey import ModelError, Recipe, run
from covey.engine.protocol import batch_indices, num_steps


def normalised() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


def drawn(num_examples: int, recipe: Recipe, seed: int = 0) -> list[list[int]]:
    batches = batch_indices(num_examples, recipe, np.random.default_rng(seed))
    return [batch.tolist() for batch in batches]


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 3))
def test_every_epoch_visits_every_example_once(num_examples: int, batch_size: int, epochs: int):
    batches = drawn(num_examples, Recipe(local_epochs=epochs, batch_size=batch_size))
    visits = [index for batch in batches for index in batch]
    for epoch in range(epochs):
        visited = visits[epoch * num_examples : (epoch + 1) * num_examples]
        assert sorted(visited) == list(range(num_examples))


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 40))
def test_local_steps_begin_as_epochs_do(num_examples: int, batch_size: int, steps: int):
    epochs = drawn(num_examples, Recipe(local_epochs=40, batch_size=batch_size))
    cycled = drawn(num_examples, Recipe(local_steps=steps, batch_size=batch_size))
    assert cycled == epochs[:steps]


def test_epochs_are_shuffled_anew_and_by_the_seed():
    recipe = Recipe(local_epochs=2, batch_size=50)
    first, second = drawn(50, recipe)
    assert first != second
    assert drawn(50, recipe, seed=1)[0] != first


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9, 11])
def test_only_a_short_last_batch_is_left_out_and_never_the_only_one(n: int):
    recipe = Recipe(batch_size=4, local_epochs=3, drop_last=True)
    found = drawn(n, recipe)
    assert len(found) == num_steps(n, recipe) == 3 * max(1, n // 4)
    assert {len(each) for each in found} == {min(n, 4)}
    assert all(len(set(each)) == len(each) for each in found)


def test_batch_norm_on_a_last_batch_of_one_is_refused_with_the_setting_that_leaves_it_out(tmp_path):
    settings = {
        "rounds": 1,
        "method.name": "fedavg",
        "risk.name": "none",
        "population.holdout": 0.0,
        "train.batch_size": 4,
    }
    clients = [(torch.randn(n, 4), torch.arange(n) % 3) for n in (9, 8)]
    with pytest.raises(ModelError, match=r"BatchNorm.*set train.drop_last = true"):
        run(normalised, clients, settings, tmp_path / "run")
