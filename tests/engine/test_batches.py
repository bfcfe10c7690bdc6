import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Recipe
from covey.engine.protocol import batch_indices


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


def test_the_last_batch_may_be_short():
    sizes = [len(batch) for batch in drawn(10, Recipe(local_epochs=2, batch_size=4))]
    assert sizes == [4, 4, 2, 4, 4, 2]


def test_epochs_are_shuffled_anew_and_by_the_seed():
    recipe = Recipe(local_epochs=2, batch_size=50)
    first, second = drawn(50, recipe)
    assert first != second
    assert drawn(50, recipe, seed=1)[0] != first


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(local_steps=3)])
def test_no_examples_give_no_batches(recipe: Recipe):
    assert drawn(0, recipe) == []


def test_indices_address_tensors():
    (batch,) = batch_indices(3, Recipe(), np.random.default_rng(0))
    assert batch.dtype == torch.int64
