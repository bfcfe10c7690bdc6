"""Tables of clients as CSV, and four hospitals' patients."""

import csv
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import DataError, Streams
from covey.data.arrays import examples_of, read_client
from covey.data.formats import PATIENT, parse_patients
from covey.data.sets import NpzFolder
from covey.data.source import PUBLICATIONS, check_data
from covey.data.spreadsheet import read_columns
from covey.settings.clients import population_and_notes
from covey_flower.client import Node

PLAIN = "age,chol,label\n63,233.5,1\n\n41,204,0\n"
WRITTEN = {
    "as it is": PLAIN,
    "a mark of byte order": f"\ufeff{PLAIN}",
    "semicolons and commas": "age;chol;label\n63;233,5;1\n41;204;0\n",
    "tabs": "age\tchol\tlabel\r\n63\t233.5\t1\r\n41\t204\t0\r\n",
    "blanks and quotes": '"age", chol , label\n63, "233.5", 1\n41,204,0\n',
}


def written(folder: Path, content: str, name: str = "ada.csv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize("how", WRITTEN)
def test_a_table_is_read_however_it_was_written(tmp_path: Path, how: str):
    examples = read_client(written(tmp_path, WRITTEN[how]))
    assert examples.inputs.tolist() == [[63, 233.5], [41, 204]]
    assert examples.labels.tolist() == [1, 0]
    assert examples.columns == ("age", "chol")
    assert (examples.inputs.dtype, examples.labels.dtype) == (torch.float32, torch.int64)


@given(
    rows=st.lists(
        st.tuples(st.integers(-(2**53), 2**53), st.floats(-1e6, 1e6), st.integers(0, 5)), min_size=1
    )
)
def test_a_file_is_the_dict_of_its_columns(tmp_path_factory: pytest.TempPathFactory, rows: Any):
    columns = dict(zip(("whole", "part", "y"), map(np.array, zip(*rows, strict=True)), strict=True))
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    path = written(tmp_path_factory.mktemp("table"), "\n".join(lines))
    examples, expected = read_client(path), examples_of("ada", columns)
    assert torch.equal(examples.inputs, expected.inputs)
    assert torch.equal(examples.labels, expected.labels)
    assert examples.columns == expected.columns


def test_one_column_of_features_is_a_table_too(tmp_path: Path):
    assert read_client(written(tmp_path, "age,y\n6,1\n4,0\n")).inputs.tolist() == [[6], [4]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("age,label\n63,1\n,0\n", r"found '' in line 3, column 'age': fill in or drop"),
        ("age,label\n?,1\n", r"found '\?' in line 2, column 'age'"),
        ("sex,label\nf,1\n", r"number words, the same at all clients"),
        ("age,label\n63,yes\n", r"found 'yes' in line 2, column 'label'"),
        ("age,label\n63,1,2\n", r"2 cells per line, as its first, found 3 in line 2"),
        ("age,age,label\n1,2,0\n", "a name per column first"),
        ("age,,label\n1,2,0\n", "a name per column first"),
        ("", "one column of labels"),
        ("age,label\nnan,1\n", "must be finite"),
        ("age,chol\n1,2\n", r"one column of labels.* set data.label"),
        ("label\n1\n", "input columns"),
        ("age,label\n", "must bring an example"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_by_its_place(tmp_path, content, said):
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=said) as refused:
        read_client(path)
    assert str(path) in str(refused.value)


def test_what_is_no_text_is_refused(tmp_path: Path):
    path = tmp_path / "ada.csv"
    path.write_bytes(b"\xff\xfe\x00age")
    with pytest.raises(DataError, match="must be a table as CSV"):
        read_columns(path)
    with pytest.raises(DataError, match="must be a table as CSV"):
        read_columns(tmp_path)


def test_a_folder_may_hold_files_of_both_kinds(tmp_path: Path):
    written(tmp_path, PLAIN.replace("label", "sick"))
    np.savez(tmp_path / "bob.npz", x=np.zeros((2, 2), np.float32), y=[0, 1])
    request: Any = SimpleNamespace(folder=tmp_path, label="sick")
    assert list(NpzFolder().clients(request)) == ["ada", "bob"]
    for name, kind in (("ada", "csv"), ("bob", "npz"), ("eve", "npz")):
        assert NpzFolder.file_of(name, tmp_path) == tmp_path / f"{name}.{kind}"
    written(tmp_path, PLAIN, "bob.csv")
    with pytest.raises(DataError, match=r"bob\.csv must be its client's only file"):
        NpzFolder().clients(request)


def test_a_node_reads_its_own_table_by_the_labels_of_the_settings(tmp_path: Path):
    written(tmp_path, "age,chol,sick\n63,233.5,1\n41,204,0\n29,190,0\n")
    settings = '[data]\nname = "npz"\nlabel = "sick"\nstandardise = "client"\n'
    (tmp_path / "covey.toml").write_text(f'{settings}[model]\nname = "linear"\n', encoding="utf-8")
    node = tmp_path / "node.toml"
    node.write_text('name = "ada"\nseed = 1\nholdout = 0.0\ndata = "ada.csv"\n', encoding="utf-8")
    train = Node(node).member(2).client.train
    assert train.columns == ("age", "chol")
    assert train.inputs.mean(dim=0).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert sorted(train.labels.tolist()) == [0, 0, 1]


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
    assert {client.train.columns for client in rest} == {first.train.columns}
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
            assert [figure.removeprefix("0") for figure in figures if figure] in shown
