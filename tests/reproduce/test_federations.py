"""Rows by columns, seed by seed, and runs under what they are."""

from contextlib import contextmanager

import pytest

from covey import Config, load
from covey_papers.reproduce.federations import federations
from covey_papers.reproduce.record import RunCache, digest, sources_of
from reproduce.tiny import IFCA, cache


@pytest.fixture(scope="module")
def results(played):
    """What `covey.load` reads: row and seed to a run."""
    experiment = played.experiment
    runs = {}
    for row in experiment.rows:
        for seed in (0, 1):
            settings = experiment.settings_of(experiment.columns[0], row)
            path = played.folder / digest(Config.of({**settings, "seed": seed}))
            runs[row.name, seed] = load(path)
    return runs


def values(played, row: str, measure: str, column: str = "digits"):
    (matching,) = (
        cell
        for cell in played.findings.cells
        if (cell.row, cell.column, cell.measure) == (row, column, measure)
    )
    return matching.values


@pytest.mark.parametrize("row", ["FedAvg", "IFCA"])
def test_a_cell_holds_a_value_per_seed(played, results, row):
    summaries = [results[row, seed].summary for seed in (0, 1)]
    accuracies = tuple(summary.accuracy.overall for summary in summaries)
    assert values(played, row, "accuracy") == accuracies
    assert accuracies[0] != accuracies[1]
    minority = tuple(summary.accuracy.by_group["minority"] for summary in summaries)
    assert values(played, row, "accuracy, minority") == minority
    above = tuple(float(summary.violations.count) for summary in summaries)
    assert values(played, row, "violations") == above


def minority(result) -> list[str]:
    started = result.history.started
    which = started.group_names.index("minority")
    return [n for n, handle in result.names.items() if started.groups[handle] == which]


def test_others_are_compared_with_one_row_seed_by_seed(played):
    for measure in ("accuracy", "accuracy, minority"):
        theirs, own = (values(played, row, measure) for row in ("FedAvg", "IFCA"))
        differences = values(played, "IFCA", f"{measure} minus FedAvg's")
        assert differences == tuple(b - a for a, b in zip(theirs, own, strict=True))
    theirs, own = (values(played, row, "violations") for row in ("FedAvg", "IFCA"))
    differences = values(played, "IFCA", "violations: FedAvg's / own")
    assert differences == tuple(a / b if b else None for a, b in zip(theirs, own, strict=True))
    compared = {cell.row for cell in played.findings.cells if "FedAvg's" in cell.measure}
    assert compared == {"IFCA"}


def test_a_column_without_its_data_says_which_files_are_missing(played):
    gone = [cell for cell in played.findings.cells if cell.column == "gone"]
    here = [cell for cell in played.findings.cells if cell.column == "digits"]
    assert [(c.row, c.measure) for c in gone] == [(c.row, c.measure) for c in here]
    assert {cell.values for cell in gone} == {()}
    (reason,) = {cell.reason for cell in gone}
    assert {cell.verdict for cell in gone} == {reason}
    assert reason.startswith("not played: mnist needs train-images-idx3-ubyte")
    assert "COVEY_DATA" in reason
    assert played.findings.notes == (reason,)
    assert all(cell.values for cell in here)


def of(**settings) -> Config:
    return Config.of({"seed": 1, **settings})


@pytest.mark.parametrize(
    "settings",
    [
        {"rounds": 29},
        {"seed": 2},
        {"population": {"clients": 41}},
        {"method": {"name": "fedavg"}},
        {"method": {"num_clusters": 3}},
        {"aggregation": {"name": "anonymity-sets"}},
        {"audit": {"non_members": "pooled"}},
    ],
    ids=str,
)
def test_another_result_has_another_digest(settings):
    assert digest(of(**settings)) != digest(of())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"engine": {"workers": 3}}),
        ({}, {"checkpoints": {"every": 7, "keep": "thin"}}),
        ({}, {"data": {"dir": "/elsewhere"}}),
        (
            {"method": {"name": "ifca"}},
            {"method": {"name": "ifca"}, "population": {"risk_weight": 0.3}},
        ),
    ],
    ids=str,
)
def test_the_same_result_has_the_same_digest(one, other):
    assert digest(of(**one)) == digest(of(**other))


def config(played, row, seed: int = 0) -> Config:
    settings = played.experiment.settings_of(played.experiment.columns[0], row)
    return Config.of({**settings, "seed": seed})


class PowerCutError(Exception):
    pass


@contextmanager
def until_the_power_goes(title):
    def observe(history):
        if len(history.rounds) == 1:
            raise PowerCutError

    yield observe


def test_a_run_that_was_stopped_is_carried_on_to_the_same_end(played, tmp_path):
    wanted = config(played, IFCA, seed=1)
    with pytest.raises(PowerCutError):
        RunCache(tmp_path, until_the_power_goes, tmp_path).run(wanted, "stopped")
    path = tmp_path / digest(wanted)
    assert load(path).history.finished is None
    assert not (path / "played.json").exists()

    assert cache(tmp_path).run(wanted, "carried on") == path
    whole = played.folder / digest(wanted)
    assert load(path).ledger_head == load(whole).ledger_head
    assert sources_of([path])["seconds"] > 0


def test_what_was_measured_stands_for_a_run_whose_folder_is_gone(played, tmp_path):
    (tmp_path / "runs").mkdir()
    measured = played.folder / "measured"
    elsewhere = RunCache(tmp_path / "runs", until_the_power_goes, measured)
    assert federations(played.experiment, elsewhere) == played.findings
    more = played.experiment.model_copy(update={"measures": ("exposure",)})
    with pytest.raises(PowerCutError):  # of that only the run tells
        federations(more, elsewhere)
