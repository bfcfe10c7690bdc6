"""What cannot be is refused in one sentence with exit code 2, and nothing is written."""

import json
import shutil
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import covey as covey_package
from cli.conftest import SMALL, needs_flower, refused, sets
from covey.base import errors
from covey.cli.app import exit_code
from covey.cli.commands import Command
from recorded import contents

LEAVER, OTHER = "client-00003", "client-00001"
THREE_CLASSES = """
from torch import nn
def small(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with what commands are pointed at, in which they run."""
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    (tmp_path / "default.toml").touch()
    (tmp_path / "three_classes.py").write_text(THREE_CLASSES)
    (tmp_path / "npz").mkdir()
    np.savez(tmp_path / "npz" / "one.npz", x=np.zeros((3, 2)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("rounds=-3", "greater than 0, found -3"),
        ("population.clients=100", "lower population.clients"),
        ("population.exclude=['nobody']", "found 'nobody': take one of these"),
        ("population.preferences=who.csv", "who.csv"),
        ("model.name=nowhere:factory", "nowhere"),
        ("model.name=collections:OrderedDict", "which is Python's own"),
        ("model.name=three_classes:small", "give its last layer 10 outputs"),
        ("data.name=mnist data.dir=.", "train-images-idx3"),
        ("data.name=npz data.dir=npz", "one.npz"),
        (
            "aggregation.name=anonymity-sets aggregation.min_anonymity=999",
            "found 40 (aggregation.min_anonymity = 999 needs 999)",
        ),
        ("model.name=[red]", "found '[red]'"),  # what markup would eat
    ],
)
def test_settings_that_cannot_be(here, settings, said):
    before = contents(here)
    refused(said, "run", *sets(*settings.split()))
    assert contents(here) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run missing.toml", "missing.toml must be a TOML file, found none"),
        ("run --out occupied", "occupied must be new or empty"),
        ("run --frob[red]nicate", "--frob[red]nicate"),
        ("run --out RAN", "covey resume"),
        ("export nowhere --round first", "--round must be a round"),
        ("export RAN --client client-99999", "found 'client-99999'"),
        ("config init --out default.toml", "give another"),
        ("config data list --log-file no/log.txt", "--log-file must be a file that can be written"),
        ("sweep missing.toml --over seed", "--over must be"),
        ("sweep default.toml --over aggregation.radius=1,2", "must change runs"),
        ("sweep default.toml --over seed=1,2", "its seeds are those of --seeds"),
        ("audit RAN --attack nonsense", "must be one of loss, "),
        ("audit RAN --references 1", "references must be 2 or more"),
        ("game RAN", "needs 5 reserved clients or more"),
        ("guarantee --noise client --sigma 1 --epsilon 1", "covey guarantee"),
        ("deploy init default.toml --out fed --node a/b", "found 'a/b'"),
        ("deploy check fed", "as its deploy.toml says"),
        pytest.param("deploy try --out occupied", "must be a new folder", marks=needs_flower),
        ("reproduce", "an experiment of --list, or all"),
        ("reproduce table-9 --quick --out x", "one of `covey reproduce --list`, found 'table-9'"),
        ("reproduce ifca-mir-figure-6 --column MNIST,", "must be 'MNIST' or 'FEMNIST'"),
        # leaving
        ("forget nowhere X --answer auto", "nowhere must be a run"),
        ("forget HIDDEN", "CLIENT must be named"),
        (f"forget HIDDEN {LEAVER}", "--answer or --basis must say"),
        (f"forget HIDDEN {LEAVER} --basis gdpr", "basis must be one of erasure, withdrawal"),
        (
            f"forget HIDDEN {LEAVER} --basis erasure --answer deny",
            "--answer deny, which removes nothing",
        ),
        (
            f"forget HIDDEN {LEAVER} --basis restriction --answer retrain",
            "deletes the client's name",
        ),
        (f"forget HIDDEN {LEAVER} {OTHER} --salt 00 --answer retrain", "found 2 names"),
        (f"forget HIDDEN {LEAVER} --salt 0g --answer retrain", "A salt must be hexadecimal"),
        (
            f"forget HIDDEN {LEAVER} --salt {'00' * 16} --answer retrain",
            f"records, found '{LEAVER}'",
        ),
        (f"forget HIDDEN {LEAVER} nobody --answer auto", "records, found 'nobody'"),
        (f"forget HIDDEN {LEAVER} --answer roll_back", "too small, found none"),
        (f"forget HIDDEN {LEAVER} --answer calibrate", "found leaving.store_updates = 0"),
        (f"forget PLAIN {LEAVER} --answer auto", "A denial needs a run that hides updates"),
        (f"forget STORED {LEAVER} --answer deny", "found raw updates kept"),
        (f"forget LOCAL {LEAVER} --answer auto", "delete that client's model instead"),
    ],
)
def test_words_that_cannot_be(here, ran, runs, words, said, tmp_path_factory):
    known = {"RAN": ran[0], **{kind.name.upper(): kind for kind in runs.iterdir()}}

    def own(word: str) -> str | Path:
        """A copy: others look at the same runs, and a look may leave a lock for a moment."""
        place = tmp_path_factory.mktemp("own") / "run"
        return shutil.copytree(known[word], place) if word in known else word

    command = list(map(own, words.split(" ")))
    folders = [here, *(word for word in command if isinstance(word, Path))]
    before = list(map(contents, folders))
    refused(said, *command)
    assert list(map(contents, folders)) == before


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["--frobnicate"], "UsageError", "No such option"),
        (sets("ledger.url=nonsense://x"), "LedgerUnavailable", "give a path, sqlite:///PATH"),
        (sets("ledger.url=postgresql://u@127.0.0.1:1/d?run=a"), "LedgerUnavailable", "check the"),
    ],
)
def test_an_error_is_one_json_object_too(covey, tmp_path, words, kind, said):
    code, out, err = covey("run", *SMALL, *words, "--json")
    error = json.loads(out)["error"]
    assert (code, error["type"], error["exit_code"]) == (2, kind, 2)
    assert said in error["message"]
    assert said in err.replace("\n", " ")
    assert list(tmp_path.iterdir()) == []


OWN_MODEL = """
def broken():
    return [][0]
"""


def test_only_a_frame_of_a_users_own_code_is_blamed_on_the_user(covey, tmp_path, monkeypatch):
    """An error of covey's, or of a library that it calls, is an internal error."""
    (tmp_path / "own_report.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    own_report = import_module("own_report")
    covey("report", "nowhere", "--json")  # the schemas are read before the command is another
    for function, said in (
        (own_report.broken, "code of your own raised IndexError: list index out of range in "),
        (lambda: json.loads("{"), "code of your own raised JSONDecodeError"),
        (partial(json.loads, "{"), "Internal error: JSONDecodeError"),
        (partial(np.zeros, -1), "Internal error: ValueError: negative dimensions"),
    ):
        fails = Command("report", callback=function)
        monkeypatch.setattr(import_module("covey.cli.runs"), "report", fails)
        code, out, err = covey("report", "--json")
        flat = " ".join(err.split())
        assert code == 2
        assert said in flat
        assert "covey report --json -v" in flat
        assert json.loads(out)["error"]["message"].startswith(said)
        if said.startswith("Internal"):
            assert f"this is covey {covey_package.__version__}" in flat
            assert "your own" not in flat
        else:
            assert "report it" not in flat
    assert covey("report", "-v")[2].count("Traceback") == 1


def test_exit_codes_tell_a_failed_check_from_bad_input():
    codes = {"Config": 2, "Data": 2, "Model": 2, "Run": 2, "Ledger": 1}
    kinds = {f"{name}Error": code for name, code in codes.items()}
    for kind, code in {
        **kinds,
        "LedgerUnavailable": 2,
        "LedgerLocked": 2,
        "LedgerMismatch": 1,
    }.items():
        assert exit_code(getattr(errors, kind)("")) == code


DEEP = b"[" * 100_000
DAMAGED = {
    "no text": b"\xff\xfe\xed\xa0\x80",
    "deep JSON": DEEP,
    "deep TOML": b"a = " + DEEP,
    "a long number": b'{"a": ' + b"9" * 6_000 + b"}",
    "a list": b"[1, 2]",
    "half a character": b'{"a": "\\ud800"}',
}
EVERY_KIND = [
    kind if kind in ("deep JSON", "a list") else pytest.param(kind, marks=pytest.mark.slow)
    for kind in DAMAGED
]


@pytest.fixture(scope="module")
def answered(runs, ask, tmp_path_factory):
    """A run with a client that left, and an export."""
    path = shutil.copytree(runs / "plain", tmp_path_factory.mktemp("damaged") / "run")
    ask("forget", path, LEAVER, "--answer", "retrain", "--basis", "erasure")
    ask("export", path, "--cluster", 0)
    return path


@pytest.mark.parametrize("damage", EVERY_KIND)
def test_whatever_stands_in_a_file_of_a_run(covey, answered, tmp_path, damage):
    run = tmp_path / "run"
    (proof,) = (path.name for path in (answered / "proofs").glob("*.json"))
    for name, words in (
        ("config.toml", ["resume", run]),
        (f"proofs/{proof}", ["verify", run / "proofs" / proof, "--ledger", run]),
        ("copies/*.json", ["export", run, "--cluster", 0]),
        ("asking/request.json", ["resume", run]),
        ("ledger.sqlite", ["explain", run, OTHER]),
    ):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(answered, run)
        (run / "asking").mkdir(exist_ok=True)
        for path in list(run.glob(name)) or [run / name]:
            path.write_bytes(DAMAGED[damage])
        code, _, err = covey(*words)
        assert "Traceback" not in err
        assert "Internal error" not in err.replace("\n", " "), (name, damage, err)
        assert code in (1, 2), (name, words, err)


@pytest.mark.parametrize("damage", EVERY_KIND)
def test_whatever_stands_in_a_file_that_is_given(covey, tmp_path, damage):
    path = tmp_path / "given.toml"
    path.write_bytes(DAMAGED[damage])
    out = ["--out", tmp_path / "out"]
    playing = [["run", path, *out], ["run", *sets(f"population.preferences={path}"), *out]]
    for words in (*playing, ["verify", path]):
        code, _, err = covey(*words)
        assert code in (1, 2), (words, err)
        assert "Internal error" not in err.replace("\n", " ")
