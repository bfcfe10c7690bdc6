"""A run and its trackers: each round that is played, once, whatever happens to the run."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from covey import Config, ConfigError, load, resume, run
from plugins.tracker_lines import Lines
from trackers.conftest import LINES, TINY, curves_of, lines_of

OFF = """
import sys
from covey import run

settings = {"rounds": 1, "model": {"name": "linear"}, "population": {"clients": 6}}
run(config=settings, out=sys.argv[1])
loaded = ("mlflow", "plugins", "tensorboard", "wandb", "covey_trackers")
print([name for name in loaded if name in sys.modules], flush=True)
"""


def check_lines(folder: Path) -> None:
    """Each round once and in order, with what metrics.csv holds."""
    *rounds, last = lines_of(folder)
    assert [t for t, _ in rounds] == list(range(TINY["rounds"]))
    assert last[0] == "end"
    found: dict[str, dict[int, float]] = {}
    for t, figures in rounds:
        for name, value in figures.items():
            found.setdefault(name, {})[t] = value
    assert found == curves_of(folder)


def test_a_plugin_follows_by_name_and_as_an_object(play):
    rounds: list[int] = []
    by_name = play(tracking=[{"name": LINES, "file": "rounds"}])
    by_object = run(
        config={**TINY, "tracking": [Lines(file="rounds")]},
        out=by_name.folder.parent / "object",
        on_round=lambda played: rounds.append(played.round_index),
    )
    assert rounds == [0, 1, 2]
    assert by_object.ledger_head == by_name.ledger_head
    for each in (by_name, by_object):
        check_lines(each.folder)
    written = (by_object.folder / "config.toml").read_text()
    assert tomllib.loads(written)["tracking"] == [{"name": LINES, "file": "rounds"}]


def test_a_run_that_resumes_sends_the_rounds_that_are_left(play):
    def stop(played):
        if played.round_index == 1:
            raise KeyboardInterrupt

    play("off")
    folder = play("on", tracking=[LINES]).folder
    stopped = folder.parent / "stopped"
    with pytest.raises(KeyboardInterrupt):
        run(config={**TINY, "tracking": [LINES]}, out=stopped, on_round=stop)
    assert [t for t, _ in lines_of(stopped)] == [0, 1, "end"]
    resume(stopped)
    assert [t for t, _ in lines_of(stopped)] == [0, 1, "end", 2, "end"]
    ends = [load(folder.parent / name).history.finished for name in ("on", "off", "stopped")]
    assert ends[0] == ends[1] == ends[2] is not None


@pytest.mark.slow
def test_rounds_that_forget_replays_are_not_sent_and_those_of_before_stay(play):
    played = play(tracking=[LINES])
    first = lines_of(played.folder)
    played.forget("client-00003", answer="retrain", basis="erasure")
    assert lines_of(played.folder) == first


@pytest.mark.slow
def test_off_loads_nothing(tmp_path: Path):
    child = subprocess.run(
        [sys.executable, "-c", OFF, str(tmp_path / "off")],
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdout.decode() == "[]\n"
    assert not (tmp_path / "off" / "tracking").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tracking": ["tensorbord"]}, "do you mean 'tensorboard'"),
        ({"tracking": ["pathlib:Path"]}, "derived from covey's"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_played(settings, message):
    with pytest.raises(ConfigError, match=message):
        Config.of(settings)
