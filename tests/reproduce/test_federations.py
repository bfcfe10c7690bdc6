"""Rows by columns, seed by seed, against what the runs themselves say."""

import pytest

from covey import Config, load
from covey_papers.reproduce.record import digest


@pytest.fixture(scope="module")
def results(played):
    """What `covey.load` reads: row and seed to a run."""
    asked = played.experiment
    found = {}
    for row in asked.rows:
        for seed in (0, 1):
            settings = asked.settings_of(asked.columns[0], row)
            path = played.folder / digest(Config.of({**settings, "seed": seed}))
            found[row.name, seed] = load(path)
    return found


def values(played, row: str, measure: str, column: str = "digits"):
    (found,) = (
        cell
        for cell in played.found.cells
        if (cell.row, cell.column, cell.measure) == (row, column, measure)
    )
    return found.values


@pytest.mark.parametrize("row", ["FedAvg", "IFCA"])
def test_a_cell_holds_a_value_per_seed(played, results, row):
    told = [results[row, seed].summary for seed in (0, 1)]
    accuracies = tuple(each.accuracy.overall for each in told)
    assert values(played, row, "accuracy") == accuracies
    assert accuracies[0] != accuracies[1]
    minority = tuple(each.accuracy.by_group["minority"] for each in told)
    assert values(played, row, "accuracy, minority") == minority
    above = tuple(float(each.violations.count) for each in told)
    assert values(played, row, "violations") == above


def minority(result) -> list[str]:
    started = result.history.started
    which = started.group_names.index("minority")
    return [n for n, handle in result.names.items() if started.groups[handle] == which]


def test_others_are_compared_with_one_row_seed_by_seed(played):
    for measure in ("accuracy", "accuracy, minority"):
        theirs, own = (values(played, row, measure) for row in ("FedAvg", "IFCA"))
        told = values(played, "IFCA", f"{measure} minus FedAvg's")
        assert told == tuple(b - a for a, b in zip(theirs, own, strict=True))
    theirs, own = (values(played, row, "violations") for row in ("FedAvg", "IFCA"))
    told = values(played, "IFCA", "violations: FedAvg's / own")
    assert told == tuple(a / b if b else None for a, b in zip(theirs, own, strict=True))
    compared = {cell.row for cell in played.found.cells if "FedAvg's" in cell.measure}
    assert compared == {"IFCA"}


def test_a_column_without_its_data_says_which_files_are_missing(played):
    gone = [cell for cell in played.found.cells if cell.column == "gone"]
    here = [cell for cell in played.found.cells if cell.column == "digits"]
    assert [(c.row, c.measure) for c in gone] == [(c.row, c.measure) for c in here]
    assert {cell.values for cell in gone} == {()}
    (reason,) = {cell.reason for cell in gone}
    assert {cell.verdict for cell in gone} == {reason}
    assert reason.startswith("not played: mnist needs train-images-idx3-ubyte")
    assert "COVEY_DATA" in reason
    assert played.found.notes == (reason,)
    assert all(cell.values for cell in here)
