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
        "rounds=4",
        "population.clients=40",
        "population.pool=1000",
        "population.audit_examples=200",
    )
    run = played("ifca-mir.toml", tmp_path / "run", real_data, *smaller)
    shown = [each.estimate for each in run.history.measured if each.estimate.is_known]
    assert shown
    assert all(each.steers and not each.calibrated for each in shown)
    assert all(each.reason.startswith("as published, not calibrated") for each in shown)
    assert not any(each.calibrated for each in run.summary.clusters)
    with Ledger.read(RunFolder(run.folder).ledger) as ledger:
        events = [event for _, event in LedgerReader().read(ledger).events]
    chosen = [each for each in events if isinstance(each, ClientsAssigned)]
    assert {each.by for each in chosen} == {"clients", "final"}  # from the first round on


def test_deniable_unlearning_answers_who_leaves_while_it_trains(tmp_path, real_data):
    smaller = ("rounds=6", "population.examples_per_client=60", "train.batch_size=20")
    often = ("leaving.request_probability=0.9", "aggregation.deniability_threshold=5")
    run = played("deniable.toml", tmp_path / "run", real_data, *smaller, *often)
    answers = run.summary.left
    assert answers["deny"] > 0
    assert answers["roll_back"] + answers["retrain"] > 0
    sets = [each for _, each in run.history.hidden]
    assert all(6 <= len(members) < 12 for each in sets for members in each.sets)
    assert {each.distance for each in sets} == {"cosine"}
