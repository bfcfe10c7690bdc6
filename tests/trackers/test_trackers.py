"""Trackers hold what metrics.csv holds, each round once; one that fails costs no round."""

import logging
import os
import struct
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest

from covey import (
    Config,
    ConfigError,
    LedgerUnavailable,
    Run,
    TrackedRun,
    Tracker,
    load,
    resume,
    run,
)
from covey.api import tracking
from covey.base.components import create
from plugins.tracker_lines import Lines
from trackers.conftest import LINES, TINY, curves_of, lines_of, mlflow_run, scalars_of, single

NAMES = [f"Zuckmayer-{i}-of-Nackenheim" for i in range(6)]


def tracked(tmp_path: Path, name: str) -> Run:
    """A finished run of clients with telling names, which this tracker followed."""
    pytest.importorskip(name, reason=f"the extra {name}")
    rng = np.random.default_rng(0)
    labels = np.arange(20) % 2
    clients = {
        name: tuple(
            (rng.normal(size=(20, 4)).astype(np.float32) + labels[:, None], labels)
            for _ in range(2)
        )
        for name in NAMES
    }
    left_out = {"population": {"audit_examples": 0, "exclude": NAMES[5:]}}
    settings = {**TINY, **left_out, "tracking": [name]}
    thresholds = dict.fromkeys(NAMES[:5], 0.6)
    return run(clients=clients, config=settings, out=tmp_path / "run", thresholds=thresholds)


def check_no_name(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for file in files:
        content = file.read_bytes()
        assert b"Zuckmayer" not in content, file
        assert b"Nackenheim" not in content, file


@pytest.mark.filterwarnings("default::Warning")
def test_tensorboard(tmp_path: Path):
    played = tracked(tmp_path, "tensorboard")
    folder = played.folder / "tracking" / "tensorboard"
    points = scalars_of(folder)
    assert points == single(curves_of(played.folder))
    assert {"accuracy", "risk/cluster_0"} <= points.keys()
    check_no_name(folder)


@pytest.mark.filterwarnings("default::Warning")
@pytest.mark.slow
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(tracking, "PATIENCE", 120.0)
    played = tracked(tmp_path, "mlflow")
    folder = played.folder / "tracking" / "mlflow"
    logged, points = mlflow_run(folder)
    assert {key: dict(pairs) for key, pairs in points.items()} == curves_of(played.folder)
    assert logged.info.status == "FINISHED"
    assert logged.data.params["train.learning_rate"] == "0.5"
    assert "population.exclude" not in logged.data.params
    check_no_name(folder)


ODD_NAME = "lr?0.1 a#b half 50%41 a&b=c;d Übung"


@pytest.mark.filterwarnings("default::Warning")
@pytest.mark.slow
def test_mlflow_writes_into_the_runs_own_folder_whatever_it_is_called(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="the extra mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / ODD_NAME / "tracking" / "mlflow"
    folder.mkdir(parents=True)
    tracker = create("tracker", "mlflow", "tracking", Tracker)
    tracker.begin(TrackedRun(name=ODD_NAME, folder=folder))
    tracker.log(0, {"accuracy": 0.5})
    tracker.close()
    assert [path.name for path in tmp_path.iterdir()] == [ODD_NAME]
    assert (folder / "mlflow.db").is_file()


@pytest.mark.filterwarnings("default::Warning")
def test_the_other_trackers_and_the_ledger_do_too(tmp_path):
    played = tracked(tmp_path / ODD_NAME, "tensorboard")
    assert scalars_of(played.folder / "tracking" / "tensorboard")
    assert [path.name for path in tmp_path.iterdir()] == [ODD_NAME]


@pytest.mark.filterwarnings("default::Warning")
def test_a_ledgers_url_with_more_than_a_path_is_refused(tmp_path):
    url = f"sqlite:///{tmp_path}/lr?0.1/ledger.sqlite"
    with pytest.raises(LedgerUnavailable, match=r"found a \?"):
        run(config={**TINY, "ledger": {"url": url}}, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("default::Warning")
def test_an_address_with_a_password_is_refused():
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_PASSWORD"):
        create(
            "tracker",
            {"name": "mlflow", "uri": "https://me:secret@example.org"},
            "tracking",
            Tracker,
        )


@pytest.mark.filterwarnings("default::Warning")
def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    tracker = create("tracker", "wandb", "tracking", Tracker)
    with pytest.raises(ConfigError, match=r"'wandb' needs its extra.*PATH\[wandb\]"):
        tracker.begin(TrackedRun("run", Path("unused")))


@pytest.mark.filterwarnings("default::Warning")
@pytest.mark.slow
def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(tracking, "PATIENCE", 120.0)
    played = tracked(tmp_path, "wandb")
    folder = played.folder / "tracking" / "wandb"
    import wandb

    record_of: Any = import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    wandb.teardown()  # as at the end of a program: all is on the disk

    (file,) = folder.rglob("*.wandb")
    curves: dict[str, dict[int, float]] = {}
    for content in records_of(file.read_bytes()):
        record = record_of(content)
        items = {
            item.key or "/".join(item.nested_key): float(item.value_json)
            for item in record.history.item
            if not (item.key or item.nested_key[0]).startswith("_wandb")
        }
        if record.WhichOneof("record_type") == "history":
            step = int(items.pop("_step"))
            for key, value in items.items():
                if not key.startswith("_"):
                    assert step not in curves.setdefault(key, {})
                    curves[key][step] = value
        assert not record.run.host
    assert curves == curves_of(played.folder)
    check_no_name(folder)


def records_of(content: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: a log of LevelDB's after seven bytes of its own.

    Each part of a record has a checksum, its length and a type: whole, first, middle,
    last; none goes over the end of a block of 32 KiB.
    """
    assert content[:4] == b":W&B"
    place, parts = 7, b""
    while place + 7 <= len(content):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield parts
            parts = b""


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
    values: dict[str, dict[int, float]] = {}
    for t, figures in rounds:
        for name, value in figures.items():
            values.setdefault(name, {})[t] = value
    assert values == curves_of(folder)


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
    for recorded_run in (by_name, by_object):
        check_lines(recorded_run.folder)
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


BROKEN = "plugins.tracker_broken:Broken"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "how"), [("begin", "fails"), ("close", "fails"), ("log", "fails"), ("log", "hangs")]
)
def test_the_run_ends_as_it_would_have(play, caplog, monkeypatch, when, how):
    monkeypatch.setattr(tracking, "PATIENCE", 1.0)
    with caplog.at_level(logging.WARNING, "covey"):
        played = play(tracking=[{"name": BROKEN, "when": when, "how": how}, LINES])
    assert played.summary.finished
    assert [t for t, _ in lines_of(played.folder)] == [0, 1, 2, "end"]
    (warning,) = [record.getMessage() for record in caplog.records]
    cause = f"no answer to {when}" if how == "fails" else "has not recorded all rounds 1 s"
    assert cause in warning
    assert warning.startswith(f"The tracker {BROKEN} was dropped")
    assert warning.endswith("The run goes on without it")


def test_several_that_hang_are_waited_for_together(play, caplog, monkeypatch):
    monkeypatch.setattr(tracking, "PATIENCE", 0.2)
    hanging = {"name": BROKEN, "when": "begin", "how": "hangs"}
    began = monotonic()
    with caplog.at_level(logging.WARNING, "covey"):
        assert play(tracking=[hanging] * 50, rounds=1).summary.finished
    assert monotonic() - began < 8  # and not 50 times as long as one takes
    assert len(caplog.records) == 50
