"""Servers that a received folder names are not reached, and no secret of the user's is read."""

import shutil
import socket
from collections.abc import Iterator

import pytest

import covey
from cli.conftest import command
from covey.base.errors import ConfigError, LedgerError, LedgerUnavailable
from covey.ledger.backends import backend_of
from covey.ledger.store import Ledger
from covey_desk.web.runs import WatchedRuns
from support.runs import small

TINY = small(rounds=1, population={"clients": 4}, train={"local_epochs": 1})
SECRET = "hunter2-of-the-reader"  # noqa: S105
REGISTER = ("--root", "ROOT", "--register", "REGISTER")
COMMANDS = (
    ("report", "RUN"),
    ("explain", "RUN", "client-00001"),
    ("export", "RUN", "--cluster", "0"),
    ("resume", "RUN"),
    ("audit", "RUN"),
    ("forget", "RUN", "client-00001", "--answer", "deny"),
    ("forget", "RUN", "--again"),
    ("ledger", "doctor", "RUN"),
    ("guarantee", "RUN"),
    ("runs", "list", "RUN"),
    ("runs", "show", "RUN"),
    ("runs", "prune", "RUN", "--older-than", "0h", "--whole", "--yes"),
    ("verify", "PROOF", "--ledger", "RUN"),
    ("requests", "add", "client-00001", "--basis", "erasure", *REGISTER),
    ("requests", "plan", *REGISTER),
    ("requests", "answer", *REGISTER),
)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    run = covey.run(config=TINY, out=tmp_path_factory.mktemp("played") / "run")
    run.forget("client-00001", "retrain")
    return run.folder


@pytest.fixture
def received(played, tmp_path):
    """The run as it would come from somebody else."""
    return shutil.copytree(played, tmp_path / "root" / "received")


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Somebody who waits for a connection, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        yield listener


def rewrite_settings(received, **settings: str) -> None:
    """Let the settings name another place of the ledger, or of the key."""
    path = received / "config.toml"
    text = path.read_text()
    for key, value in settings.items():
        assert f'{key} = ""' in text
        text = text.replace(f'{key} = ""', f'{key} = "{value}"')
    path.write_text(text)


def said_by_all(received) -> str:
    words = {
        "RUN": received,
        "ROOT": received.parent,
        "PROOF": next((received / "proofs").glob("*.json")),
        "REGISTER": received.parent.parent / "register",
    }
    said = ""
    for line in COMMANDS:
        _, out, err = command(*(words.get(word, word) for word in line))
        said += out + err
        assert "Internal error" not in err, line
    runs = WatchedRuns([received.parent])
    for run in runs.all():
        said += str(runs.line(run)) + str(run.look())
    return said


def test_no_command_connects_to_where_a_folder_says(received, server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", SECRET)
    port = server.getsockname()[1]
    url = f"postgresql://spy@127.0.0.1:{port}/theirs?run=a&sslmode=disable&connect_timeout=1"
    rewrite_settings(received, url=url)
    said = said_by_all(received)
    with pytest.raises(BlockingIOError):
        server.accept()
    assert SECRET not in said
    assert "spy" not in said
    assert f"127.0.0.1:{port}/theirs?run=a" in said
    assert "--trust-servers" in said

    command("report", received, "--trust-servers")
    server.settimeout(5)
    server.accept()[0].close()


@pytest.mark.parametrize("kind", ["env:COVEY_A_SECRET", "file:SECRET_FILE"])
def test_no_command_reads_or_shows_what_a_folder_asks_for(received, tmp_path, monkeypatch, kind):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    monkeypatch.setenv("COVEY_A_SECRET", SECRET)
    location = kind.replace("SECRET_FILE", str(secret))
    rewrite_settings(received, url=location)
    assert SECRET not in said_by_all(received)
    with pytest.raises(LedgerUnavailable) as refused:  # where this user allows it, neither
        covey.load(received, trust_servers=True)
    assert SECRET not in str(refused.value)
    assert location in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        SECRET,
        f"/home/{SECRET}",
        f"sqlite:///{SECRET}",
        f"mysql://{SECRET}:p@{SECRET}/d?run=a",
        f"postgresql://{SECRET}@h/d?run={SECRET}-",
        f"postgresql://{SECRET}@{SECRET}/d?run=a",
        f"postgresql://me:{SECRET}@127.0.0.1:1/d?run=a",
        f"postgresql://{SECRET}@127.0.0.1:1/{SECRET}?run=a&application_name={SECRET}",
        f"postgresql://h:{SECRET}/d?run=a",
    ],
)
def test_what_a_variable_holds_is_in_no_message(value, monkeypatch):
    monkeypatch.setenv("COVEY_LEDGER_URL", value)
    with pytest.raises(LedgerError) as refused:
        Ledger.read("env:COVEY_LEDGER_URL")
    assert SECRET not in str(refused.value)
    assert "env:COVEY_LEDGER_URL" in str(refused.value)


@pytest.mark.parametrize("key", ["url", "key_path"])
def test_no_command_writes_where_a_folder_says(received, tmp_path, key):
    rewrite_settings(received, **{key: str(tmp_path / "theirs" / "file")})
    said = said_by_all(received)
    assert not (tmp_path / "theirs").exists()
    assert "--trust-servers" in said or key == "key_path"  # which is not what began the run


def test_trackers_of_a_received_folder_record_nothing_elsewhere(received, tmp_path):
    path = received / "config.toml"
    table = f'tracking = [{{name = "tensorboard", folder = "{tmp_path}/theirs"}}]'
    path.write_text(path.read_text().replace("tracking = []", table))
    with pytest.raises(ConfigError, match="trust-servers"):
        covey.load(received).resume()


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("postgresql://u@db.example/d?run=a", {}),
        ("postgresql://u@/d?run=a&host=db.example", {}),
        ("postgresql://u@/d?run=a&host=/tmp,db.example", {}),
        ("postgresql://u@localhost/d?run=a&hostaddr=192.0.2.1", {}),
        ("postgresql://u@/d?run=a&service=theirs", {}),
        ("postgresql://u@/d?run=a", {"PGHOST": "db.example"}),
        ("postgresql://u@localhost/d?run=a", {"PGHOSTADDR": "192.0.2.1"}),
        ("postgresql://u@db.example/d?run=a", {"PGSSLMODE": "prefer"}),
    ],
)
def test_another_host_without_tls_is_refused(url, more, monkeypatch):
    for key, value in more.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(LedgerUnavailable, match="sslmode"):
        backend_of(url)
    for mode in ("verify-full", "require", "disable"):
        backend_of(f"{url}&sslmode={mode}")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    backend_of(url)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", ""])
def test_this_machine_needs_no_tls(host):
    backend_of(f"postgresql://u@{host}/d?run=a")
