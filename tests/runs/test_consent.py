"""A run's folder that came from somebody else runs no code, until this user allows it once."""

import json
import shutil
import stat
import sys
from contextlib import suppress
from datetime import date
from importlib import invalidate_caches
from pathlib import Path

import pytest
import torch.nn.functional

import covey
from cli.conftest import command
from covey import Config
from covey.base.errors import ConfigError
from covey.base.files import user_folder
from covey.base.own_code import CodeSource
from covey.runs.folder import FederationMetadata, RunFolder
from covey.runs.ledger_terms import own_parts
from covey.settings.load import settings_hash
from covey_desk.lifecycle import add_request
from support.resealed import reseal, rows_of
from support.runs import small

TINY = small(model={"name": "mlp"}, train={"local_epochs": 1})
OWN = """
with open({mark!r}, "a") as file:
    file.write("x")
import covey

class Median(covey.ClusterwiseAggregation):
    def combined(self, updates):
        return updates[0].update

from os import system
"""
COMMANDS = (
    ("resume",),
    ("audit",),
    ("forget", "client-00001", "--answer", "deny"),
    ("forget", "client-00001", "--answer", "retrain"),
    ("explain", "client-00001"),
    ("report",),
)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A finished run of covey's own components."""
    return covey.run(config=TINY, out=tmp_path_factory.mktemp("played") / "run").folder


@pytest.fixture
def mark(tmp_path):
    """A file that only foreign code makes."""
    return tmp_path / "was run"


@pytest.fixture
def received(played, tmp_path):
    """The run in a folder of its own, as it would come from somebody else."""
    return shutil.copytree(played, tmp_path / "received")


@pytest.fixture
def own(tmp_path, monkeypatch, mark):
    """A module `own_consent` in the search path, as this process has not imported it yet."""
    path = tmp_path / "code" / "own_consent.py"
    path.parent.mkdir()
    path.write_text(OWN.format(mark=str(mark)))
    monkeypatch.syspath_prepend(str(path.parent))
    invalidate_caches()
    yield path
    sys.modules.pop("own_consent", None)


def named(folder: Path, section: str, table: str) -> None:
    """Let the settings name another component, as if the run had begun with it."""
    path = folder / "config.toml"
    head, _, rest = path.read_text().partition(f"[{section}]\n")
    path.write_text(f"{head}[{section}]\n{table}\n\n[{rest.partition(chr(10) + '[')[2]}")
    with suppress(ConfigError):  # it is refused even to be read
        config = RunFolder(folder).config()
        (t, kind, body), *others = rows_of(folder)
        began = json.loads(body) | {"config_hash": settings_hash(config)}
        parts = {
            setting: {"name": name, "options": {}, "source": "0" * 64}
            for setting, name in own_parts(config).items()
        }
        used = {"components": parts, "mixes_clusters": True}
        others = [record for record in others if record[1] != "ComponentsUsed"]
        first = [(t, kind, json.dumps(began)), (t, "ComponentsUsed", json.dumps(used))]
        reseal(folder, [*first, *others])


def started_again() -> None:
    """Forget the module, as a process does that begins."""
    sys.modules.pop("own_consent", None)


@pytest.mark.parametrize(
    "name",
    [
        "timeit:timeit",
        "covey.base.files:os.system",
        "covey.api.pruning:delete_run",
        "click:open_file",
        "own_consent:system",
        "own_consent:covey.base.files.os.system",
    ],
)
def test_a_received_folder_calls_no_function_that_it_names(received, mark, own, name):
    options = {
        "timeit:timeit": f"stmt = '''open({str(mark)!r}, \"w\")'''\nnumber = 1",
        "covey.api.pruning:delete_run": f"path = {str(mark)!r}",
        "click:open_file": f"filename = {str(mark)!r}\nmode = 'w'",
    }
    named(received, "model", f"name = {name!r}\n" + options.get(name, f"command = 'touch {mark}'"))
    for words in COMMANDS:
        code, _, err = command(words[0], received, *words[1:])
        assert "Internal error" not in err
        assert not mark.exists(), words
        assert code == 2 or words[0] in ("explain", "report") or "deny" in words, (words, err)


def test_requests_over_many_runs_call_none_either(received, tmp_path, mark):
    named(received, "model", f"name = 'timeit:timeit'\nstmt = '''open({str(mark)!r}, \"w\")'''")
    register = tmp_path / "requests"
    add_request(register, [tmp_path], ["client-00001"], "withdrawal", date(2026, 11, 20))
    command("requests", "answer", "--root", tmp_path, "--register", register)
    assert not mark.exists()


def test_code_is_run_once_it_is_allowed_for_this_folder_as_it_is(mark, own, tmp_path):
    run = covey.run(config={**TINY, "aggregation": "own_consent:Median"}, out=tmp_path / "run")
    received = shutil.copytree(run.folder, tmp_path / "received")
    mark.unlink()
    started_again()
    with pytest.raises(ConfigError, match="trust-code") as refused:
        covey.load(received).resume()
    digest = CodeSource((own,)).sha256
    assert all(part in str(refused.value) for part in (str(own), digest, "own_consent:Median"))
    assert not mark.exists()

    command("resume", received, "--trust-code")
    assert mark.read_text() == "x"
    started_again()
    command("audit", received)
    assert mark.read_text() == "xx"

    started_again()
    moved = received.rename(tmp_path / "moved")
    code, _, err = command("resume", moved)
    assert (code, "trust-code" in err, mark.read_text()) == (2, True, "xx")
    moved.rename(received)

    own.write_text(own.read_text() + "\n# changed")
    code, _, err = command("resume", received)
    assert (code, "trust-code" in err, mark.read_text()) == (2, True, "xx")


def test_who_begins_a_run_is_not_asked(own, mark, tmp_path):
    run = covey.run(config={**TINY, "aggregation": "own_consent:Median"}, out=tmp_path / "run")
    started_again()
    run = covey.load(run.folder).resume()
    assert mark.read_text() == "xx"
    assert run.history.finished
    file = max((user_folder() / "consent").glob("*.json"), key=lambda path: path.stat().st_mtime)
    assert str(run.folder) in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_package_is_all_of_its_modules(tmp_path, monkeypatch):
    package = tmp_path / "own_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "deep.py").write_text("one = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    before = CodeSource.of_package("own_package")
    assert before
    digest = before.sha256
    (package / "inner" / "deep.py").write_text("one = 2")
    assert before.sha256 != digest
    assert "own_package" not in sys.modules


@pytest.mark.parametrize("name", ["torch.nn.functional:relu", "os:system", "numpy:zeros"])
def test_what_is_not_made_for_covey_is_no_part(name):
    with pytest.raises(ConfigError, match="module of your own"):
        Config.of({"train": {"loss": name}})


def test_a_program_may_pass_it(tmp_path):
    """It is passed again to go on: the settings name it so that no import finds it."""
    config = Config(train={"loss": torch.nn.functional.cross_entropy})
    assert config.train.loss.name == "python:cross_entropy"


def test_a_deployment_is_no_script_of_a_strangers(received, mark):
    home = received / "home"
    (home / "app").mkdir(parents=True)
    (home / "app" / "pyproject.toml").write_text("")
    script = home / "flwr.sh"
    script.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    script.chmod(0o700)
    folder = RunFolder(received)
    FederationMetadata("0" * 16, None, str(home)).write(folder)
    code, _, err = command("resume", received)
    assert (code, "trust-code" in err, str(script) in err) == (2, True, True)
    assert not mark.exists()
