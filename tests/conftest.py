import os
import pwd
import secrets
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from hypothesis import settings
from sklearn.datasets import load_digits
from sqlalchemy import NullPool, create_engine, make_url, text

from covey import Examples
from covey.data.examples import Client, Preference
from on_ray.cluster import ray_cluster, ray_engine

__all__ = ["ray_cluster", "ray_engine"]  # here, so that a process has one cluster

IN_CI = os.environ.get("COVEY_CI") == "1"
"""Nothing is skipped there that could be tested, and the quick laws draw the same every time."""

EXPECTED_SKIPS = ("root may read everything", "connected to a cluster")
"""Of reasons: what no machine of ours can test, or not in this process."""

settings.register_profile("quick", deadline=None, max_examples=15, derandomize=IN_CI)
settings.register_profile("thorough", deadline=None, max_examples=40)
settings.load_profile("quick")  # --hypothesis-profile comes later, and so wins
torch.set_num_threads(1)
MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes folders of its own in it
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**31:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # thousands of synced files

BESIDE_THE_REPOSITORY = Path(__file__).parents[2] / "shared" / "data"
Make = Callable[[Path], object]
NO_EXAMPLES = Examples(torch.empty(0, 1), torch.empty(0, dtype=torch.int64))


def folder_of_data() -> Path:
    return Path(os.environ.get("COVEY_DATA") or BESIDE_THE_REPOSITORY)


def pytest_report_header() -> str:
    """Say at the top what will be skipped for want of data sets."""
    folder = folder_of_data()
    if folder.is_dir():
        return f"data sets: {folder}"
    return f"data sets: none in {folder}; what needs them is skipped (set COVEY_DATA)"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI, fail where a test was skipped that should have been played."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not IN_CI or reporter is None:
        return
    reasons = [str(report.longrepr[2]) for report in reporter.stats.get("skipped", ())]
    if gaps := [
        reason for reason in reasons if not any(known in reason for known in EXPECTED_SKIPS)
    ]:
        reporter.write_line("\n".join(["skipped, and not expected to be:", *sorted(set(gaps))]))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def client(
    name: str,
    train: Examples,
    holdout: Examples = NO_EXAMPLES,
    group: int | None = None,
    preference: tuple[float, float] = (0.0, 0.8),
) -> Client:
    """A client whose handle is its name in capitals."""
    accepts = Preference(*preference)
    return Client(name, name.upper(), group, train, holdout, accepts)


@pytest.fixture(scope="session", autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the keys and secrets that tests make out of the settings of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "settings"))
        yield


@pytest.fixture(scope="session")
def make_client() -> Callable[..., Client]:
    return client


@pytest.fixture(scope="session")
def digits() -> Examples:
    """The 1,797 images of 8 x 8 pixels that scikit-learn ships, in a fixed shuffle."""
    bunch = load_digits()  # pixels 0..16
    order = np.random.default_rng(0).permutation(len(bunch.target))  # pyright: ignore
    images = np.clip(bunch.images[order] * 16, 0, 255).astype(np.uint8)  # pyright: ignore
    labels = bunch.target[order].astype(np.int64)  # pyright: ignore
    return Examples(torch.from_numpy(images)[:, None], torch.from_numpy(labels))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets; tests that need it skip where there is none."""
    folder = folder_of_data()
    if not folder.is_dir():
        pytest.skip(f"no data sets in {folder}: set COVEY_DATA to a folder with them")
    return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Make], Path]:
    """Fill a folder once, whichever of pytest's processes asks for it first.

    Nobody may write into it afterwards: who changes something takes a copy.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    (shared / "once").mkdir(exist_ok=True)

    def filled(name: str, fill: Make) -> Path:
        folder, done = (shared / "once" / f"{name}{end}" for end in ("", ".done"))
        with FileLock(f"{folder}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # a filling that failed
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return filled


@dataclass(frozen=True)
class Postgres:
    """A server to test against; its files and `pg_ctl` where it is a private one."""

    url: str
    prefix: str
    data: Path | None = None
    control: Callable[..., None] | None = None

    def run(self, name: str) -> str:
        """The URL of a ledger, named like no real run that the server may hold."""
        return f"{self.url}{'&' if '?' in self.url else '?'}run={self.prefix}{name}"

    def execute(self, *statements: str) -> list[Any]:
        """Execute as the administrator, and return the last statement's rows."""
        url = make_url(self.url).set(drivername="postgresql+psycopg")
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            *_, last = [connection.execute(text(one)) for one in statements]
            return list(last) if last.returns_rows else []

    def kill(self) -> None:
        """End every process of a private server by SIGKILL."""
        assert self.data is not None
        known = self.data / "postmaster.pid"
        first = int(known.read_text().split()[0])
        os.kill(first, signal.SIGSTOP)  # it makes no more children
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        for process in (*map(int, children), first):
            end(process)
        # where nobody reaps orphans, a dead server's number is still taken
        for lock in (known, *self.data.parent.glob(".s.PGSQL.*.lock")):
            lock.unlink()

    def stop(self) -> None:
        """Stop a private server at once, without a checkpoint."""
        assert self.control is not None
        self.control("stop", "-w", "-m", "immediate")

    def start(self) -> None:
        """Start a private server that was stopped or killed; it recovers by itself."""
        assert self.control is not None
        self.control("start", "-w")


def end(process: int) -> None:
    """Kill a process that is not our child, and wait until it is dead."""
    with suppress(ProcessLookupError):
        watched = os.pidfd_open(process)
        os.kill(process, signal.SIGKILL)
        select.select([watched], [], [])
        os.close(watched)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The server that COVEY_POSTGRES_URL names, else a private one, else a skip."""
    prefix = f"covey_test_{secrets.token_hex(6)}_"
    server_url = os.environ.get("COVEY_POSTGRES_URL")
    if server_url:
        server = Postgres(server_url, prefix)
        yield server
        for (schema,) in server.execute("SELECT nspname FROM pg_namespace"):
            if schema.startswith(prefix):
                server.execute(f'DROP SCHEMA "{schema}" CASCADE')
        return
    pg_ctl = next(filter(None, map(shutil.which, places_of_pg_ctl())), None)
    if pg_ctl is None:
        pytest.skip("no PostgreSQL server here: install it or set COVEY_POSTGRES_URL")
    # not pytest's folder: its path is long for a socket, and closed to other users
    folder = Path(tempfile.mkdtemp(prefix="covey-"))
    data = folder / "data"
    user = None if os.geteuid() else unprivileged(folder)

    def control(*arguments: str) -> None:
        command = [pg_ctl, "-D", str(data), *arguments]
        # a log, not a pipe: the server would keep that open
        with (folder / "pg_ctl.log").open("a") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log, user=user, cwd=folder)

    try:
        control("initdb", "-o", "-A trust -U covey -E UTF8 --locale=C --no-sync")
        with (data / "postgresql.conf").open("a") as settings_of_server:
            settings_of_server.write(
                f"listen_addresses = ''\nfsync = off\nunix_socket_directories = '{folder}'\n"
            )
        url = f"postgresql://covey@/postgres?host={folder}"
        server = Postgres(url, prefix, data, control)
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder)


def places_of_pg_ctl() -> list[str]:
    """The one on PATH, then Debian's, newest first."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")
    return ["pg_ctl", *map(str, sorted(debian, reverse=True))]


def unprivileged(folder: Path) -> str:
    """Give the folder to a user whom PostgreSQL lets start a server, unlike root."""
    known = {user.pw_name for user in pwd.getpwall()}
    name = "postgres" if "postgres" in known else "nobody"
    os.chown(folder, pwd.getpwnam(name).pw_uid, -1)
    return name
