"""A last batch of one example: BatchNorm cannot train on it, and it can be left out."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from covey import Config, ModelError, Recipe, run
from covey.engine.protocol import batch_indices, num_steps

ENGINES = ("reference", "parallel", "vmap")


def normalised() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def clients(sizes: tuple[int, ...]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    drawn = torch.Generator().manual_seed(3)
    return [(torch.randn(n, 1, 4, 4, generator=drawn), torch.arange(n) % 3) for n in sizes]


def played(path, engine: str, sizes: tuple[int, ...], **train):
    settings = {
        "rounds": 1,
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "population": {"holdout": 0.0},
        "engine": {"name": engine},
        "train": {"batch_size": 4, **train},
    }
    return run(clients=clients(sizes), model=normalised, out=path, config=Config.of(settings))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_last_batch_of_one_names_its_cause_and_the_setting(tmp_path, engine):
    with pytest.raises(ModelError, match=r"BatchNorm.*Set train.drop_last = true"):
        played(tmp_path / "run", engine, (9, 8, 8))


def test_with_the_setting_every_engine_trains_the_same(tmp_path):
    models = [
        played(tmp_path / engine, engine, (9, 8, 13), drop_last=True).params(0)
        for engine in ENGINES
    ]
    for other in models[1:]:
        for name, value in models[0].items():
            torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9, 11])
def test_only_a_short_last_batch_is_left_out_and_never_the_only_one(n):
    recipe = Recipe(batch_size=4, local_epochs=3, drop_last=True)
    found = batch_indices(n, recipe, np.random.default_rng(0))
    assert len(found) == num_steps(n, recipe) == 3 * max(1, n // 4)
    assert {len(each) for each in found} == {min(n, 4)}
    assert all(len(set(each.tolist())) == len(each) for each in found)


def test_without_it_no_batch_changes():
    before = batch_indices(9, Recipe(batch_size=4), np.random.default_rng(0))
    order = torch.from_numpy(np.random.default_rng(0).permutation(9))
    assert len(before) == math.ceil(9 / 4)
    assert torch.equal(torch.cat(before), order)
