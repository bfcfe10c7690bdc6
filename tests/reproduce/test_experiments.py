"""The experiments as data: every cell can be played, and names what there is."""

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
    asked = form(name, quick=quick)
    assert asked.columns
    assert asked.rows or asked.kind != "federations"
    for column in asked.columns:
        for row in asked.rows or (EVERY_ANSWER,):
            Config.of({**asked.settings_of(column, row), "seed": 1})


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
    asked = EVERY[name]
    (of_name,) = (each for each in asked.columns if each.name == column)
    population = Config.of(asked.settings_of(of_name, (*asked.rows, EVERY_ANSWER)[0])).population
    labels = torch.zeros(population.examples_per_client, dtype=torch.int64)
    dealt = Examples(torch.zeros(len(labels), 1), labels)
    train, _ = reserve("client", dealt, population.holdout)
    assert (population.clients, len(train)) == (clients, members)


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
