"""FEMNIST in LEAF's layout, written by the tests."""

import json

import numpy as np
import pytest
import torch

from covey import DataError
from data.layouts import read_source, write_idx, write_leaf, written


@pytest.mark.parametrize("place", ["femnist", "femnist/data", "data", "."])
def test_leafs_files_become_images_labels_and_writers(tmp_path, place):
    folder = tmp_path / place
    write_leaf(
        folder / "train" / "a.json",
        f0001_41=written(0, 61, ink=[(0, 0.0), (29, 0.6)]),
        f0002_03=written(10),
    )
    write_leaf(folder / "train" / "b.json", f0003_07=written(5), f0001_41=written(7))
    write_leaf(folder / "test" / "a.json", f0002_03=written(36))
    source = read_source("femnist", tmp_path)
    assert source.num_classes == 62
    assert source.train.inputs.shape == (5, 1, 28, 28)
    assert source.train.labels.tolist() == [0, 61, 10, 5, 7]
    assert source.writers is not None
    assert source.writers.tolist() == [0, 0, 1, 2, 0]
    expected = torch.zeros(5, 1, 28, 28, dtype=torch.uint8)
    expected[0, 0, 0, 0] = 255
    expected[1, 0, 1, 1] = 102  # 0.4 of 255
    assert torch.equal(source.train.inputs, expected)
    assert source.test is not None
    assert source.test.labels.tolist() == [36]
    assert source.notes == ()


def test_without_test_files_there_is_no_test_set_and_a_note(tmp_path):
    write_leaf(tmp_path / "train" / "a.json", ada=written(0))
    source = read_source("femnist", tmp_path)
    assert source.test is None
    assert source.notes == ("The test files of femnist are not there.",)


def test_a_writer_of_nothing_is_fine(tmp_path):
    write_leaf(tmp_path / "train" / "a.json", ada=written(), bob=written(3))
    source = read_source("femnist", tmp_path)
    assert source.writers is not None
    assert (source.train.labels.tolist(), source.writers.tolist()) == ([3], [1])


def test_emnists_files_stand_in_for_leafs_without_writers(tmp_path):
    for part in ("train", "test"):
        for kind, values in (
            ("images-idx3", np.ones((1, 28, 28))),
            ("labels-idx1", np.array([61])),
        ):
            write_idx(tmp_path / f"emnist-byclass-{part}-{kind}-ubyte.gz", values)
    source = read_source("femnist", tmp_path)
    assert (source.name, source.writers, len(source.train)) == ("femnist", None, 1)
    assert "LEAF's files of femnist are not there" in source.notes[0]
    write_leaf(tmp_path / "femnist" / "train" / "a.json", ada=written(0, 1))
    assert len(read_source("femnist", tmp_path).train) == 2


def test_an_empty_folder_lacks_leafs_files_and_says_where_to_put_them(tmp_path):
    with pytest.raises(DataError) as caught:
        read_source("femnist", tmp_path)
    for part in (
        "femnist needs the file train/*.json",
        str(tmp_path / "femnist"),
        str(tmp_path / "femnist" / "data"),
        "https://github.com/TalwalkarLab/leaf",
        "COVEY_DATA",
    ):
        assert part in str(caught.value)


def broken(change):
    user = written(3)
    part = {"users": ["ada"], "num_samples": [1], "user_data": {"ada": user}}
    change(part, user)
    return json.dumps(part)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2", "JSONDecodeError"),
        ("[]", "Make it again with LEAF"),
        (broken(lambda part, _: part.pop("users")), "KeyError: 'users'"),
        (broken(lambda part, _: part["users"].append("bob")), "KeyError: 'bob'"),
        (broken(lambda part, _: part.update(users=[])), "num_samples"),
        (broken(lambda part, _: part.update(num_samples=[2])), "num_samples"),
        (broken(lambda _, user: user["x"][0].pop()), "reshape"),
        (broken(lambda _, user: user["x"].pop()), "reshape"),
        (broken(lambda _, user: user["x"][0].__setitem__(5, 1.01)), "a pixel"),
        (broken(lambda _, user: user["x"][0].__setitem__(5, -1)), "a pixel"),
        (broken(lambda _, user: user["x"][0].__setitem__(5, float("nan"))), "a pixel"),
        (broken(lambda _, user: user.update(y=[62])), "a label is no class"),
        (broken(lambda _, user: user.update(y=[0.5])), "a label is no class"),
        (broken(lambda _, user: user.update(y=["a"])), "a label is no class"),
    ],
    ids=[
        *("truncated", "list", "no-users", "unknown-user", "nobody", "miscounted"),
        *("short-image", "too-few-images", "too-white", "negative", "nan"),
        *("label-62", "half-a-label", "letter"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, text, said):
    path = tmp_path / "train" / "a.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_source("femnist", tmp_path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
