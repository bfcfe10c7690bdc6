"""The papers' own systems, as their examples have them, on fewer rounds and images."""

from pathlib import Path

import pytest

import covey
from covey.base.events import ClientsAssigned
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.ledger_record import LedgerReader

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"


def played(name, folder, real_data, *overrides):
    config = covey.load_config(EXAMPLES / name, [*overrides, f"data.dir={real_data}"])
    return covey.run(config=config, out=folder, progress=False)


def test_ifca_mir_measures_by_central_shadows_and_lets_clients_choose_by_that(tmp_path, real_data):
    smaller = (
        "rounds=3",
        "population.clients=20",
        "population.pool=400",
        "population.audit_examples=100",
    )
    run = played("ifca-mir.toml", tmp_path / "run", real_data, *smaller)
    shown = [event.estimate for event in run.history.measured if event.estimate.is_known]
    assert shown
    assert all(estimate.steers and not estimate.calibrated for estimate in shown)
    assert all(estimate.reason.startswith("as published, not calibrated") for estimate in shown)
    assert not any(cluster.calibrated for cluster in run.summary.clusters)
    with Ledger.read(RunFolder(run.folder).ledger) as ledger:
        events = [event for _, event in LedgerReader().read(ledger).events]
    chosen = [event for event in events if isinstance(event, ClientsAssigned)]
    assert {event.by for event in chosen} == {"clients", "final"}  # from the first round on


def test_deniable_unlearning_answers_who_leaves_while_it_trains(tmp_path, real_data):
    smaller = ("rounds=6", "population.examples_per_client=30", "train.batch_size=10")
    often = ("leaving.request_probability=0.9", "aggregation.deniability_threshold=5")
    run = played("deniable.toml", tmp_path / "run", real_data, *smaller, *often)
    answers = run.summary.left
    assert answers["deny"] > 0
    assert answers["roll_back"] + answers["retrain"] > 0
    sets = [event for _, event in run.history.hidden]
    assert all(6 <= len(members) < 12 for event in sets for members in event.sets)
    assert {event.distance for event in sets} == {"cosine"}
