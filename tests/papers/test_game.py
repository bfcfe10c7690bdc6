"""The participation game, and reserved clients."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Config, Examples, RunError, Streams, load, run
from covey.settings.run import BuiltRun, build_run
from covey_papers.game import _reserved, game_of, play_game
from covey_papers.participation import client_scores, participation_game, reserved_clients

LEARNT_BY_HEART = {
    "rounds": 4,
    "population": {
        "clients": 12,
        "examples_per_client": 16,
        "holdout": 0.0,
        "audit_examples": 1400,
    },
    "train": {"local_epochs": 40, "learning_rate": 0.1, "optimizer": {"momentum": 0.9}},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}


@pytest.fixture(scope="module")
def learnt(tmp_path_factory, settings):
    """A finished run, over-trained on small clients."""
    folder = tmp_path_factory.mktemp("game") / "learnt"
    run(config=settings(**LEARNT_BY_HEART), out=folder)
    return folder


def played(folder, **changed):
    """Play the game; `changed` are parts of the population."""
    with load(folder).open_finished("game", "A test") as session:
        run, whole = (
            replace(folder, population=replace(folder.population, **changed))
            for folder in (session.run, session.whole)
        )
        return game_of(replace(session, run=run, whole=whole))


@pytest.mark.slow
def test_who_took_part_shows_in_a_run_that_never_met_them_it_does_not(learnt):
    before = sorted(learnt.rglob("*"))
    rounds = []
    game = play_game(load(learnt), control=True, observe=lambda h: rounds.append(h))
    assert (game.participants, game.reserved) == (12, 86)
    assert game.low > 0.5
    assert (game.left, game.left_reason) == (None, "no client has left this run")
    control = game.control
    assert control
    assert control.clients == control.audited.clients == 3
    assert control.low <= 0.5 <= control.high
    assert control.auc < control.audited.auc
    assert len(rounds[-1].rounds) == 4
    assert sorted(learnt.rglob("*")) == before
    assert play_game(load(learnt)) == replace(game, control=None)


@pytest.mark.slow
def test_who_left_is_asked_about_apart(learnt, tmp_path):
    folder = tmp_path / "left"
    shutil.copytree(learnt, folder)
    load(folder).forget("client-00003", "retrain")
    before, after = played(learnt), played(folder)
    assert (after.participants, after.reserved) == (11, before.reserved)
    assert after.left is not None
    assert after.left.clients == 1
    assert after.left_reason == ""
    assert after.left.low <= 0.5


@pytest.mark.slow
def test_non_members_unlike_the_members_are_refused(learnt):
    black = Examples(
        torch.zeros(1400, 1, 8, 8, dtype=torch.uint8), torch.zeros(1400, dtype=torch.int64)
    )
    with pytest.raises(RunError, match="a classifier that never sees the model"):
        played(learnt, non_members=(black, black))


RANGES = (0.2, 0.5), (0.6, 1.0)


def built(per: str) -> BuiltRun:
    """A run whose data are images of white."""
    population = {
        "clients": 8,
        "examples_per_client": 10,
        "holdout": 0.0,
        "audit_examples": 200,
        "shift": "brightness",
        "minority": RANGES[0],
        "majority": RANGES[1],
        "shift_per": per,
    }
    method, risk = {"name": "fedavg"}, {"name": "none"}
    run = build_run(Config.of({"population": population, "method": method, "risk": risk}))
    unshifted = run.population.unshifted
    assert unshifted is not None
    white = Examples(torch.full_like(unshifted.inputs, 255), unshifted.labels)
    return replace(run, population=replace(run.population, unshifted=white))


def test_where_a_client_has_one_shift_each_reserved_client_has_one_of_its_own():
    run = built("client")
    reserved = _reserved(run, run.population.clients, Streams(0))
    assert set(reserved) == {0, 1}
    for group, sets in reserved.items():
        shades = [examples.inputs.unique() for examples in sets]
        assert all(len(own) == 1 for own in shades)
        assert len(torch.cat(shades).unique()) > len(sets) / 2
        low, high = RANGES[group]
        assert all(255 * low - 1 <= float(own) <= 255 * high + 1 for own in shades)


def test_else_each_image_has_its_own_and_they_are_the_matched_non_members():
    run = built("image")
    reserved = _reserved(run, run.population.clients, Streams(0))
    for group, sets in reserved.items():
        matched = {bytes(image.numpy()) for image in run.reference.by_group[group].inputs}
        assert all(
            bytes(image.numpy()) in matched for examples in sets for image in examples.inputs
        )


AT = Streams(0)

scores = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12).map(np.array)
sides = st.dictionaries(st.integers(0, 2), scores, min_size=1)


def images(count: int, first: int = 0) -> Examples:
    """Examples that say in their input which one they are."""
    numbers = torch.arange(first, first + count, dtype=torch.float32)
    return Examples(numbers[:, None], torch.zeros(count, dtype=torch.int64))


def test_a_client_is_scored_by_the_model_that_suits_it():
    # means .2 and 2 under the first model, .5 and 1 under the second
    losses = np.array([[0.1, 0.3, 1.0, 2.0, 3.0], [0.5, 0.5, 1.0, 1.0, 1.0]])
    assert client_scores(losses, [2, 3]) == pytest.approx([-0.2, -1.0])
    diverged = np.array([[np.nan, 1.0, 1.0], [2.0, 2.0, np.inf]])
    assert client_scores(diverged, [1, 2]).tolist() == [-2.0, -1.0]
    assert client_scores(np.full((1, 2), np.nan), [2]).max() < -1e300


@given(inside=sides, reserved=sides)
def test_the_interval_holds_the_estimate(inside, reserved):
    game = participation_game(inside, reserved, AT)
    if not inside.keys() & reserved.keys():
        assert game is None
        return
    assert game is not None
    assert -1e-9 <= game.low <= game.auc <= game.high <= 1 + 1e-9
    assert game.clients == sum(len(inside[g]) for g in inside.keys() & reserved.keys())


def test_groups_are_not_compared_with_each_other():
    # 3/4 and 0, weighted by 2 and 1 clients; together they would say 14/18
    inside = {0: np.array([11.0, 13.0]), 1: np.array([0.0])}
    reserved = {0: np.array([10.0, 12.0]), 1: np.array([1.0])}
    game = participation_game(inside, reserved, AT)
    assert game is not None
    assert game.auc == pytest.approx((2 * 0.75 + 1 * 0.0) / 3)


def test_no_image_serves_two_reserved_clients_or_two_groups(make_client):
    clients = [
        make_client("a", images(3), group=0),
        make_client("b", images(5), group=0),
        make_client("c", images(4), group=1),
    ]
    # the same 60 images under two transforms: 1,000 apart
    shared = images(60), images(60, first=1000)
    made = reserved_clients(clients, 60, lambda group, own: shared[group].take(own), AT)
    assert [len(examples) for examples in made[0]] == [3, 5, 3, 5, 3, 5, 3]
    assert [len(examples) for examples in made[1]] == [4] * 7
    assert all((e.inputs < 1000).all() for e in made[0])
    assert all((e.inputs >= 1000).all() for e in made[1])
    everything = Examples.joined([*made[0], *made[1]]).inputs.flatten() % 1000
    assert len(everything.unique()) == len(everything)
    # a group with too few reserved clients is left out
    clients = [make_client("a", images(6), group=0), make_client("b", images(7), group=1)]
    made = reserved_clients(clients, 60, lambda _, own: images(60).take(own), AT)
    assert {g: len(s) for g, s in made.items()} == {0: 5}
