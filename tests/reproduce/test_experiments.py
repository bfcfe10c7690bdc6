"""The experiments as data, and the papers' numbers against the papers' text."""

import os
import re
from pathlib import Path

import pytest
import torch

from covey import Config, Examples
from covey.data.population import reserve
from covey_papers.reproduce.federations import EVERY_ANSWER, MEASURES, NAMES
from covey_papers.reproduce.federations import LEAVING_MEASURES as OF_LEAVING
from covey_papers.reproduce.specification import Experiment, experiments, paper_title, printed_table

EVERY = experiments()
PLAYED = [n for n, e in EVERY.items() if e.kind in ("federations", "leaving")]
SIZED = [*PLAYED, *(n for n, e in EVERY.items() if e.kind == "samples")]
PRINTED = [name for name in PLAYED if EVERY[name].table]
FORMS = pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])


def form(name: str, *, quick: bool) -> Experiment:
    return EVERY[name].in_brief() if quick else EVERY[name]


@pytest.mark.parametrize("name", SIZED)
@FORMS
def test_every_cell_can_be_played(name, quick):
    formed = form(name, quick=quick)
    assert formed.columns
    assert formed.rows or formed.kind != "federations"
    for column in formed.columns:
        for row in formed.rows or (EVERY_ANSWER,):
            Config.of({**formed.settings_of(column, row), "seed": 1})


@pytest.mark.parametrize(
    ("name", "column", "clients", "members"),
    [
        ("ifca-mir-table-1", "MNIST, 10%", 200, 250),
        ("ifca-mir-table-1", "FEMNIST", 200, 3000),
        ("deniable-table-2", "MNIST-iid", 50, 1200),
        ("deniable-table-5", "FMNIST-noniid", 50, 1200),
        ("deniable-figure-5", "MNIST-noniid", 50, 1200),
        ("deniable-figure-3", "CelebA-iid", 50, 1000),
        ("deniable-table-3", "CelebA-noniid", 50, 1000),
        ("deniable-table-4", "CIFAR10-iid", 50, 600),
        ("deniable-table-4", "CIFAR10-noniid", 50, 500),
    ],
)
def test_clients_train_on_as_many_images_as_the_paper_says(name, column, clients, members):
    listed = EVERY[name]
    (of_name,) = (one_column for one_column in listed.columns if one_column.name == column)
    population = Config.of(listed.settings_of(of_name, (*listed.rows, EVERY_ANSWER)[0])).population
    labels = torch.zeros(population.examples_per_client, dtype=torch.int64)
    dealt = Examples(torch.zeros(len(labels), 1), labels)
    train, _ = reserve("client", dealt, population.holdout)
    assert (population.clients, len(train)) == (clients, members)


@pytest.mark.parametrize("name", EVERY)
def test_its_words_name_what_there_is(name):
    listed = EVERY[name]
    known = OF_LEAVING if listed.kind == "leaving" else MEASURES
    assert {*listed.measures, *listed.factors, *listed.differences} <= set(known)
    assert set(listed.why) <= set(listed.measures)
    columns, rows = ([line.name for line in of] for of in (listed.columns, listed.rows))
    assert len(set(columns)) == len(columns)
    assert len(set(rows)) == len(rows)
    assert set(listed.quick.columns) <= set(columns)
    assert set(listed.quick.k) <= set(listed.k)
    assert set(listed.quick.x) <= set(listed.x)
    assert paper_title(listed.paper)
    assert 0 < listed.minutes[0] <= 3
    assert listed.minutes[0] <= listed.minutes[1]


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_printed_is_in_the_papers_table(name):
    listed = EVERY[name]
    table = printed_table(listed.paper, listed.table)
    rows, columns = {row for row, _ in table}, {column for _, column in table}
    if listed.kind == "leaving":
        names = {NAMES[baseline] for baseline in listed.baselines}
        assert {c.printed or c.name for c in listed.columns} == rows
        assert columns <= names | {f"k={k}" for k in listed.k}
        return
    assert {c.printed for c in listed.columns} - {""} <= columns
    for row in listed.rows:
        assert set(row.printed) <= set(listed.measures)
        assert set(row.printed.values()) <= rows
    shown = {
        (row, column.printed or column.name)
        for column in listed.columns
        for one_row in listed.rows
        for row in one_row.printed.values()
    }
    assert set(table) <= shown  # every number of the paper's stands beside ours


BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def read():
    """The text of a paper, from the folder `papers` beside the data sets'."""
    data = Path(os.environ.get("COVEY_DATA") or BESIDE_THE_REPOSITORY)
    folder = data.resolve().parent / "papers"

    def text(name: str) -> str:
        if not (folder / name).is_file():
            pytest.skip(f"the papers' text is not here: {folder / name}")
        return (folder / name).read_text(encoding="utf-8")

    return text


def rows(text: str, table: str) -> dict[str, list[float]]:
    """The rows of a table, tab by tab: its numbers, deviations among them."""
    below = re.split(rf"^{table}: ", text, flags=re.M)[1]
    lines = re.split(r"\n\n", below)[1].splitlines()
    overrides: dict[str, list[float]] = {}
    method = ""
    for name, *cells in (line.split("\t") for line in lines):
        method = name or method
        numbers = [float(n) for c in cells for n in re.findall(r"\d+\.\d+|\d+", c)]
        kind = [c for c in cells[:1] if c.isalpha()]
        overrides[", ".join([method, *kind])] = numbers
    return overrides


@pytest.mark.parametrize("table", ["Table 2", "Table 3", "Table 4", "Table 5"])
def test_unlearnings_tables_are_the_papers_cell_by_cell(read, table):
    text = rows(read("deniable-unlearning.txt"), table)
    known = printed_table("deniable", table)
    assert len({row for row, _ in known}) == 8
    for name in {row for row, _ in known}:
        ours = [
            number
            for (row, _), cell in known.items()
            if row == name
            for number in (cell.value, cell.deviation)
            if number is not None
        ]
        assert ours == text[name]


@pytest.mark.parametrize("paper", ["preprint", "artman25"])
@pytest.mark.parametrize("table", ["Table 1", "Table 2"])
def test_both_texts_print_the_same_ifca_mir_tables(read, paper, table):
    text = rows(read(f"ifca-mir-{paper}.txt").replace("IFCA [9]", "IFCA"), table)
    known = printed_table("ifca-mir", table)
    for name in {row for row, _ in known}:
        ours = [cell.value for (row, _), cell in known.items() if row == name]
        assert ours == text[name]
