from dataclasses import dataclass
from pathlib import Path

import pytest

from covey_papers.reproduce.federations import federations
from covey_papers.reproduce.record import Findings
from covey_papers.reproduce.specification import Experiment
from reproduce.tiny import FEDAVG, IFCA, cache, column, experiment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow whatever needs an experiment that was played."""
    for item in items:
        here = Path(__file__).parent in item.path.parents
        if here and "played" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class Played:
    """An experiment whose runs lie in a folder."""

    experiment: Experiment
    folder: Path
    findings: Findings


@pytest.fixture(scope="session")
def played(tmp_path_factory) -> Played:
    """FedAvg and IFCA on digits with two seeds, and a column without its data."""
    empty, folder = (tmp_path_factory.mktemp(name) for name in ("empty", "runs"))
    gone = column("gone", data={"name": "mnist", "dir": str(empty)})
    tiny = experiment(
        repeats=2,
        figure="lines",
        measures=("accuracy", "accuracy_minority", "violations", "mia_minority"),
        columns=(column(), gone),
        rows=(FEDAVG, IFCA),
        against="FedAvg",
        factors=("violations",),
        differences=("accuracy", "accuracy_minority"),
    )
    return Played(tiny, folder, federations(tiny, cache(folder)))
