"""Whatever stands in a file: one sentence, an exit code, and no traceback."""

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

DEEP = b"[" * 100_000
DAMAGED = {
    "empty": b"",
    "zeros": bytes(1_000),
    "no text": b"\xff\xfe\xed\xa0\x80",
    "deep JSON": DEEP,
    "deep TOML": b"a = " + DEEP,
    "a long number": b'{"a": ' + b"9" * 6_000 + b"}",
    "a long number in TOML": b"rounds = " + b"9" * 6_000,
    "a list": b"[1, 2]",
    "an object": b"{}",
    "half a character": b'{"a": "\\ud800"}',
}


def _moved(word, old, new):
    """Return a path inside one folder as the same inside another."""
    inside = isinstance(word, Path) and word.is_relative_to(old)
    return new / word.relative_to(old) if inside else word


@pytest.fixture(scope="module")
def answered(tmp_path_factory, ask):
    """A run with a denied client, an export, and a request that waits."""
    path = tmp_path_factory.mktemp("damaged") / "run"
    settings = ["rounds=2", "population.clients=8", "population.audit_examples=20"]
    words = [word for pair in settings for word in ("--set", pair)]
    ask("run", "--out", path, *words)
    ask("forget", path, "client-00003", "--answer", "retrain", "--basis", "erasure")
    ask("export", path, "--cluster", 0)
    return path


def commands(run):
    (proof,) = (run / "proofs").glob("*.json")
    return {
        "config.toml": [["explain", run, "client-00001"], ["resume", run]],
        f"proofs/{proof.name}": [["verify", proof, "--ledger", run]],
        "copies/*.json": [["export", run, "--cluster", 0]],
        "asking/request.json": [["resume", run]],
        "ledger.sqlite": [["explain", run, "client-00001"], ["report", run]],
    }


SOME = ("deep JSON", "a list")
"""Kinds of damage that every test of every day tries; the slow suite tries all."""

EVERY_KIND = [
    kind if kind in SOME else pytest.param(kind, marks=pytest.mark.slow) for kind in DAMAGED
]


@pytest.mark.parametrize("damage", EVERY_KIND)
def test_every_file_of_a_run(covey, answered, tmp_path, damage):
    for name, asked in commands(answered).items():
        for words in asked:
            run = tmp_path / "run"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(answered, run)
            (run / "asking").mkdir(exist_ok=True)
            for path in list(run.glob(name)) or [run / name]:
                path.write_bytes(DAMAGED[damage])
            moved = [_moved(word, answered, run) for word in words]
            code, _, err = covey(*moved)
            said = err.replace("\n", " ")
            assert "Traceback" not in said
            assert "not expected" not in said, (name, damage, said)
            assert code in (1, 2), (name, words, said)


@pytest.mark.parametrize("damage", EVERY_KIND)
def test_files_that_are_given(covey, tmp_path, damage):
    given = tmp_path / "given.toml"
    given.write_bytes(DAMAGED[damage])
    preferences = f"population.preferences={given}"
    for words in (["run", given], ["run", "--set", preferences], ["verify", given]):
        out = ["--out", tmp_path / "out"] if words[0] == "run" else []
        code, _, err = covey(*words, *out)
        if damage == "empty" and words == ["run", given]:
            continue  # which is a file of no settings
        assert code in (1, 2), (words, err)
        assert "not expected" not in err.replace("\n", " ")


def test_an_error_that_nobody_foresaw_is_a_sentence_too(covey, monkeypatch):
    def surprising(**_: object) -> int:
        raise AttributeError("'list' object has no attribute 'items'")

    monkeypatch.setattr(import_module("covey.cli.app"), "all_commands", lambda: surprising)
    code, out, err = covey("report", "run", "--json")
    assert code == 2
    assert "AttributeError" in err
    assert json.loads(out)["error"]["type"] == "AttributeError"


NARROW = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.argv = ["covey", *sys.argv[2:]]
from covey.cli.app import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 300, 3_000, 12_000, 30_000, 100_000])
def test_a_disk_that_fills_up(tmp_path, room):
    """A limit on a file's size stands for a full disk: any user can set it."""
    out = tmp_path / "run"
    words = ["run", "--set", "rounds=3", "--out", str(out)]
    ran = subprocess.run(
        [sys.executable, "-c", NARROW, str(room), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    said = ran.stderr.replace("\n", " ")
    assert "Traceback" not in said
    assert "not expected" not in said
    assert ran.returncode == 2
