"""A user's own parts of local training: from TOML, as objects, on every kind of client."""

from pathlib import Path

import pytest
import tomli_w
import torch

import covey
from plugins.loss_generalized import GeneralizedCrossEntropy, generalized
from plugins.objective_distance import AbsoluteDistance
from plugins.optimizer_lion import Lion, LionSteps
from plugins.schedule_polynomial import Polynomial

TINY = {
    "rounds": 2,
    "population": {"clients": 4, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "train": {"learning_rate": 0.01, "batch_size": 8},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}
OWN = {
    "loss": ("plugins.loss_generalized:GeneralizedCrossEntropy", {"q": 0.5}),
    "objective": ("plugins.objective_distance:AbsoluteDistance", {"mu": 0.1}),
    "optimizer": ("plugins.optimizer_lion:Lion", {"b1": 0.8}),
    "schedule": ("plugins.schedule_polynomial:Polynomial", {"power": 2.0}),
}
OBJECTS = {
    "loss": GeneralizedCrossEntropy(q=0.5),
    "objective": AbsoluteDistance(mu=0.1),
    "optimizer": Lion(b1=0.8),
    "schedule": Polynomial(power=2.0),
}


def played(out: Path, **train: object) -> str:
    """Return the hash of the models in which a run ends."""
    config = {**TINY, "train": {**TINY["train"], **train}}
    return covey.run(config=config, out=out).summary.model_hash or ""


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> str:
    return played(tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize("field", OWN)
def test_a_part_of_ones_own_is_named_or_passed(tmp_path, plain, field):
    name, options = OWN[field]
    train = {**TINY["train"], field: {"name": name, **options}}
    file = tmp_path / "mine.toml"
    file.write_text(tomli_w.dumps({**TINY, "train": train}))
    named = covey.run(config=covey.load_config(file), out=tmp_path / "named")
    passed = played(tmp_path / "passed", **{field: OBJECTS[field]})
    assert named.summary.model_hash == passed != plain
    kept = (tmp_path / "passed" / "config.toml").read_text()
    assert name in kept
    assert all(option in kept for option in options)


def test_a_function_is_a_loss_and_a_torch_class_an_optimizer(tmp_path):
    functions = played(tmp_path / "f", loss=generalized, optimizer=LionSteps)
    classes = {"loss": GeneralizedCrossEntropy(), "optimizer": Lion()}
    assert functions == played(tmp_path / "c", **classes)


def test_lion_by_hand():
    # m = 0: w = 1 - 0.1 sign(0.1 g) = 0.9, m = 0.01 * 2 = 0.02
    # then g = -0.1: 0.9 m + 0.1 g = 0.018 - 0.01 > 0, so w = 0.8 though g < 0
    weight = torch.ones(1)
    step = Lion().begin([weight], 0.1)
    step([torch.tensor([2.0])])
    step([torch.tensor([-0.1])])
    torch.testing.assert_close(weight, torch.tensor([0.8]))
