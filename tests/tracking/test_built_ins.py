"""TensorBoard, MLflow and W&B hold what metrics.csv holds, and nobody's name."""

import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey import ConfigError, Run, Tracker, run
from covey.base.components import create
from covey.report.queries import final_figures
from tracking.conftest import TINY, curves_of, mlflow_run, scalars_of, single, tell

pytestmark = pytest.mark.filterwarnings("default::Warning")  # the libraries' own

NAMES = [f"Zuckmayer-{i}-of-Nackenheim" for i in range(6)]
NEEDED = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of clients with telling names, which no tracker was told of."""
    rng = np.random.default_rng(0)
    labels = np.arange(20) % 2
    clients = {
        name: tuple(
            (rng.normal(size=(20, 4)).astype(np.float32) + labels[:, None], labels)
            for _ in range(2)
        )
        for name in NAMES
    }
    settings = {**TINY, "population": {"audit_examples": 0, "exclude": NAMES[5:]}}
    out = tmp_path_factory.mktemp("tracked") / "run"
    thresholds = dict.fromkeys(NAMES[:5], 0.6)
    return run(clients=clients, config=settings, out=out, thresholds=thresholds)


def tracked(played: Run, name: str) -> Path:
    """Tell a tracker of the run, and return its folder."""
    pytest.importorskip(NEEDED[name], reason=f"the extra {name}")
    assert tell(played, name) == TINY["rounds"]
    return played.folder / "tracking" / name


def check_no_name(folder: Path) -> None:
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert files
    for each in files:
        content = each.read_bytes()
        assert b"Zuckmayer" not in content, each
        assert b"Nackenheim" not in content, each


def test_tensorboard(played: Run):
    folder = tracked(played, "tensorboard")
    tell(played, "tensorboard")  # a second time doubles nothing
    points = scalars_of(folder)
    ends = {name: points.pop(name) for name in [*points] if name.startswith("final/")}
    assert points == single(curves_of(played.folder))
    assert {"accuracy", "risk/cluster_0"} <= points.keys()
    final = {name: {0: value} for name, value in final_figures(played.history).items()}
    assert ends == single(final)
    check_no_name(folder)


@pytest.fixture(scope="module")
def database(played: Run) -> Path:
    """The folder with MLflow's database, which takes seconds to make."""
    return tracked(played, "mlflow")


@pytest.mark.slow
def test_mlflow(played: Run, database: Path):
    assert tell(played, "mlflow") == 0  # it holds them already
    found, points = mlflow_run(database)
    assert all(len(dict(each)) == len(each) for each in points.values())
    ends = {key: points.pop(key)[0][1] for key in [*points] if key.startswith("final/")}
    assert {key: dict(each) for key, each in points.items()} == curves_of(played.folder)
    assert ends == final_figures(played.history)
    assert found.info.status == "FINISHED"
    assert found.data.params["train.learning_rate"] == "0.5"
    assert "population.exclude" not in found.data.params
    check_no_name(database)


def test_an_address_with_a_password_is_refused():
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_PASSWORD"):
        create(
            "tracker",
            {"name": "mlflow", "uri": "https://me:secret@example.org"},
            "tracking",
            Tracker,
        )


@pytest.mark.slow
def test_wandb(played: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    folder = tracked(played, "wandb")
    tell(played, "wandb")  # in place of the first
    import wandb

    record_of: Any = import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    wandb.teardown()  # as at the end of a program: all is on the disk

    (file,) = folder.rglob("*.wandb")
    curves: dict[str, dict[int, float]] = {}
    ends: dict[str, float] = {}
    for content in records_of(file.read_bytes()):
        record = record_of(content)
        items = {
            each.key or "/".join(each.nested_key): float(each.value_json)
            for part in (record.history.item, record.summary.update)
            for each in part
            if not (each.key or each.nested_key[0]).startswith("_wandb")
        }
        if record.WhichOneof("record_type") == "history":
            step = int(items.pop("_step"))
            for key, value in items.items():
                if not key.startswith("_"):
                    assert step not in curves.setdefault(key, {})
                    curves[key][step] = value
        elif record.WhichOneof("record_type") == "summary":
            ends |= {k: v for k, v in items.items() if k.startswith("final/")}
        assert not record.run.host
    assert curves == curves_of(played.folder)
    assert ends == final_figures(played.history)
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
