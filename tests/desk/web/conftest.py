import html
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

import covey
from covey import run
from covey_desk.lifecycle import add_request
from covey_desk.web.app import application
from desk.web.stories import HOSTILE_FOLDER, INERT, Scenario, audit_of, written

with warnings.catch_warnings():  # it would rather have another library of the same kind
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

Make = Callable[[Path], object]
PORT = 8765
ADDRESS = f"http://127.0.0.1:{PORT}"

LEAVING = {
    "rounds": 3,
    "population.clients": 6,
    "population.examples_per_client": 20,
    "population.audit_examples": 0,
    "model.name": "linear",
    "train.local_epochs": 1,
    "risk.every": 2,
}


@pytest.fixture(scope="session")
def shown(once: Callable[[str, Make], Path]) -> Path:
    """Runs, only to be read: a real one that somebody left, and one of hostile names."""

    def make(folder: Path) -> None:
        real = run(config=LEAVING, out=folder / "real")
        real.forget(sorted(real.names)[0], "retrain")
        (folder / "begun").mkdir()
        shutil.copy(folder / "real" / "config.toml", folder / "begun")
        name = HOSTILE_FOLDER
        with written(folder / name, Scenario(hostile=True, sets=True)) as writer:
            writer.play(12)
        stays = sorted(covey.load(real.folder).names)[0]
        day = date(2026, 1, 31)
        add_request(folder / "requests", [folder], [stays], "erasure", day, reference=INERT)
        (folder / name / "audit").mkdir()
        (folder / name / "audit" / "audit.json").write_text(audit_of(0))

    return once("web", make)


@dataclass(frozen=True)
class Visitor:
    """A browser that was let in, as far as a test needs one."""

    client: TestClient
    links: list[str]

    def get(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    def runs(self) -> dict[str, str]:
        """Return the address of every run's page by the run's name."""
        links = re.findall(r'<a href="(/runs/[^"/]+)">([^<]*)</a>', self.get("/"))
        return {html.unescape(name): path for path, name in links}


def visiting(roots: list[Path]) -> Visitor:
    links: list[str] = []
    app = application(roots, PORT, links.append)
    client = TestClient(app, base_url=ADDRESS)
    client.get(app.link)
    return Visitor(client, links)


@pytest.fixture(scope="module")
def visitor(shown: Path) -> Visitor:
    return visiting([shown])


@pytest.fixture
def visit() -> Callable[[Path], Visitor]:
    return lambda root: visiting([root])
