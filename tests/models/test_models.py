"""Models: built by name or handed in, and what is refused."""

import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from covey import ConfigError, ModelError, Streams
from covey.base.components import create
from covey.models.build import (
    NETWORKS,
    ModelFactory,
    check_model,
    initial_params,
    refuse_batch_norm,
)
from covey.models.build import build_model as built_model


def build_model(name, shape, classes, streams, task="multiclass", options=None):
    """A network by its name and its settings."""
    settings = {"name": name, "task": task, **(options or {})}
    made = create("model", settings, "model.name", ModelFactory)
    return built_model(made, shape, classes, streams)


def num_params(module: nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


def sized(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Linear(input_shape[0], num_classes)


@pytest.fixture
def _her_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """An importable module with right and wrong factories."""
    module = ModuleType("her_models")
    vars(module).update(
        plain=lambda: nn.Linear(4, 2),
        sized=sized,
        greedy=lambda width: nn.Linear(width, 2),
        text=lambda: "a network",
        number=3,
    )
    monkeypatch.setitem(sys.modules, "her_models", module)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "linear-map"])
def test_outputs_are_log_probabilities_but_for_tasks_without_classes(name: str):
    shape, inputs = (3, 32, 32), torch.rand(2, 3, 32, 32)
    usual = build_model(name, shape, 10, Streams(0)).eval()
    check_model(usual, shape, 10)
    module = build_model(name, shape, 10, Streams(0), "multilabel").eval()
    with torch.no_grad():
        torch.testing.assert_close(usual(inputs).exp().sum(dim=1), torch.ones(2))
        assert torch.equal(module(inputs).log_softmax(dim=1), usual(inputs))
        assert not torch.allclose(module(inputs), usual(inputs))


@pytest.mark.parametrize(("name", "side"), [("mnist-cnn", 4), ("vgg", 32)])
def test_images_that_are_too_small_are_refused(name: str, side: int):
    build_model(name, (1, side, side), 2, Streams(0))
    with pytest.raises((ConfigError, ModelError), match=f"at least {side}x{side} pixels"):
        build_model(name, (1, side, side - 1), 2, Streams(0))


def test_femnist_cnn_parameters_by_hand():
    # convolutions as above; 128 * (64 * 14 * 14 + 1) = 1,605,760; 62 * 129 = 7,998
    module = build_model("femnist-cnn", (1, 28, 28), 62, Streams(0))
    assert num_params(module) == 320 + 18_496 + 1_605_760 + 7_998


def test_initial_params_depend_on_the_stream_alone():
    def drawn(seed: int) -> torch.Tensor:
        module = build_model("lenet5", (1, 8, 8), 10, Streams(seed))
        return initial_params(module)["0.weight"]

    state = torch.get_rng_state()
    first = drawn(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(drawn(0), first)
    assert not torch.equal(drawn(1), first)


@pytest.mark.usefixtures("_her_models")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alexnet", "mnist-cnn, femnist-cnn, .*found 'alexnet'"),
        ("no.such.module:net", "what can be imported, .*No module named"),
        ("her_models:number", "found int"),
        ("her_models:greedy", r"found \(width\)"),
        ("her_models:text", "found a str"),
    ],
)
def test_a_wrong_model_name_is_explained(name: str, message: str):
    with pytest.raises((ConfigError, ModelError), match=message):
        build_model(name, (4,), 2, Streams(0))


class Noisy(nn.Linear):
    """Drops by the function, where covey cannot see it."""

    def __init__(self) -> None:
        super().__init__(4, 2)

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(input), training=self.training)


class Returns(nn.Module):
    """Ignores its inputs."""

    def __init__(self, outputs: object) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, inputs: Tensor) -> object:
        assert len(inputs) == 2
        return self.outputs


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(4, 3), r"outputs \(2, 2\), found \(2, 3\)"),
        (Returns(torch.zeros(2, 2, dtype=torch.long)), "of torch.int64"),
        (Returns((torch.zeros(2, 2),)), "Returns must return one tensor, found a tuple"),
        (nn.Linear(5, 2), r"Linear must take a batch of shape \(2, 4\), found RuntimeError"),
        (Noisy(), "global generator"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(module: nn.Module, message: str):
    with pytest.raises((ConfigError, ModelError), match=message):
        check_model(module, (4,), 2)


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(4), nn.InstanceNorm1d(4, track_running_stats=True)]
)
def test_layers_that_mix_examples_are_refused_by_name(layer: nn.Module):
    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(layer))
    said = rf"^Noise needs .* {type(layer).__name__}\(4.*use nn\.GroupNorm instead\.$"
    with pytest.raises((ConfigError, ModelError), match=said):
        refuse_batch_norm(module, "Noise")
