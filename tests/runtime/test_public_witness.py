"""A witness that others maintain cosigns heads of covey's logs, and refuses forks.

It needs Python 3.12, so it stands in an environment of its own: `pip install aics-witness`, and its
program in `$COVEY_WITNESS` or on the path.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from cli.conftest import command, json_of
from covey import Config, LedgerError, run, verify
from covey.ledger.tree import LogProof, head_of, witness_request
from covey.runtime.anchors import ask_witness
from covey.unlearning.signature import LOG, SigningKey, key_line, key_records
from runtime.test_anchors import LEAVER, SETTINGS

PROGRAM = os.environ.get("COVEY_WITNESS") or shutil.which("aics-witness") or ""
pytestmark = pytest.mark.skipif(
    not PROGRAM, reason="no aics-witness: install it with Python 3.12, and name it in COVEY_WITNESS"
)
KEY = SigningKey.from_private_bytes(bytes(32))
HASHES = [f"{i:064x}" for i in range(1, 40)]
FORK = [*HASHES[:7], *(f"{i:064x}" for i in range(107, 139))]
ORIGIN = head_of(HASHES).origin
LINE = key_line(ORIGIN, KEY.public_key(), LOG)


class Running:
    """A witness's process, its address and its key."""

    def __init__(self, folder: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.config, self.url = folder / "witness.json", f"http://127.0.0.1:{port}"
        listen = ("--listen", f"127.0.0.1:{port}")
        self.key = folder / "witness.key.pub"
        self.key.write_text(self.do("init", "--name", "witness.example/w1", *listen))

    def do(self, command: str, *words: str) -> str:
        line = [PROGRAM, command, "--config", str(self.config), *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def serve(self) -> subprocess.Popen[bytes]:
        line = [PROGRAM, "serve", "--config", str(self.config)]
        process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            try:
                urlopen(f"{self.url}/healthz", timeout=5).close()  # noqa: S310
            except URLError:
                continue
            return process
        raise AssertionError(f"{PROGRAM} ended with {process.returncode}")


@pytest.fixture
def witness(tmp_path) -> Iterator[Running]:
    running = Running(tmp_path)
    running.do("add-log", "--origin", ORIGIN, "--vkey", LINE)
    process = running.serve()
    yield running
    process.terminate()
    process.wait()


def test_it_cosigns_what_grew_and_others_verify_its_head(witness, tmp_path):
    known = key_records(witness.key)
    head = ask_witness(HASHES[:1], witness.url, known, KEY)
    for size in (2, 2, 7, 8, 39):
        head = ask_witness(HASHES[:size], witness.url, known, KEY)
        assert head.size == size
        seen = head.cosigned_by(known)
        assert seen is not None
        assert (seen.key.name, seen.check.ok) == ("witness.example/w1", True)
    note = tmp_path / "note"
    note.write_text(head.note())
    own = str(Path(PROGRAM).with_name("aics-tlog"))
    keys = ("--log-key", LINE, "--witness-key", witness.key.read_text().strip())
    line = [
        own,
        "verify-checkpoint",
        "--note",
        str(note),
        "--origin",
        ORIGIN,
        *keys,
        "--quorum",
        "1",
    ]
    assert '"ok": true' in subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_it_refuses_what_does_not_continue_what_it_saw(witness):
    known = key_records(witness.key)
    ask_witness(HASHES[:20], witness.url, known, KEY)
    with pytest.raises(LedgerError, match="taken out or rewritten"):
        ask_witness(FORK, witness.url, known, KEY)
    with pytest.raises(LedgerError, match="heads were taken out"):
        ask_witness(HASHES[:19], witness.url, known, KEY)
    with pytest.raises(LedgerError, match=r"give its operator the line"):
        ask_witness(HASHES, witness.url, known, SigningKey.generate())


def test_of_two_forks_at_one_instant_one_is_cosigned(witness):
    known = key_records(witness.key)
    ask_witness(HASHES[:7], witness.url, known, KEY)
    barrier = Barrier(8)

    def show(j: int) -> int:
        request = witness_request([*HASHES[:7], f"{j:064x}"], 7, KEY).encode()
        barrier.wait()
        try:
            place = f"{witness.url}/add-checkpoint"
            with urlopen(place, request, timeout=30) as answer:  # noqa: S310
                return answer.status
        except HTTPError as error:
            with error:
                return error.code

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(show, range(100, 108)))
    assert answers[0] == 200
    assert set(answers[1:]) <= {409, 422}


@pytest.mark.slow
def test_a_run_is_shown_and_an_answer_verified(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    runs, witness = tmp_path / "runs", Running(tmp_path)
    (one,) = run(config=Config.of(SETTINGS), out=runs / "a").forget(LEAVER, "deny")
    head = json_of("ledger", "head", runs)
    assert head["request"] == f"old 0\n\n{head['checkpoint']}"
    refused = ("ledger", "head", runs, "--witness", witness.url, witness.key)
    assert command(*refused)[0] == 1
    witness.do("add-log", "--origin", head["origin"], "--vkey", head["key"])
    process = witness.serve()
    try:
        seen = json_of(*refused)
    finally:
        process.terminate()
        process.wait()
    shown = Path(seen["runs"]["a"])
    assert LogProof.parse(shown.read_text()).head.note() == seen["checkpoint"]
    found = verify(one.answered.proof, runs / "a", witness=(shown, witness.key))
    (told,) = (each for each in found.checks if each.name == "witness")
    assert told.ok
    assert "witness.example/w1" in told.detail
