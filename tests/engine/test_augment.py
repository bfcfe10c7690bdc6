"""Inputs that are changed in training: by the client's own draws, whichever engine trains."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from covey import (
    ConfigError,
    DataError,
    Engine,
    Examples,
    Recipe,
    ReferenceEngine,
    Streams,
    TrainingJob,
    load,
    run,
    verify,
)
from covey.data.examples import to_floats
from covey.data.source import Augment, OwnAugment
from covey.engine.cpu import ParallelEngine
from covey.models.build import initial_params
from engine.jobs import make_module, some_images
from support.runs import small


def mirrored(inputs: Tensor, generator: torch.Generator) -> Tensor:
    chosen = torch.rand(len(inputs), generator=generator) < 0.5
    inputs[chosen] = inputs[chosen].flip(-1)
    return inputs


def noisy(inputs: Tensor, size: float = 0.2) -> Tensor:
    return inputs + size * torch.randn_like(inputs)


def doubled(inputs: Tensor) -> Tensor:
    return 2 * inputs


def jobs(augment: Augment, scale: float = 1.0) -> list[TrainingJob]:
    start = initial_params(make_module())
    recipe = Recipe(local_epochs=2, batch_size=4, augment=augment)
    held = [some_images(9 + client, seed=client) for client in range(6)]
    return [
        TrainingJob(
            start, Examples(scale * to_floats(own.inputs), own.labels), Streams(0).at(at), recipe
        )
        for at, own in enumerate(held)
    ]


def trained(engine: Engine, augment: Augment, scale: float = 1.0) -> list[dict[str, Tensor]]:
    return [dict(params) for params in engine.train(jobs(augment, scale))]


def same(first: list[dict[str, Tensor]], other: list[dict[str, Tensor]], within: float = 0) -> bool:
    pairs = zip(first, other, strict=True)
    return all(torch.allclose(a[n], b[n], rtol=0, atol=within) for a, b in pairs for n in a)


@pytest.mark.parametrize("function", [mirrored, noisy])
def test_every_engine_changes_inputs_alike_whoever_trains_beside(function):
    augment = OwnAugment(function=function)
    threads = [trained(ParallelEngine(make_module(), workers=n), augment) for n in (1, 2, 2)]
    assert same(threads[0], threads[1])
    assert same(threads[1], threads[2])
    assert same(threads[0], trained(ReferenceEngine(make_module()), augment), within=1e-5)
    assert not same(threads[0], trained(ParallelEngine(make_module(), workers=1), Augment()))


def test_torchs_own_generator_is_left_where_it_was():
    before = torch.random.get_rng_state()
    trained(ReferenceEngine(make_module()), OwnAugment(function=noisy))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_model_is_trained_on_what_the_function_returns():
    engine = ReferenceEngine(make_module())
    assert same(trained(engine, OwnAugment(function=doubled)), trained(engine, Augment(), scale=2))


def test_a_clients_own_examples_stay_as_they_are():
    augment = OwnAugment(function=lambda inputs: inputs.zero_())
    made = jobs(augment)
    before = [job.examples.inputs.clone() for job in made]
    list(ReferenceEngine(make_module()).train(made))
    assert all(torch.equal(job.examples.inputs, old) for job, old in zip(made, before, strict=True))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x[:1], r"found \(1, 1, 4, 4\)"),
        (lambda x: x.double(), "found .* of torch.float64"),
        (lambda x: x.numpy(), "found ndarray"),
        (lambda x: x / 0, "found NaN or infinity"),
        (lambda x: x.nothing, "raised AttributeError"),
    ],
)
def test_what_is_no_batch_is_refused(function, said):
    with pytest.raises(DataError, match=said):
        trained(ReferenceEngine(make_module()), OwnAugment(function=function))


TINY = small(
    rounds=3,
    data={"augment": {"name": "engine.test_augment:noisy", "size": 0.1}},
    engine={"name": "parallel"},
)


@pytest.mark.parametrize(
    "other",
    [
        {"engine": {"name": "vmap"}},
        {"privacy": {"record_clip": 1.0, "record_noise": 1.0}},
        {"privacy": {"record_clip": 1.0, "noise_model": "central"}},
    ],
    ids=["one tensor", "steps of records", "sums of records"],
)
def test_what_cannot_be_changed_in_training_is_refused_by_name(other, tmp_path):
    with pytest.raises(ConfigError, match=r"data\.augment"):
        run(config=TINY | other, out=tmp_path / "run")


def test_a_later_session_retrains_without_a_client_and_proves_it(tmp_path: Path):
    first, other = (run(config=TINY, out=tmp_path / folder) for folder in ("first", "other"))
    plain = run(config=TINY | {"data": {}}, out=tmp_path / "plain")
    assert all(torch.equal(value, other.params(0)[name]) for name, value in first.params(0).items())
    assert not torch.equal(first.params(0)["1.weight"], plain.params(0)["1.weight"])
    held = load(tmp_path / "first")
    (one,) = held.forget("client-00002", "retrain")
    assert one.answered.proof is not None
    assert verify(one.answered.proof, held.folder).failed == ()
