"""Four hospitals' patients, prepared as Fed-Heart-Disease has them."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

import covey
from covey import DataError, Streams
from covey.data.formats import PATIENT, parse_patients
from covey.data.source import PUBLICATIONS, check_data
from covey.settings.clients import population_and_notes

SIZES = {"cleveland": (199, 104), "hungarian": (172, 89), "switzerland": (30, 16), "va": (85, 45)}


def population(folder: Path, **data: object):
    """The clients of these settings."""
    sections = {"data": {"name": "heart-disease", "dir": str(folder), **data}}
    config = covey.Config.of({**sections, "model": {"name": "linear"}, "risk": {"name": "none"}})
    return population_and_notes(config, None, Streams(0))[0]


def line(**values: object) -> str:
    """A patient of whom all is 1 that is not said."""
    return ",".join(str(values.get(name, "1.0")) for name in PATIENT)


def test_the_sizes_are_those_of_the_published_preparation(real_data):
    clients = population(real_data).clients
    assert {c.name: (len(c.train), len(c.holdout)) for c in clients} == SIZES
    for client in clients:
        assert client.train.inputs.shape[1] == 13
        assert set(client.train.labels.tolist()) <= {0, 1}


def test_another_split_has_as_many_other_rows(real_data):
    def rows(split: int) -> list[list[float]]:
        return [
            row
            for c in population(real_data, split=split).clients
            for row in c.train.inputs.tolist()
        ]

    published, again, other = rows(0), rows(0), rows(7)
    assert published == again != other
    assert len(published) == len(other) == 486


def test_kinds_become_columns_and_the_columns_are_the_same_everywhere(real_data):
    first, *rest = population(real_data).clients
    assert {each.train.columns for each in rest} == {first.train.columns}
    assert {"chest_pain_2", "chest_pain_3", "chest_pain_4", "ecg_1", "ecg_2"} < {
        *first.train.columns
    }
    assert {"chest_pain", "ecg", "slope", "vessels", "thal"}.isdisjoint(first.train.columns)


def test_a_patient_by_hand():
    lines = [
        line(age=63, chest_pain="3.0", ecg=2, label=3, slope="?", vessels="?", thal="?"),
        line(age="?"),
        line(age=40, chest_pain=1, ecg=0, label=0),
    ]
    table = parse_patients("\n".join(lines).encode(), Path("here"))
    assert len(table) == 14
    assert table["age"].tolist() == [63, 40]
    assert table["label"].tolist() == [1, 0]
    kinds = ("chest_pain_2", "chest_pain_3", "chest_pain_4", "ecg_1", "ecg_2")
    assert [[int(table[kind][row]) for kind in kinds] for row in (0, 1)] == [
        [0, 1, 0, 0, 1],
        [0, 0, 0, 0, 0],
    ]
    assert all(np.isfinite(column).all() for column in table.values())


@pytest.mark.parametrize("content", [b"", b"1,2,3", line(age="old").encode()])
def test_another_file_is_refused_by_its_name(content: bytes):
    with pytest.raises(DataError, match=r"somewhere must hold 14 numbers or \?"):
        parse_patients(content, Path("somewhere"))


def test_the_example_reaches_what_its_page_says(real_data, tmp_path):
    example = Path(__file__).parents[2] / "examples" / "hospitals.toml"
    settings = covey.load_config(example, [f"data.dir={real_data}"])
    run = covey.run(config=settings, out=tmp_path / "run", progress=False)
    (negatives, positives) = run.summary.confusion["all clients"]
    assert sum(negatives) + sum(positives) == 254
    assert (negatives[0] + positives[1]) / 254 >= 0.78
    assert (run.summary.metrics["auroc"].overall.value or 0) >= 0.86


def test_the_files_are_listed_and_have_no_published_sum(real_data):
    rows = {row.file: row for row in check_data(real_data) if row.source == "heart-disease"}
    assert set(rows) == set(PUBLICATIONS["heart-disease"].files)
    assert {row.state for row in rows.values()} == {"unchecked"}
    assert {row.md5 for row in rows.values()} == {None}


def test_the_page_of_results_shows_the_record():
    docs = Path(__file__).parents[2] / "docs"
    section = (docs / "results.md").read_text("utf-8").partition("## Four hospitals")[2]
    shown = [re.findall(r"(?<![\d.])\.\d{3}", row) for row in re.findall(r"^\| .*", section, re.M)]
    with (docs / "results" / "hospitals.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            names = ("cleveland", "hungarian", "switzerland", "va", "all", "auc")
            figures = [row[name] for name in (*names, "splits", "low", "high")]
            assert [each.removeprefix("0") for each in figures if each] in shown
