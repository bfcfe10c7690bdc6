"""`covey.run(exist=...)`: what becomes of what is in the folder already."""

from typing import Literal

import pytest

import covey
from covey import Config, ConfigError, RunError
from covey.runtime.folder import RunFolder
from runtime.test_on_round import clients, model

SETTINGS = {
    "rounds": 2,
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
}


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


def played(out, exist: Literal["error", "resume", "overwrite"] = "error", **changes):
    config = Config.of({**SETTINGS, **changes})
    return covey.run(lambda: model(), clients(), config, out, exist=exist)


def cut(out):
    class Cut(Exception):  # noqa: N818 - it is no error
        pass

    def stop(row):
        raise Cut

    with pytest.raises(Cut):
        covey.run(lambda: model(), clients(), SETTINGS, out, on_round=stop)


def test_a_run_is_an_error_or_is_carried_on_or_makes_room(tmp_path):
    out, whole = tmp_path / "run", played(tmp_path / "whole")
    cut(out)
    with pytest.raises(RunError, match="already holds a run"):
        played(out)
    assert played(out, "resume").ledger_head == whole.ledger_head
    assert played(out, "resume").ledger_head == whole.ledger_head  # it is finished
    with pytest.raises(RunError, match=r"settings in config\.toml must be those"):
        played(out, "resume", seed=5)
    assert covey.load(out).ledger_head == whole.ledger_head
    assert played(out, "overwrite", seed=5).ledger_head != whole.ledger_head
    assert played(out, "overwrite").ledger_head == whole.ledger_head
    assert played(tmp_path / "new", "overwrite").ledger_head == whole.ledger_head
    assert played(tmp_path / "newer", "resume").ledger_head == whole.ledger_head


def test_what_is_no_run_or_is_needed_is_never_overwritten(tmp_path):
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("two years of work")
    with pytest.raises(RunError, match="is not a covey run"):
        played(other, "overwrite")
    assert (other / "chapter.txt").exists()
    out = tmp_path / "run"
    cut(out)
    RunFolder(out).queue_request("c1", "retrain")
    with pytest.raises(RunError, match="1 requests to leave wait for an answer"):
        played(out, "overwrite")
    played(out, "resume")
    with pytest.raises(RunError, match="must stay"):  # proofs, and a salt to hand out
        played(out, "overwrite")
    with pytest.raises(ConfigError, match="exist must be one of"):
        played(tmp_path / "x", "replace")  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "x").exists()


def test_settings_that_do_not_fit_leave_the_old_run_alone(tmp_path):
    out = tmp_path / "run"
    head = played(out).ledger_head
    with pytest.raises(covey.CoveyError):
        played(out, "overwrite", engine={"name": "no-such-engine"})
    assert covey.load(out).ledger_head == head
