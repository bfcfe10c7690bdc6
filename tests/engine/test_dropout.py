"""Dropout masks belong to the client: no thread and no other client changes them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from covey import Engine, Examples, ModelError, Recipe, ReferenceEngine, Streams, TrainingJob
from covey.engine.cpu import ParallelEngine
from covey.engine.dropout import SeededDropout
from covey.engine.example_gradients import check_private
from covey.engine.vmap import VmapEngine
from engine.jobs import make_jobs, make_module

RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.1)
SIZES = (10, 4, 10, 7)


def masked(layer: nn.Module, inputs: torch.Tensor, client: int = 0) -> torch.Tensor:
    """The layer's training output on the client's stream."""
    nothing = Examples(torch.zeros(0, 1), torch.zeros(0, dtype=torch.long))
    job = TrainingJob({}, nothing, Streams(0).at(client), RECIPE)
    with SeededDropout(layer, job):
        return layer.train()(inputs)


LAYERS = {
    "never": nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5)),
    "twice": nn.Sequential(nn.Dropout(0.2), nn.BatchNorm2d(2), nn.Dropout2d(0.3)),
}


def test_kept_values_are_scaled_so_that_the_mean_stays():
    # 10,000 coins with p = 1/4: the mean has standard deviation sqrt(1/3)/100 < 0.006,
    # so five of them leave a false alarm in a million.
    dropped = masked(nn.Dropout(0.25), torch.ones(10_000))
    torch.testing.assert_close(dropped.unique(), torch.tensor([0, 4 / 3]))
    assert dropped.mean().item() == pytest.approx(1, abs=0.03)


def test_clients_have_different_masks():
    ones = torch.ones(64)
    layer = nn.Dropout(0.5)
    assert torch.equal(masked(layer, ones, client=1), masked(layer, ones, client=1))
    assert not torch.equal(masked(layer, ones, client=1), masked(layer, ones, client=2))


def test_channel_dropout_drops_whole_channels():
    dropped = masked(nn.Dropout2d(0.5), torch.ones(4, 16, 3, 3)).flatten(2)
    assert set(dropped.mean(dim=2).flatten().tolist()) == {0, 2}


@pytest.mark.parametrize("engine", [ReferenceEngine, ParallelEngine, VmapEngine])
def test_unreproducible_dropout_is_refused(engine: Callable[[nn.Module], Engine]):
    with pytest.raises(ModelError, match="AlphaDropout"):
        engine(make_module(nn.AlphaDropout(0.1)))


def test_vmap_refuses_what_it_cannot_batch():
    with pytest.raises(ModelError, match="GroupNorm"):
        VmapEngine(make_module(nn.BatchNorm2d(2, momentum=None)))


# attention and recurrent layers, which drop inside one operation


class OverRows(nn.Module):
    """Reads the rows of 1x4x4 images as a sequence, and answers from its mean."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        read = self.layer(images.squeeze(1))
        states = read[0] if isinstance(read, tuple) else read
        return self.head(states.mean(dim=1))


class SelfAttention(nn.MultiheadAttention):
    def forward(self, query: Tensor) -> tuple[Tensor, Tensor | None]:  # pyright: ignore
        return super().forward(query, query, query, need_weights=False)


FUSED: dict[str, Callable[[float], nn.Module]] = {
    "encoder": lambda p: nn.TransformerEncoderLayer(4, 2, 4, p, batch_first=True),
    "lstm": lambda p: nn.LSTM(4, 4, num_layers=2, dropout=p, batch_first=True),
}


def reader(name: str, p: float = 0.1) -> nn.Module:
    with Streams(0).at("tiny").lent_to_torch():
        return OverRows(FUSED[name](p))


MODULES = {
    **{name: lambda layer=layer: make_module(layer) for name, layer in LAYERS.items()},
    **{name: lambda name=name: reader(name) for name in FUSED},
}


@pytest.mark.parametrize("name", MODULES)
def test_masks_depend_on_the_job_alone(name: str):
    """Not on workers, order or chunks; and nothing is drawn from torch's own generator."""
    module = MODULES[name]()
    jobs = make_jobs(module, SIZES, RECIPE)
    state = torch.get_rng_state()
    reference = list(ReferenceEngine(module).train(jobs))
    one = list(ParallelEngine(module, workers=1).train(jobs))
    three = list(ParallelEngine(module, workers=3).train(jobs[::-1]))[::-1]
    few = list(ParallelEngine(module, workers=2).train(jobs[1:3]))
    batched = [] if name in FUSED else list(VmapEngine(module, chunk=3).train(jobs))
    assert torch.equal(torch.get_rng_state(), state)
    for oracle, alone, *others in zip(reference, one, *([batched] if batched else []), strict=True):
        for output in (alone, *others):
            torch.testing.assert_close(output, oracle, rtol=0, atol=1e-5)
    for alone, other in zip([*one, *one[1:3]], [*three, *few], strict=True):
        assert all(torch.equal(alone[name], other[name]) for name in alone)


def test_every_weight_of_attention_is_kept_with_its_chance():
    # 40,000 coins with p = 1/4: the share has standard deviation 0.0022, so five of
    # them leave a false alarm in a million.
    attention = SelfAttention(4, 1, dropout=0.25, batch_first=True).train()
    nothing = Examples(torch.zeros(0, 1), torch.zeros(0, dtype=torch.long))
    job = TrainingJob({}, nothing, Streams(0), RECIPE)
    rows = torch.ones(1, 200, 4)
    with SeededDropout(attention, job):
        _, weights = nn.MultiheadAttention.forward(attention, rows, rows, rows)
    assert weights is not None
    assert (weights > 0).float().mean().item() == pytest.approx(0.75, abs=0.011)


@pytest.mark.parametrize("kind", FUSED)
def test_what_cannot_draw_so_refuses_by_name(kind: str):
    fused = {"encoder": "MultiheadAttention"}
    with pytest.raises(ModelError, match=rf"{fused.get(kind, kind.upper())}.*parallel engine"):
        VmapEngine(reader(kind))
    layer = {**fused, "encoder": "Dropout"}.get(kind, kind.upper())
    with pytest.raises(ModelError, match=rf"record_clip.*{layer}"):
        check_private(reader(kind))
