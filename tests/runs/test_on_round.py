"""`on_round`: once with each round that is recorded, whatever interrupts the run."""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn

import covey
from covey import Config, Examples, Recipe, ReferenceEngine, RoundMetrics, Streams, TrainingJob
from covey.engine.cpu import ParallelEngine
from covey.engine.vmap import VmapEngine
from support.tiny import points_of

SETTINGS = {
    "rounds": 4,
    "method": {"name": "ifca-mir", "num_clusters": 2, "initialisation": "random"},
    "risk": {"name": "oracle", "every": 2},
    "engine": {"name": "reference"},
    "train": {"learning_rate": 0.1, "batch_size": 5, "local_epochs": 2},
    "checkpoints": {"every": 3},
}


class BrokenError(Exception):
    """What a callback raises."""


def clients():
    return points_of(f"c{i}" for i in range(5))


def model():
    return nn.Linear(2, 2)


def played(out, on_round, **changes):
    config = Config.of({**SETTINGS, **changes})
    return covey.run(lambda: model(), clients(), config, out, on_round=on_round)


def test_every_round_is_told_once_as_the_frame_has_it(tmp_path):
    told: list[RoundMetrics] = []
    run = played(tmp_path / "run", told.append)
    frame = run.rounds_frame()
    assert [each.round_index for each in told] == [0, 1, 2, 3] == list(frame["round"])
    assert [each.accuracy for each in told] == list(frame["accuracy"])
    assert [each.clients for each in told] == list(
        zip(frame["clients_0"], frame["clients_1"], strict=True)
    )
    assert not any(each.again for each in told)
    last = told[-1]
    assert set(last.values) == set(clients())
    for each in last.values.values():
        found = last.risks[each.cluster or 0]
        assert each.risk == found.value
    assert last.loss == pytest.approx(sum(each.loss or 0.0 for each in last.values.values()) / 5)
    with pytest.raises(FrozenInstanceError):
        last.loss = 0.0  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_a_callback_changes_nothing_and_what_it_raises_leaves_a_run_to_resume(tmp_path):
    rounds: list[int] = []

    def stop(row):
        rounds.append(row.round_index)
        if row.round_index == 1:
            raise BrokenError

    alone = played(tmp_path / "alone", None)
    with pytest.raises(BrokenError):
        played(tmp_path / "cut", stop)
    assert covey.load(tmp_path / "cut").history.finished is None
    resumed = covey.resume(tmp_path / "cut", lambda: model(), clients(), on_round=stop)
    assert rounds == [0, 1, 2, 3]  # rounds 0 and 1 were replayed, and not told again
    assert resumed.ledger_head == alone.ledger_head
    covey.resume(tmp_path / "cut", lambda: model(), clients(), on_round=stop)
    assert rounds == [0, 1, 2, 3]


@pytest.mark.parametrize("engine", [ReferenceEngine, ParallelEngine, VmapEngine])
def test_a_training_loss_is_what_a_look_at_each_batch_says(engine):
    """One step per epoch, so that the second loss is that of the once-trained model."""
    inputs = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    examples = Examples(inputs, (inputs[:, 0] > 0).long())
    recipe = Recipe(local_epochs=2, batch_size=8, learning_rate=0.3)
    start = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}
    seen: list[Sequence[torch.Tensor]] = []
    job = TrainingJob(start, examples, Streams(0), recipe, on_losses=seen.append)
    quiet = TrainingJob(start, examples, Streams(0), recipe)
    built = engine(model())
    (trained,), (same,) = list(built.train([job])), list(built.train([quiet]))
    assert all(torch.equal(trained[name], same[name]) for name in trained)
    (losses,) = seen
    outputs = inputs @ start["weight"].T
    assert losses[0].mean() == pytest.approx(torch.log(torch.tensor(2.0)).item(), abs=1e-6)
    gradient = (outputs.softmax(1) - nn.functional.one_hot(examples.labels)).T / 8
    weight, bias = -0.3 * gradient @ inputs, -0.3 * gradient.sum(1)
    by_hand = nn.functional.cross_entropy(inputs @ weight.T + bias, examples.labels)
    assert losses[1].mean() == pytest.approx(by_hand.item(), abs=1e-6)


def test_nobody_is_told_a_loss_that_noise_hides(tmp_path):
    told: list[RoundMetrics] = []
    private = {"record_clip": 1.0, "record_noise": 1.0, "noise_model": "local"}
    played(
        tmp_path / "run",
        told.append,
        privacy=private,
        method={"name": "fedavg"},
        risk={"name": "none"},
    )
    assert {each.loss for each in told} == {None}
