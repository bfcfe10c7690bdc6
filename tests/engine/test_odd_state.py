"""State that is not trained: constants that are infinite, and what no mean can be taken of."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import covey


class Masked(nn.Module):
    """Reads one number of three; a constant, infinite elsewhere, says which."""

    def __init__(self, fill: float, *, persistent: bool, inside: bool = False) -> None:
        super().__init__()
        self.out = nn.Linear(1, 2)
        holder = self.out if inside else self
        mask = torch.tensor([fill, 0.0, fill])
        holder.register_buffer("mask", mask, persistent=persistent)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        mask = next(self.buffers())
        seen = torch.where(mask.isfinite(), inputs, torch.zeros_like(inputs))
        return self.out(seen.sum(dim=1, keepdim=True))


def site(seed: int) -> tuple[Any, Any]:
    inputs = np.random.default_rng(seed).normal(size=(12, 3)).astype(np.float32)
    return inputs, (inputs[:, 1] > 0).astype(np.int64)


def played(model: Callable[[], nn.Module], out: Path, engine: str = "reference") -> covey.Run:
    settings = {
        "rounds": 3,
        "method.name": "fedavg",
        "risk.name": "none",
        "engine.name": engine,
        "train.learning_rate": 0.5,
    }
    clients = {f"site-{i}": site(i) for i in range(3)}
    return covey.run(model, clients, config=settings, out=out, progress=False)


@pytest.mark.parametrize(
    ("engine", "fill", "inside"),
    [("reference", math.inf, False), ("parallel", -math.inf, True), ("vmap", -math.inf, False)],
)
def test_an_infinite_constant_is_none_that_is_trained(engine, fill, inside, tmp_path):
    with_it, without = (
        played(
            lambda persistent=persistent: Masked(fill, persistent=persistent, inside=inside),
            tmp_path / str(persistent),
            engine,
        )
        for persistent in (True, False)
    )
    assert with_it.history.finished is not None
    assert with_it.history.diverged == {}
    trained = {name: value for name, value in with_it.params(0).items() if "mask" not in name}
    assert all(torch.equal(trained[name], value) for name, value in without.params(0).items())


def test_a_client_leaves_a_run_with_an_infinite_constant(tmp_path):
    held = played(lambda: Masked(-math.inf, persistent=True), tmp_path / "run")
    (one,) = held.forget("site-1", "retrain")
    assert one.answered.option.answer == "retrain"


def test_a_parameter_that_becomes_infinite_still_diverged(tmp_path):
    class Explodes(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 1e30

    held = played(lambda: Explodes(3, 2), tmp_path / "run")
    assert 0 in held.history.diverged


def with_buffer(value: torch.Tensor) -> nn.Module:
    model = nn.Linear(3, 2)
    model.register_buffer("odd", value)
    return model


class Counted(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 0}

    def set_extra_state(self, state: Any) -> None: ...


class Complex(nn.Linear):
    def __init__(self) -> None:
        super().__init__(3, 2)
        self.odd = nn.Parameter(torch.ones(2, dtype=torch.complex64))


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a complex buffer": (lambda: with_buffer(torch.ones(2, dtype=torch.complex64)), "'odd'"),
    "a sparse buffer": (lambda: with_buffer(torch.eye(2).to_sparse()), "'odd'"),
    "a complex parameter": (Complex, "'odd'"),
    "extra state": (lambda: Counted(3, 2), "'_extra_state'"),
    "extra state inside": (lambda: nn.Sequential(Counted(3, 2)), "'0._extra_state'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_state_that_has_no_mean_is_refused_by_name_before_anything_is_written(name, tmp_path):
    model, named = REFUSED[name]
    with pytest.raises(covey.ModelError, match=f"must be dense tensors of real.*{named}"):
        played(lambda: model(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.b.weight = self.a.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.b(self.a(inputs)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.out = nn.Linear(3, 3), nn.Linear(3, 2)
        self.again = self.a

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.again(self.a(inputs)))


@pytest.mark.parametrize("model", [Tied, Twice])
def test_tensors_with_two_names_are_for_the_parallel_engine(model, tmp_path):
    with pytest.raises(covey.ModelError, match="use the parallel engine"):
        played(lambda: model(), tmp_path / "vmap", "vmap")
    assert played(lambda: model(), tmp_path / "run").history.finished
