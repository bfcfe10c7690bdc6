"""What a hash of data gives away: nothing to a reader with all records but one."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import covey
from covey import Run, RunError, load_config
from covey.base.events import ClientLeft, HeadsSolved
from covey.base.history import of_kinds
from covey.data.population import data_hash
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.inputs import PREFERENCES, input_hashes
from covey.runs.secrets import Secrets
from covey.settings.clients import Overrides
from covey.settings.run import BuiltRun, build_run
from desk.tiny import NAMES, RIDGE
from support.tiny import points_of

SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "method.name": "fedavg",
    "risk.name": "none",
    "engine.name": "reference",
    "train.batch_size": 5,
    "population.audit_examples": 0,
}
Clients = Mapping[str, tuple[Tensor, Tensor]]


def network() -> nn.Module:
    return nn.Linear(2, 2)


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the secrets of runs."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "covey" / "runs"


def played(folder: Path, source: str) -> Run:
    settings = {**SETTINGS, "secrets.source": source}
    return covey.run(network, points_of(NAMES), settings, folder)


def guessed(run: Run, clients: Clients) -> BuiltRun:
    """The run as a reader builds it who has its folder, and guesses the records."""
    config = load_config(run.folder / "config.toml")
    made = build_run(config, Overrides(network, clients))
    return made.with_clients(
        tuple(replace(c, handle=run.names[c.name]) for c in made.population.clients)
    )


def noted(run: Run, name: str) -> tuple[str, ...]:
    with Ledger.read(RunFolder(run.folder).ledger) as ledger:
        return tuple(ledger.files.of(name))


@pytest.mark.parametrize(("source", "digest"), [("seeded", True), ("os", False)])
def test_a_guess_of_the_last_record_is_not_confirmed_under_a_secret(tmp_path, source, digest):
    run = played(tmp_path / "run", source)
    right, started = guessed(run, points_of(NAMES)), run.history.started
    assert started is not None
    assert (data_hash(right.population) == started.data_hash) is digest
    bare = input_hashes(right, Secrets(right.streams, None))
    for name in (PREFERENCES, "input:others"):
        assert (bare[name] in noted(run, name)) is digest
    run.forget(NAMES[0], "stop")
    (left,) = of_kinds(run.history.all_events, ClientLeft)
    stay = tuple(c for c in right.population.clients if c.name != NAMES[0])
    assert (data_hash(right.with_clients(stay).population) == left.data_hash) is digest


def test_sums_of_ridge_heads_are_recorded_under_the_secret_and_compared_all_the_same(tmp_path):
    settings = {**RIDGE, "secrets": {"source": "os"}}
    run = covey.run(config=settings, out=tmp_path / "run")
    bare = covey.run(config=RIDGE, out=tmp_path / "bare")
    heads = (of_kinds(one.history.all_events, HeadsSolved) for one in (run, bare))
    for mine, other in zip(*heads, strict=True):
        assert mine.clients == other.clients
        assert set(mine.sums).isdisjoint(other.sums)
    (done,) = run.forget(NAMES[0], "subtract", "erasure")
    assert run.verify(done.answered.proof).valid


def test_other_data_are_refused_under_a_secret_and_the_same_are_carried_on(tmp_path):
    run = played(tmp_path / "run", "os")
    covey.resume(run.folder, network, points_of(NAMES))
    others = dict(points_of(NAMES))
    inputs, labels = others[NAMES[2]]
    changed = inputs.clone()
    changed[0, 0] += 1
    others[NAMES[2]] = changed, labels
    with pytest.raises(RunError, match="The clients' data must be what began the run"):
        covey.resume(run.folder, network, others)


def test_a_reader_without_the_secret_does_not_know_whether_data_are_the_same(
    tmp_path, secrets, caplog
):
    run = played(tmp_path / "run", "os")
    (file,) = secrets.iterdir()
    file.unlink()
    held = covey.load(run.folder, network, points_of(NAMES))
    with caplog.at_level(logging.WARNING), held.open_finished("audit(...)", "An audit") as session:
        assert session.record.history.finished is not None
    assert "It is unknown whether the data are those that began the run" in caplog.text
    with pytest.raises(RunError, match="the secret of a run"):
        held.forget(NAMES[0], "retrain", "erasure")


@pytest.mark.parametrize(
    ("source", "sentence"), [("seeded", "anybody with all records but one"), ("os", "HMAC")]
)
def test_the_report_says_what_its_hash_of_data_gives_away(tmp_path, source, sentence):
    page = played(tmp_path / "run", source).report()
    assert sentence in page.read_text()
