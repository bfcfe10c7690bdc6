"""One small run with an audit and an answer, and a dossier of it."""

import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import covey
from covey import Run

SMALL = {
    "rounds": 2,
    "population": {"clients": 6, "audit_examples": 60},
    "model": {"name": "mlp"},
    "redteam": {"every": 1},
}


@pytest.fixture(scope="session")
def audited(once) -> Path:
    """A run that one client left; only to be read."""

    def play(folder: Path) -> None:
        key = str(folder / "key.pem")
        settings = {**SMALL, "secrets": {"key_path": key}}
        run = covey.run(config=settings, out=folder / "run")
        run.forget("client-00001", "retrain")
        run.audit(attacks=("loss",), references=2)

    return once("dossier", play) / "run"


@pytest.fixture
def run(audited: Path, tmp_path: Path) -> Run:
    """The same, in a folder of one's own."""
    return covey.load(shutil.copytree(audited, tmp_path / "run"))


@pytest.fixture(scope="session")
def other_key():
    """A key that the run does not have."""
    return Ed25519PrivateKey.generate()
