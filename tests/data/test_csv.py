"""Tables of clients as CSV: in a folder, and at a node."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import DataError
from covey.data.arrays import examples_of, read_client
from covey.data.sets import NpzFolder
from covey.data.spreadsheet import read_columns
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
    found, expected = read_client(path), examples_of("ada", columns)
    assert torch.equal(found.inputs, expected.inputs)
    assert torch.equal(found.labels, expected.labels)
    assert found.columns == expected.columns


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
def test_what_is_no_table_of_numbers_is_refused_by_its_place(
    tmp_path: Path, content: str, said: str
):
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
