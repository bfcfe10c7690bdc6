"""The experiments as data: every cell can be played, and names what there is."""

import pytest

from covey import Config, ConfigError
from covey_papers.reproduce.federations import EVERY_ANSWER, MEASURES, NAMES
from covey_papers.reproduce.federations import LEAVING_MEASURES as OF_LEAVING
from covey_papers.reproduce.figures import SIDES
from covey_papers.reproduce.specification import (
    Column,
    Experiment,
    Row,
    experiment,
    experiments,
    in_layers,
    paper_title,
    printed_table,
)

EVERY = experiments()
PLAYED = [n for n, e in EVERY.items() if e.kind in ("federations", "leaving")]
SIZED = [*PLAYED, *(n for n, e in EVERY.items() if e.kind == "samples")]
PRINTED = [name for name in PLAYED if EVERY[name].table]
UNPRINTED = [name for name in PLAYED if not EVERY[name].table]
FORMS = pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])


def form(name: str, *, quick: bool) -> Experiment:
    return EVERY[name].in_brief() if quick else EVERY[name]


def config(name: str, column: Column, row: Row, *, quick: bool) -> Config:
    """A cell's settings."""
    settings = EVERY[name].settings_of(column, row, quick=quick)
    return Config.of({**settings, "seed": 1})


@pytest.mark.parametrize("name", SIZED)
@FORMS
def test_every_cell_can_be_played(name, quick):
    asked = form(name, quick=quick)
    assert asked.columns
    assert asked.rows or asked.kind != "federations"
    for column in asked.columns:
        for row in asked.rows or (EVERY_ANSWER,):
            config(name, column, row, quick=quick)


@pytest.mark.parametrize("name", EVERY)
def test_its_words_name_what_there_is(name):
    asked = EVERY[name]
    known = OF_LEAVING if asked.kind == "leaving" else MEASURES
    assert {*asked.measures, *asked.factors, *asked.differences} <= set(known)
    assert set(asked.why) <= set(asked.measures)
    columns, rows = ([each.name for each in of] for of in (asked.columns, asked.rows))
    assert len(set(columns)) == len(columns)
    assert len(set(rows)) == len(rows)
    assert set(asked.quick.columns) <= set(columns)
    assert set(asked.quick.k) <= set(asked.k)
    assert set(asked.quick.x) <= set(asked.x)
    assert paper_title(asked.paper)
    assert 0 < asked.minutes[0] <= 3
    assert asked.minutes[0] <= asked.minutes[1]


@pytest.mark.parametrize("name", PLAYED)
@FORMS
def test_others_are_compared_with_a_row_that_is_played(name, quick):
    asked = form(name, quick=quick)
    compared = asked.factors or asked.differences or asked.distances
    assert bool(compared) == bool(asked.against)
    if asked.against:  # in every repeat: others are compared with it seed by seed
        (row,) = (row for row in asked.rows if row.name == asked.against)
        assert row.repeats in (0, asked.repeats)


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_is_in_the_papers_table(name):
    asked = EVERY[name]
    table = printed_table(asked.paper, asked.table)
    rows, columns = {row for row, _ in table}, {column for _, column in table}
    if asked.kind == "leaving":
        names = {NAMES[each] for each in asked.baselines}
        assert {c.printed or c.name for c in asked.columns} == rows
        assert columns <= names | {f"k={k}" for k in asked.k}
        return
    assert {c.printed for c in asked.columns} - {""} <= columns
    for row in asked.rows:
        assert set(row.printed) <= set(asked.measures)
        assert set(row.printed.values()) <= rows
    shown = {
        (row, column.printed or column.name)
        for column in asked.columns
        for each in asked.rows
        for row in each.printed.values()
    }
    assert set(table) <= shown  # every number of the paper's stands beside ours


@pytest.mark.parametrize("name", UNPRINTED)
def test_without_a_table_no_row_claims_a_printed_number(name):
    assert not any(row.printed for row in EVERY[name].rows)
    assert not any(column.printed for column in EVERY[name].columns)


def size(config: Config) -> int:
    """How many images are looked at, local epochs aside."""
    population = config.population
    shared = sum(each.share * each.examples_per_client for each in population.groups)
    each = shared or population.examples_per_client
    return round(config.rounds * population.clients * each)


@pytest.mark.parametrize("name", PLAYED)
def test_a_quick_form_is_smaller(name):
    whole, brief = EVERY[name], EVERY[name].in_brief()
    assert brief.repeats <= whole.repeats
    assert set(brief.k) <= set(whole.k)
    assert set(brief.x) <= set(whole.x)
    assert {c.name for c in brief.columns} <= {c.name for c in whole.columns}
    for column in brief.columns:
        for row in brief.rows or (EVERY_ANSWER,):
            small, large = (config(name, column, row, quick=each) for each in (True, False))
            assert size(small) * 3 < size(large)
            assert small.data.name == large.data.name
            assert small.method == large.method


def test_both_papers_and_what_goes_beyond_are_covered():
    names = {
        *(f"ifca-mir-figure-{n}" for n in range(1, 11)),
        *(f"ifca-mir-table-{n}" for n in (1, 2)),
        *(f"deniable-table-{n}" for n in range(2, 6)),
        *(f"deniable-figure-{n}" for n in range(3, 8)),
        "deniable-headline",
        "ifca-table-1",
    }
    assert names <= set(EVERY)
    others = set(EVERY) - names
    assert len([each for each in others if each.startswith("theory-")]) == 2
    assert len([each for each in others if each.startswith("beyond-")]) == 4
    assert len(others) == 6


def test_fedavg_stands_beside_every_choice():
    for name in PLAYED:
        rows = EVERY[name].rows
        if any("IFCA" in row.name for row in rows):
            methods = [row.settings["method"]["name"] for row in rows]
            assert "fedavg" in methods, name


def test_solved_heads_stand_beside_networks_in_all_that_goes_beyond():
    for name, asked in EVERY.items():
        if name.startswith("beyond-"):
            methods = {row.settings["method"]["name"] for row in asked.rows}
            assert {"fedavg", "solved"} <= methods, name


def test_a_front_is_drawn_from_what_is_measured():
    fronts = [each for each in EVERY.values() if each.figure == "front"]
    assert fronts
    for asked in fronts:
        needed = {f"{a}_{g}" for a in ("accuracy", "mia") for g in SIDES}
        assert needed <= set(asked.measures)


def test_layers_lie_over_each_other_section_by_section():
    asked = experiment("beyond-hidden")
    column, row = asked.columns[0], asked.rows[2]
    full, quick = (asked.settings_of(column, row, quick=each) for each in (False, True))
    assert full["population"]["clients"] == 40  # the base
    assert quick["population"]["clients"] == 30  # the experiment's own quick form
    assert quick["population"]["audit_examples"] == 500  # the base's
    assert quick["population"]["shift"] == full["population"]["shift"] == "brightness"
    assert full["aggregation"]["min_anonymity"] == 2  # the row
    asked = asked.model_copy(update={"on_top": {"population": {"clients": 9}}})
    for each in (False, True):
        told = asked.settings_of(column, row, quick=each)
        assert told["population"]["clients"] == 9
        assert told["population"]["shift"] == "brightness"


def test_a_layer_that_names_another_component_forgets_what_that_one_does_not_know():
    method = {"num_clusters": 4, "selection": {"name": "priced", "target_share": 0.1}}
    base = {"method": method, "train": {"optimizer": {"momentum": 0.9, "weight_decay": 0.1}}}
    known = in_layers(base, {"method": {"name": "ifca"}}, {"train": {"optimizer": "adam"}})
    assert known == {"method": {"name": "ifca", "num_clusters": 4}, "train": {"optimizer": "adam"}}
    other = {"selection": {"name": "threshold"}, "name": "ifca-mir"}
    table = in_layers(base, {"method": other}, {"train": {"optimizer": {"name": "adam"}}})
    assert table == {
        "method": {"name": "ifca-mir", "num_clusters": 4, "selection": {"name": "threshold"}},
        "train": {"optimizer": {"name": "adam", "weight_decay": 0.1}},
    }
    assert method["selection"] == {"name": "priced", "target_share": 0.1}  # the base is as it was
    with pytest.raises(
        ConfigError, match=r"num_clusters.*'fedavg'"
    ):  # what stands beside it is not
        Config.of(in_layers(base, {"method": {"name": "fedavg", "num_clusters": 4}}))


def test_a_setting_on_top_is_for_the_rows_that_have_it():
    on_top = {"method": {"pooling": 0.5}}
    asked = experiment("beyond-selections").model_copy(update={"on_top": on_top})
    told = {
        row.name: Config.of(asked.settings_of(asked.columns[0], row, quick=False)).method
        for row in asked.rows
    }
    pooling = {name: getattr(method, "pooling", None) for name, method in told.items()}
    assert pooling.pop("FedAvg") is pooling.pop("FedAvg, normalised images") is None
    assert set(pooling.values()) == {0.5}
    wrong = asked.model_copy(update={"on_top": {"method": {"poling": 0.5}}})
    with pytest.raises(ConfigError, match=r"method\.pooling"):
        Config.of(wrong.settings_of(asked.columns[0], asked.rows[0], quick=False))


@pytest.mark.parametrize(
    ("name", "middle"),
    [
        ("Fashion-MNIST, small", "25 degrees"),
        ("EMNIST, 1,000 images", "25 degrees"),
        ("CIFAR-10, small CNN", "0.85 to 1.15"),
    ],
)
def test_the_middle_range_is_the_tables_column_so_that_they_share_its_runs(name, middle):
    def played(experiment_name: str, column_name: str) -> list[Config | None]:
        asked = EVERY[experiment_name]
        (column,) = (c for c in asked.columns if c.name == column_name)
        rows = asked.rows
        return [config(experiment_name, column, row, quick=False) for row in rows]

    known = played("ifca-mir-table-1", name)
    assert None not in known
    assert played("ifca-mir-table-2", name) == known
    for figure in ("ifca-mir-figure-3", "ifca-mir-figure-5"):
        assert played(figure, f"{name}, {middle}") == known


def test_who_names_no_experiment_is_told_how_to_find_one():
    with pytest.raises(ConfigError, match=r"no experiment 'table-9'.*--list"):
        experiment("table-9")
