"""Chunks of the vmap engine: who trains with whom, in how much memory, how exactly."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from covey import ModelError, Params, Recipe, ReferenceEngine, Sgd, TrainingJob
from covey.engine.cpu import ParallelEngine
from covey.engine.optimizers import StepFunction, Tensors
from covey.engine.vmap import (
    VmapEngine,
    activation_bytes,
    chunk_size,
    client_bytes,
    grouped,
    lockstep,
    out_of_memory,
)
from engine.jobs import make_jobs, make_module

SIZES = (10, 4, 10, 7, 10, 1, 0)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.1, optimizer=Sgd(momentum=0.5))
CPU = torch.device("cpu")


class Tight(Sgd):
    """Runs out of memory with more than `most` clients, and puts down how many came."""

    most: int
    seen: list[int]

    def begin_together(self, weights: Tensors, learning_rate: float) -> StepFunction:
        self.seen.append(len(weights[0]))
        if len(weights[0]) > self.most:
            raise torch.OutOfMemoryError("the card is full")
        return super().begin_together(weights, learning_rate)


def tight(most: int) -> tuple[list[int], Recipe]:
    optimizer = Tight(most=most, seen=[], momentum=0.5)
    return optimizer.seen, replace(RECIPE, optimizer=optimizer)


def assert_reference(module: nn.Module, jobs: list[TrainingJob], got: list[Params]):
    plain = [replace(job, recipe=RECIPE, on_losses=None) for job in jobs]
    for trained, oracle in zip(got, ReferenceEngine(module).train(plain), strict=True):
        torch.testing.assert_close(dict(trained), dict(oracle), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_chunk_halves_until_it_fits_and_stays_so():
    module = make_module(nn.BatchNorm2d(2))
    seen, recipe = tight(most=2)
    loss_counts: list[int] = []
    jobs = [
        replace(job, on_losses=lambda losses: loss_counts.append(len(losses)))
        for job in make_jobs(module, SIZES, recipe)
    ]
    engine = VmapEngine(module)
    assert_reference(module, jobs, list(engine.train(jobs)))
    assert seen == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    assert sorted(loss_counts) == sorted(2 * -(-n // 4) for n in SIZES if n)
    seen.clear()
    list(engine.train(jobs))
    assert seen == [1] * 7


def test_one_client_that_does_not_fit_is_reported_by_what_it_took():
    module = make_module()
    _, recipe = tight(most=0)
    (job,) = make_jobs(module, (10,), recipe)
    with pytest.raises(ModelError, match=r"10 examples .*: set train\.batch_size below 4") as e:
        list(VmapEngine(module).train([job]))
    assert out_of_memory(e.value)
    assert not out_of_memory(ValueError())


def test_chunks_come_from_the_free_memory():
    module = make_module()
    seen, recipe = tight(most=100)
    jobs = make_jobs(module, SIZES, recipe)
    weights = dict(module.named_parameters())
    images = jobs[0].examples.inputs[:4].float()
    activations = activation_bytes(lambda: module(images), weights)
    per_client = client_bytes(jobs[0], list(weights), activations)
    for free, sizes in ((0, [1] * 7), (100 * per_client, [7]), (5 * per_client, [4, 3])):
        seen.clear()
        engine = VmapEngine(module, free_memory=lambda free=free: free)
        assert_reference(module, jobs, list(engine.train(jobs)))
        assert seen == sizes
    seen.clear()
    list(VmapEngine(module, chunk=3, free_memory=lambda: 0).train(jobs))
    assert seen == [3, 3, 1]


@given(free=st.integers(0, 1 << 40), per_client=st.integers(1, 1 << 30))
def test_a_chunk_is_a_power_of_two_that_fits_and_no_larger_one_does(free: int, per_client: int):
    size = chunk_size(free, per_client)
    assert size.bit_count() == 1
    assert size == 1 or size * per_client <= 0.8 * free
    assert 2 * size * per_client > 0.8 * free


def test_chunks_by_hand():
    groups = grouped("aabab", [1, 5, 2, 9, 3], lambda _: 2)
    assert groups == [[3, 1], [0], [4, 2]]
    many = grouped([0] * 20, range(20), lambda _: 1)
    assert [i for (i,) in many] == [*range(7, -1, -1), *range(15, 7, -1), 19, 18, 17, 16]


@given(st.lists(st.lists(st.integers(1, 3), max_size=5), min_size=1, max_size=6))
def test_everybody_takes_its_own_batches_in_order(lengths: list[list[int]]):
    """Client c's example e has the number 100 c + e in the row of all."""
    lengths.sort(key=len, reverse=True)
    drawn = [[torch.full((n,), s) for s, n in enumerate(own)] for own in lengths]
    rows: list[list[list[int]]] = [[] for _ in lengths]
    for step, groups in enumerate(lockstep(drawn, [100] * len(drawn), CPU)):
        sizes = [group.examples.shape[1] for group in groups]
        assert len(set(sizes)) == len(sizes)
        taking = sorted(client for group in groups for client in group.clients)
        assert taking == [c for c, own in enumerate(lengths) if step < len(own)]
        for group in groups:
            assert torch.arange(6)[group.rows].tolist() == group.clients
            for client, row in zip(group.clients, group.examples, strict=True):
                rows[client].append(row.tolist())
    assert rows == [[[100 * c + s] * n for s, n in enumerate(own)] for c, own in enumerate(lengths)]


def update(start: Params, trained: Params) -> Tensor:
    return torch.cat([(trained[name] - value).flatten().float() for name, value in start.items()])


@pytest.mark.parametrize(
    "extra", [[nn.BatchNorm2d(2)], [nn.Dropout(0.3)]], ids=["batch-norm", "dropout"]
)
def test_bfloat16_agrees_with_the_parallel_engines(extra: list[nn.Module]):
    """Sums in another order, rounded to 8 bits: updates differ by less than a tenth.

    Either differs so much from float32: rounding is all there is.
    """
    module = make_module(*extra)
    jobs = make_jobs(module, SIZES[:4], replace(RECIPE, optimizer=Sgd()))
    start = jobs[0].start
    low = VmapEngine(module, precision="bfloat16").train(jobs)
    peer = ParallelEngine(module, 1, "bfloat16").train(jobs)
    full = VmapEngine(module).train(jobs)
    for ours, theirs, exact in zip(low, peer, full, strict=True):
        assert all(value.dtype == start[name].dtype for name, value in ours.items())
        moved, other, true = (update(start, trained) for trained in (ours, theirs, exact))
        assert not torch.equal(moved, true)
        assert (moved - other).norm() < 0.1 * true.norm()
