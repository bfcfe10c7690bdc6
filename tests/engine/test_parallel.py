"""What only the parallel engine promises: threads that do not show, a module used again."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from covey import Examples, Recipe, ScoringJob, Streams, TrainingJob
from covey.engine import cpu as parallel
from covey.engine.cpu import ParallelEngine, Precision, ReusedModel
from covey.engine.optimizers import Sgd
from engine.jobs import make_jobs, make_module

SIZES = (10, 4, 10, 7, 10, 1, 25)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.1, optimizer=Sgd(momentum=0.5))


class ThreadWitness(nn.Module):
    """Notes how many intra-op threads each forward pass may use."""

    seen: list[int]

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 3)

    def __deepcopy__(self, memo: object) -> "ThreadWitness":
        clone = ThreadWitness()
        clone.seen = self.seen
        return clone

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append(torch.get_num_threads())
        return self.linear(inputs.flatten(1))


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_number_of_workers_changes_no_bit(precision: Precision):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, SIZES, RECIPE)
    runs = [list(ParallelEngine(module, workers, precision).train(jobs)) for workers in (1, 2, 3)]
    for alone, *others in zip(*runs, strict=True):
        for trained in others:
            assert all(torch.equal(trained[name], alone[name]) for name in alone)


@pytest.mark.usefixtures("two_threads")
def test_workers_use_one_intra_op_thread_and_the_caller_keeps_two():
    witness = ThreadWitness()
    witness.seen = []
    jobs = make_jobs(witness, SIZES, RECIPE)
    engine = ParallelEngine(witness, workers=2)
    list(engine.train(jobs))
    engine.score([ScoringJob(job.start, job.examples) for job in jobs])
    assert set(witness.seen) == {1}
    assert torch.get_num_threads() == 2
    newborn = threading.Thread(target=lambda: witness.seen.append(torch.get_num_threads()))
    newborn.start()
    newborn.join()
    assert witness.seen[-1] == 2


def test_jobs_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel, "BUNDLED_WORK", 0.0)  # each of them is a lot
    module = make_module()
    jobs = make_jobs(module, (5,) * 20, RECIPE)
    taken: list[TrainingJob] = []

    def arriving() -> Iterator[TrainingJob]:
        for job in jobs:
            taken.append(job)
            yield job

    results = ParallelEngine(module, workers=2).train(arriving())
    next(results)
    assert len(taken) == 4
    next(results)
    assert len(taken) == 5
    assert len(list(results)) == 18


@pytest.mark.parametrize(
    ("limit", "sizes"), [(1e9, [3, 3, 1]), (0.0, [1] * 7), (250.0, [2, 2, 2, 1])]
)
def test_bundles_are_as_large_as_their_work_allows(limit: float, sizes: list[int]):
    """A job is 10 parameters times 2 steps of 5 examples: 100."""
    examples = Examples(torch.zeros(10, 1), torch.zeros(10, dtype=torch.int64))
    start = {"weight": torch.zeros(10)}
    recipe = Recipe(batch_size=5)
    jobs = [TrainingJob(start, examples, Streams(0), recipe) for _ in range(7)]
    bundles = list(parallel.bundled(iter(jobs), parallel.training_work, 3, limit))
    assert [len(bundle) for bundle in bundles] == sizes
    assert [job for bundle in bundles for job in bundle] == jobs


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3))
    module[2].weight = module[1].weight
    return module


@pytest.mark.parametrize(
    "make", [linear, tied, make_module, lambda: make_module(nn.BatchNorm2d(2))]
)
@pytest.mark.parametrize("recipe", [RECIPE, replace(RECIPE, drop_last=True)])
def test_bundled_clients_train_to_the_bits_of_each_alone(make, recipe, monkeypatch):
    with Streams(0).at("tiny").lent_to_torch():
        module = make()
    jobs = make_jobs(module, (5,) * 6 + (4, 3, 8), recipe)
    others = {name: value + 1 for name, value in reversed([*jobs[0].start.items()])}
    jobs[1::2] = [replace(job, start=others) for job in jobs[1::2]]
    bundled = list(ParallelEngine(module, 2).train(jobs))
    for trained in bundled[1:]:  # each may be changed by who takes it
        for name, value in trained.items():
            assert value.is_contiguous()
            assert value.data_ptr() != bundled[0][name].data_ptr()
    monkeypatch.setattr(parallel, "BUNDLED_WORK", 0.0)
    alone = list(ParallelEngine(module, 2).train(jobs))
    for left, right in zip(bundled, alone, strict=True):
        assert list(left) == list(right)
        assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.usefixtures("two_threads")
def test_an_error_inside_a_job_reaches_the_caller():
    module = make_module()
    jobs = make_jobs(module, (5,) * 6, RECIPE)
    broken = Examples(jobs[2].examples.inputs, torch.full((5,), 99))
    jobs[2] = replace(jobs[2], examples=broken)
    results = ParallelEngine(module, workers=2).train(jobs)
    next(results)
    next(results)
    with pytest.raises(IndexError, match="99"):
        next(results)
    assert torch.get_num_threads() == 2


class Replaced(nn.Module):
    """Replaces its buffer by another tensor whenever it runs."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, inputs: Tensor) -> Tensor:
        self.count = self.count + 1
        return self.linear(inputs)


def two_tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    return module


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(3, 2), Replaced, two_tied, lambda: nn.BatchNorm1d(3)]
)
def test_a_model_begins_and_ends_as_a_loaded_state(make: Callable[[], nn.Module]):
    torch.manual_seed(0)  # noqa: TID251 - layers draw
    reused, other = ReusedModel(make()), make()
    for _ in range(3):
        start = {n: torch.rand(v.shape) for n, v in other.state_dict().items()}
        start = {n: start[n].to(v.dtype) for n, v in other.state_dict().items()}
        other.load_state_dict(start)
        reused.begin_at(start)
        assert reused.module.training
        inputs = torch.rand(4, 3)
        torch.testing.assert_close(reused.module(inputs), other(inputs), rtol=0, atol=0)
        params, wanted = reused.params(), other.state_dict()
        assert list(params) == list(wanted)
        assert all(torch.equal(params[name], wanted[name]) for name in wanted)
        reused.module.eval()
