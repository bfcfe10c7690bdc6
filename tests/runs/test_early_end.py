"""Runs that end early, `on_round`, and cohorts of a fixed size."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from itertools import combinations, compress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import nn

import covey
from cli.conftest import command
from covey import (
    Config,
    ConfigError,
    EarlyStopping,
    Examples,
    History,
    Recipe,
    ReferenceEngine,
    RoundMetrics,
    RunError,
    Streams,
    TrainingJob,
)
from covey.base.events import ClientsAssigned, CohortSampled, RoundMeasured
from covey.base.figure import Figure
from covey.base.history import RoundRow, with_entries
from covey.engine.cpu import ParallelEngine
from covey.engine.vmap import VmapEngine
from covey.ledger.store import Ledger
from covey.runs.evaluation import early_end
from covey.settings.schema import StoppingConfig, TrainConfig
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


def test_every_round_is_reported_once_as_the_frame_has_it(tmp_path):
    rounds: list[RoundMetrics] = []
    run = played(tmp_path / "run", rounds.append)
    frame = run.rounds_frame()
    assert (
        [played_round.round_index for played_round in rounds]
        == [0, 1, 2, 3]
        == list(frame["round"])
    )
    assert [played_round.accuracy for played_round in rounds] == list(frame["accuracy"])
    assert [played_round.clients for played_round in rounds] == list(
        zip(frame["clients_0"], frame["clients_1"], strict=True)
    )
    assert not any(played_round.again for played_round in rounds)
    last = rounds[-1]
    assert set(last.values) == set(clients())
    for value in last.values.values():
        risk = last.risks[value.cluster or 0]
        assert value.risk == risk.value
    assert last.loss == pytest.approx(sum(value.loss or 0.0 for value in last.values.values()) / 5)
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
    training_job = TrainingJob(start, examples, Streams(0), recipe)
    built = engine(model())
    (trained,), (same,) = list(built.train([job])), list(built.train([training_job]))
    assert all(torch.equal(trained[name], same[name]) for name in trained)
    (losses,) = seen
    outputs = inputs @ start["weight"].T
    assert losses[0].mean() == pytest.approx(torch.log(torch.tensor(2.0)).item(), abs=1e-6)
    gradient = (outputs.softmax(1) - nn.functional.one_hot(examples.labels)).T / 8
    weight, bias = -0.3 * gradient @ inputs, -0.3 * gradient.sum(1)
    by_hand = nn.functional.cross_entropy(inputs @ weight.T + bias, examples.labels)
    assert losses[1].mean() == pytest.approx(by_hand.item(), abs=1e-6)


def test_nobody_is_told_a_loss_that_noise_hides(tmp_path):
    rounds: list[RoundMetrics] = []
    private = {"record_clip": 1.0, "record_noise": 1.0, "noise_model": "local"}
    played(
        tmp_path / "run",
        rounds.append,
        privacy=private,
        method={"name": "fedavg"},
        risk={"name": "none"},
    )
    assert {played_round.loss for played_round in rounds} == {None}


STOP = EarlyStopping(patience=2)
STILL = {**SETTINGS, "rounds": 9, "train": {"learning_rate": 1e-9, "batch_size": 5}}
"""Nothing is learnt, so that no accuracy is better than the first one."""


def played_still(out, stop: EarlyStopping | None = STOP, **changes):
    config = Config.of({**STILL, **changes})
    return covey.run(lambda: model(), clients(), config, out, stop=stop)


def again(folder):
    return covey.resume(folder, lambda: model(), clients())


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    return played_still(tmp_path_factory.mktemp("ended") / "run")


def row(t: int, accuracy: float | None) -> RoundRow:
    return RoundRow(t, 1, accuracy, {}, (1,), 0, (Figure(None),), None)


accuracies = st.lists(st.one_of(st.none(), st.sampled_from([0.1, 0.2, 0.3, 0.4])), max_size=12)


@given(values=accuracies, patience=st.integers(1, 4), least=st.sampled_from([0.0, 0.15]))
def test_the_decision_is_a_count_of_known_rounds_without_a_better_one(values, patience, least):
    """An oracle that walks through the rounds, against the fold."""
    stopping = StoppingConfig(figure="accuracy", patience=patience, min_change=least)
    config = Config.of({"rounds": 20, "stopping": stopping.model_dump()})
    best, waited = None, 0
    for value in values:
        if value is not None and (best is None or value - best > least):
            best, waited = value, 0
        elif value is not None:
            waited += 1
    rows = tuple(row(t, value) for t, value in enumerate(values))
    end = early_end(History(rounds=rows), config)
    assert (end is not None) == (waited >= patience)
    if end:
        assert (end.rounds, end.reason) == (len(values), "figure")


@given(values=accuracies, target=st.sampled_from([0.1, 0.25, 0.4, 0.5]))
def test_a_target_is_reached_by_the_latest_round_alone(values, target):
    config = Config.of({"rounds": 20, "stopping": {"target": target}})
    rows = tuple(row(t, value) for t, value in enumerate(values))
    end = early_end(History(rounds=rows), config)
    reached = bool(values) and values[-1] is not None and values[-1] >= target
    assert (end is not None) == reached
    if end:
        assert (end.rounds, end.accuracy, end.target) == (len(values), values[-1], target)


def test_a_run_ends_with_the_first_round_that_reaches_its_target_also_resumed(tmp_path):
    learning: dict[str, Any] = {"method": {"name": "fedavg"}, "risk": {"name": "none"}}
    learning["train"] = {"learning_rate": 0.05, "batch_size": 5}
    every = played_still(tmp_path / "whole", stop=None, **learning).history.rounds
    target = max(point.accuracy or 0.0 for point in every[1:-1])
    first = next(t for t, point in enumerate(every) if (point.accuracy or 0.0) >= target)
    learning["stopping"] = {"target": target}
    ended = played_still(tmp_path / "ended", stop=None, **learning)
    assert 1 < len(ended.history.rounds) == first + 1 < len(every)
    reason = ended.summary.ended_early
    assert reason.endswith(f"an accuracy of {target:.3f} reaches stopping.target = {target:g}")

    def stopped(row: RoundMetrics) -> None:
        if row.round_index == first - 1:
            raise InterruptedError

    config = Config.of({**STILL, **learning})
    with pytest.raises(InterruptedError):
        covey.run(lambda: model(), clients(), config, tmp_path / "resumed", on_round=stopped)
    assert again(tmp_path / "resumed").ledger_head == ended.ledger_head


@pytest.mark.parametrize(("most", "ends"), [(2, True), (3, False)])
def test_rounds_in_a_row_in_which_nobody_took_part_end_a_run(most, ends):
    config = Config.of({"rounds": 20, "stopping": {"empty_rounds": most}})
    rows = tuple(row(t, None) for t in range(5))
    end = early_end(History(rounds=rows, empty_rounds=2), config)
    assert (end is not None) == ends


@pytest.mark.parametrize(
    ("rounds", "empty"),
    [([[("a",), ()]] * 2, 2), ([[("a",), ()], [("a",), ("a",)]], 0), ([[("a",), ()], [(), ()]], 1)],
    ids=["two", "somebody", "nobody was drawn"],
)
def test_a_round_is_empty_if_clients_were_drawn_and_none_took_part(rounds, empty):
    entries = [
        (
            t,
            [
                CohortSampled(drawn),
                ClientsAssigned(dict.fromkeys(trained, 0), "shared"),
                RoundMeasured(None, {}, (len(trained),)),
            ],
        )
        for t, (drawn, trained) in enumerate(rounds)
    ]
    assert with_entries(History(), entries).empty_rounds == empty


def test_draws_that_are_empty_by_chance_end_no_run_but_it_has_failed(tmp_path):
    train = {"participation": 0.001, "batch_size": 5}
    with pytest.warns(RuntimeWarning, match="nobody took part in the last 9 of 9 rounds"):
        run = played_still(tmp_path / "run", stop=None, train=train, method={"name": "fedavg"})
    assert run.history.ended_early is None


def test_a_run_ends_as_one_of_so_many_rounds_does(ended, tmp_path):
    short = played_still(tmp_path / "short", stop=None, rounds=3)
    assert len(ended.history.rounds) == 3
    for part in ("audits", "exposures", "finished", "rounds", "assignment"):
        assert getattr(ended.history, part) == getattr(short.history, part)
    event = ended.history.ended_early
    assert (event.rounds, event.planned, event.reason) == (3, 9, "figure")


def test_a_kill_after_the_decision_ends_in_the_same_ledger(ended, tmp_path, monkeypatch):
    write = Ledger.append_between

    def killed(ledger, *folder):
        write(ledger, *folder)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(Ledger, "append_between", killed)
        played_still(tmp_path / "run")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert again(tmp_path / "run").ledger_head == ended.ledger_head


@pytest.mark.slow
def test_the_best_state_is_kept_can_be_exported_and_goes_with_who_is_in_it(tmp_path):
    """`every` and `thin` alone would keep neither round 6 nor most others."""
    learning = {"learning_rate": 0.05, "batch_size": 5}
    keep = {"every": 30, "keep": "thin", "best": "accuracy"}
    changes = {"risk": {"name": "none"}, "method": {"name": "fedavg"}}
    run = played_still(
        tmp_path / "run", stop=None, rounds=14, train=learning, checkpoints=keep, **changes
    )
    every = {
        played_round.round_index: played_round.accuracy or 0.0
        for played_round in run.history.rounds
    }
    best = max(every.values())
    first = min(t for t, value in every.items() if value == best)
    assert run.best() == (first, best)
    copy = run.export(cluster=0, after=first)
    assert copy.round_index == first + 1
    assert command("export", run.folder, "--cluster", "0", "--round", "best")[0] == 0
    assert (run.folder / "exports" / f"cluster-0-round-{first}.safetensors").exists()
    gone = min(t for t in range(14) if t not in _states(run))
    with pytest.raises(RunError, match=f"found {gone}"):
        run.export(cluster=0, after=gone)
    with pytest.raises(ConfigError, match="found 'loss'"):
        run.best("loss")
    before = {path.read_bytes() for path in run.folder.rglob("*.safetensors")}
    run.forget("c1", "retrain")
    after = {path.read_bytes() for path in run.folder.rglob("*.safetensors")}
    assert not before & after
    assert run.best().value == max(
        played_round.accuracy or 0.0 for played_round in run.history.rounds
    )


def _states(run):
    return {int(p.stem.split("-")[1]) for p in run.folder.glob("checkpoints/*")}


DRAWS = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12)


def test_the_smallest_draws_by_hand():
    draws = [0.5, 0.1, 0.9, 0.1]
    assert TrainConfig(cohort_size=1).takes_part(draws) == [False, True, False, False]
    assert TrainConfig(cohort_size=3).takes_part(draws) == [True, True, False, True]
    assert TrainConfig(cohort_size=9).takes_part(draws) == [True] * 4
    assert TrainConfig(participation=0.5).takes_part(draws) == [False, True, False, True]


@given(DRAWS, st.integers(1, 12), st.data())
def test_who_leaves_moves_nobody_else_out(draws, size, data):
    """Who was not drawn changes nothing, and who was is followed by at most one other."""
    gone = data.draw(st.integers(0, len(draws) - 1))
    train = TrainConfig(cohort_size=size)
    before = train.takes_part(draws)
    after = train.takes_part(draws[:gone] + draws[gone + 1 :])
    others = before[:gone] + before[gone + 1 :]
    newcomers = [new and not old for old, new in zip(others, after, strict=True)]
    assert not any(old and not new for old, new in zip(others, after, strict=True))
    assert sum(newcomers) <= before[gone]


def test_every_cohort_is_equally_likely():
    generator, train = np.random.default_rng(0), TrainConfig(cohort_size=2)
    drawn = Counter(
        tuple(compress("abcd", train.takes_part(draws)))
        for draws in generator.random((6_000, 4)).tolist()
    )
    assert set(drawn) == set(combinations("abcd", 2))
    assert chisquare(list(drawn.values())).pvalue > 0.001
