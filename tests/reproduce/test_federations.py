"""Rows by columns, seed by seed, against what the runs themselves say."""

from statistics import fmean

import pytest

from covey import Config, load
from covey_papers.reproduce.federations import MEASURES, UNBOUNDED, Seen, federations
from covey_papers.reproduce.record import digest
from reproduce.tiny import FEDAVG, IFCA, column, experiment, full


@pytest.fixture(scope="module")
def results(played):
    """What `covey.load` reads: row and seed to a run."""
    asked = played.experiment
    found = {}
    for row in asked.rows:
        for seed in (0, 1):
            settings = asked.settings_of(asked.columns[0], row, quick=False)
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


def test_the_minoritys_model_is_the_one_that_most_of_it_chose(played, results):
    for seed in (0, 1):
        result = results["IFCA", seed]
        chosen = [result.cluster_of(name) for name in minority(result)]
        home = max(sorted(set(chosen)), key=chosen.count)
        risk = result.summary.clusters[home].true_risk
        assert values(played, "IFCA", "MIA accuracy, minority")[seed] == risk


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


@pytest.fixture
def swapped(played):
    """The same runs, with what IFCA compares itself with the other way round."""
    asked = played.experiment.model_copy(
        update={
            "columns": played.experiment.columns[:1],
            "against": "IFCA",
            "factors": ("violations", "accuracy"),
            "distances": True,
        }
    )
    return federations(asked, full(played.folder), quick=False)


def test_a_factor_without_a_divisor_is_unbounded(played, swapped):
    of = {cell.measure: cell for cell in swapped.cells if cell.row == "FedAvg"}
    told = of["violations: IFCA's / own"]
    pairs = zip(
        values(played, "IFCA", "violations"), values(played, "FedAvg", "violations"), strict=True
    )
    assert told.values == tuple(a / b if b else None for a, b in pairs)
    assert None in told.values  # in some seed FedAvg leaves nobody above
    assert told.mean is None
    assert told.verdict == UNBOUNDED
    assert of["accuracy: IFCA's / own"].mean is not None


def test_a_distance_is_relative_to_the_others_length(swapped, results):
    (told,) = (cell for cell in swapped.cells if "distance" in cell.measure)
    own, theirs = (results[row, 1].params(0) for row in ("FedAvg", "IFCA"))
    apart = sum(((own[key] - theirs[key]) ** 2).sum() for key in own)
    length = sum((theirs[key] ** 2).sum() for key in own)
    assert told.row == "FedAvg"
    assert told.values[1] == pytest.approx(float((apart / length) ** 0.5), rel=1e-5)


def test_a_column_without_its_data_says_which_files_are_missing(played):
    gone = [cell for cell in played.found.cells if cell.column == "gone"]
    here = [cell for cell in played.found.cells if cell.column == "digits"]
    assert [(c.row, c.measure) for c in gone] == [(c.row, c.measure) for c in here]
    assert {cell.values for cell in gone} == {()}
    (reason,) = {cell.reason for cell in gone}
    assert {cell.verdict for cell in gone} == {reason}
    assert reason.startswith("not played: mnist needs the file train-images-idx3-ubyte")
    assert "COVEY_DATA" in reason
    assert played.found.notes == (reason,)
    assert all(cell.values for cell in here)


def test_only_what_can_be_played_is_on_the_shelf(played):
    assert len(list(played.folder.iterdir())) == 4
    assert played.found.seconds > 0
    assert len(played.found.commits) == 1


def test_lines_are_each_groups_mean_per_round(played, results):
    lines = {line.name: line for line in played.found.lines}
    assert list(lines) == [
        f"{row}, {group}" for row in ("FedAvg", "IFCA") for group in ("minority", "majority")
    ]
    assert {line.panel for line in lines.values()} == {"digits"}
    points = lines["IFCA, majority"].points
    assert [x for x, _ in points] == [0, 1, 2]  # two rounds and the end
    for t, (_, y) in enumerate(points[:2]):
        told = [results["IFCA", s].history.rounds[t] for s in (0, 1)]
        assert y == fmean(each.accuracy_by_group["majority"] for each in told)


def test_a_row_may_have_fewer_repeats(played):
    once = FEDAVG.model_copy(update={"repeats": 1})
    asked = experiment(repeats=2, rows=(once, IFCA))
    found = federations(asked, full(played.folder), quick=False)
    assert [len(cell.values) for cell in found.cells] == [1, 2]


def test_what_the_paper_prints_stands_beside_its_cell_alone(played):
    printed = IFCA.model_copy(update={"printed": {"accuracy": "IFCA"}})
    asked = experiment(
        table="Table 1",
        repeats=2,
        measures=("accuracy", "accuracy_minority"),
        columns=(column().model_copy(update={"printed": "MNIST"}),),
        rows=(FEDAVG, printed),
        why={"accuracy": "Digits."},
    )
    found = federations(asked, full(played.folder), quick=False)
    shown = {(c.row, c.measure): c.printed and c.printed.value for c in found.cells}
    assert shown == {
        ("FedAvg", "accuracy"): None,
        ("FedAvg", "accuracy, minority"): None,
        ("IFCA", "accuracy"): 0.816,
        ("IFCA", "accuracy, minority"): None,
    }
    whys = {(cell.row, cell.measure): cell.why for cell in found.cells}
    assert whys.pop(("IFCA", "accuracy")) == "Digits."
    assert set(whys.values()) == {""}  # a reason is for a number that is printed


def test_every_measure_can_be_taken(played, results):
    seen = Seen.of(results["IFCA", 0].folder)
    taken = {name: each.of(seen) for name, each in MEASURES.items()}
    assert all(value is None or isinstance(value, float) for value in taken.values())
    summary = results["IFCA", 0].summary
    assert taken["equal_opportunity"] == summary.fairness["equal_opportunity"].mean.value
    assert taken["adjusted_rand_index"] == summary.adjusted_rand_index
    assert taken["exposure"] == summary.exposure.mean.value
    assert taken["violations_lower"] == summary.violations.count_lower
    assert taken["accuracy_majority"] == summary.accuracy.by_group["majority"]
