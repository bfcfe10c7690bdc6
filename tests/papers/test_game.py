"""The participation game on runs that remember their clients, and when it is refused."""

import shutil
from dataclasses import replace

import pytest
import torch

from covey import Examples, RunError, load, run
from covey_papers.game import game_of, play_game

pytestmark = pytest.mark.slow  # training a run that learns its clients by heart
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
            replace(each, population=replace(each.population, **changed))
            for each in (session.run, session.whole)
        )
        return game_of(replace(session, run=run, whole=whole))


def test_who_took_part_shows_in_a_run_that_never_met_them_it_does_not(learnt):
    before = sorted(learnt.rglob("*"))
    rounds = []
    found = play_game(load(learnt), control=True, observe=lambda h: rounds.append(h))
    assert (found.participants, found.reserved) == (12, 86)
    assert found.low > 0.5
    assert (found.left, found.left_reason) == (None, "no client has left this run")
    control = found.control
    assert control
    assert control.clients == control.audited.clients == 3
    assert control.low <= 0.5 <= control.high
    assert control.auc < control.audited.auc
    assert len(rounds[-1].rounds) == 4
    assert sorted(learnt.rglob("*")) == before
    assert play_game(load(learnt)) == replace(found, control=None)


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


def test_non_members_unlike_the_members_are_refused(learnt):
    black = Examples(
        torch.zeros(1400, 1, 8, 8, dtype=torch.uint8), torch.zeros(1400, dtype=torch.int64)
    )
    with pytest.raises(RunError, match="a classifier that never sees the model"):
        played(learnt, non_members=(black, black))
