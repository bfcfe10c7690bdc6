"""A witness that others maintain cosigns heads of covey's logs, and refuses forks.

It needs Python 3.12, so it stands in an environment of its own: `pip install aics-witness`, and its
program in `$COVEY_WITNESS` or on the path.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from covey import LedgerError
from covey.ledger.tree import head_of
from covey.runtime.anchors import ask_witness
from covey.unlearning.signature import LOG, SigningKey, key_line, key_records

PROGRAM = os.environ.get("COVEY_WITNESS") or shutil.which("aics-witness") or ""
pytestmark = pytest.mark.skipif(
    not PROGRAM, reason="no aics-witness: install it with Python 3.12, and name it in COVEY_WITNESS"
)
KEY = SigningKey.from_private_bytes(bytes(32))
HASHES = [f"{i:064x}" for i in range(1, 40)]
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


def test_it_cosigns_what_grew_refuses_a_fork_and_others_verify_its_head(witness, tmp_path):
    known = key_records(witness.key)
    head = ask_witness(HASHES[:1], witness.url, known, KEY)
    for size in (2, 2, 7, 8, 39):
        head = ask_witness(HASHES[:size], witness.url, known, KEY)
        assert head.size == size
        seen = head.cosigned_by(known)
        assert seen is not None
        assert (seen.key.name, seen.check.ok) == ("witness.example/w1", True)
    for fork in ([*HASHES[:7], *(f"{i:064x}" for i in range(107, 147))], HASHES[:19]):
        with pytest.raises(LedgerError, match="taken out"):
            ask_witness(fork, witness.url, known, KEY)
    note = tmp_path / "note"
    note.write_text(head.note())
    own = [str(Path(PROGRAM).with_name("aics-tlog")), "verify-checkpoint", "--note", str(note)]
    keys = ["--log-key", LINE, "--witness-key", witness.key.read_text().strip()]
    line = [*own, "--origin", ORIGIN, *keys, "--quorum", "1"]
    assert '"ok": true' in subprocess.run(line, check=True, capture_output=True, text=True).stdout
