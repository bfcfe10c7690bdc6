"""A run and its trackers: each round once, whatever happens to the run."""

import os
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import Config, ConfigError, resume
from covey.runs.tracking import Follower
from covey.runtime.folder import RunFolder
from covey.settings import trackers as background
from plugins.tracker_lines import Lines
from tracking.conftest import LINES, TINY, curves_of, lines_of, scalars_of, single

KILLED = """
import os, signal, sys, tomllib
from covey import Config, run
from covey.ledger.store import Ledger

out, off, settings = sys.argv[1:]
settings = tomllib.loads(settings)
run(config=Config.of({**settings, "tracking": [], "rounds": 1}), out=off)
loaded = ("mlflow", "plugins", "tensorboard", "wandb")
print([each for each in loaded if each in sys.modules], flush=True)
append, left = Ledger.append, [2]

def deadly(*args, **kwargs):
    append(*args, **kwargs)
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)

Ledger.append = deadly
run(config=Config.of(settings), out=out)
"""


def check_lines(folder: Path, replays: int = 0) -> None:
    """Each round once and in order, with what metrics.csv holds, then the end."""
    *rounds, last = lines_of(folder, replays)
    assert [t for t, _ in rounds] == list(range(TINY["rounds"]))
    assert last[0] == "end"
    found: dict[str, dict[int, float]] = {}
    for t, figures in rounds:
        for name, value in figures.items():
            found.setdefault(name, {})[t] = value
    assert found == curves_of(folder)


@pytest.mark.slow
def test_a_plugin_is_told_by_name_and_as_an_object(play):
    by_name = play(tracking=[{"name": LINES, "file": "rounds"}])
    by_object = play("object", tracking=[Lines(file="rounds")])
    assert by_object.ledger_head == by_name.ledger_head
    for each in (by_name, by_object):
        check_lines(each.folder)
    written = (by_object.folder / "config.toml").read_text()
    assert tomllib.loads(written)["tracking"] == [{"name": LINES, "file": "rounds"}]


class Told(covey.Tracker):
    """Remembers what it is told, and holds some rounds before."""

    held: int = 0
    _rounds: list[int] = []  # noqa: RUF012 - pydantic copies it

    def begin(self, run: covey.TrackedRun) -> int:
        return self.held

    def log(self, round_index: int, figures: covey.Figures) -> None:
        self._rounds.append(round_index)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> covey.Run:
    folder = tmp_path_factory.mktemp("story") / "run"
    return covey.run(config=TINY, out=folder)


@given(
    lengths=st.lists(st.integers(0, TINY["rounds"]), max_size=8),
    held=st.integers(0, TINY["rounds"]),
)
def test_each_round_is_told_once_however_the_story_comes(story, lengths, held):
    """Stories may be skipped, come again or get shorter: rounds that are replayed."""
    told = Told(held=held)
    follower = Follower(RunFolder(story.folder), "told", lambda: told)
    whole = story.history
    for length in lengths:
        part = replace(whole, rounds=whole.rounds[:length], finished=None)
        assert all(isinstance(each, bool) for each in follower.follow(part))
    assert sum(follower.follow(whole)) <= TINY["rounds"]
    assert told._rounds == list(range(held, TINY["rounds"]))


@pytest.mark.slow
def test_rounds_that_are_rolled_back_are_told_anew(play):
    played = play(tracking=[LINES])
    first = lines_of(played.folder)
    played.forget("client-00003", answer="retrain", basis="erasure")
    check_lines(played.folder, replays=1)
    assert lines_of(played.folder) == first
    assert lines_of(played.folder, 1) != first


@pytest.mark.slow
@pytest.mark.filterwarnings("default::Warning")  # the libraries' own
def test_off_loads_nothing_and_a_kill_in_a_round_doubles_none(tmp_path: Path, monkeypatch):
    """The trackers may be anywhere when the kill comes."""
    monkeypatch.setattr(background, "PATIENCE", 60.0)
    pytest.importorskip("tensorboard", reason="the extra tensorboard")
    settings = Config.of({**TINY, "tracking": [LINES, "tensorboard"]}).toml()
    out, off = tmp_path / "killed", tmp_path / "off"
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(out), str(off), settings],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    assert child.stdout.decode() == "[]\n"
    assert not (off / "tracking").exists()
    resume(out)
    check_lines(out)
    found = scalars_of(out / "tracking" / "tensorboard")
    rounds = {k: each for k, each in found.items() if not k.startswith("final/")}
    assert rounds == single(curves_of(out))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tracking": ["tensorbord"]}, "Did you mean 'tensorboard'"),
        ({"tracking": ["pathlib:Path"]}, "derived from covey.Tracker"),
    ],
)
def test_a_mistake_is_told_before_anything_is_played(settings, told):
    with pytest.raises(ConfigError, match=told):
        Config.of(settings)
