"""FEMNIST in LEAF's layout, written by the tests."""

import json

import pytest
import torch

from covey import DataError
from data.layouts import read_source, write_leaf, written


@pytest.mark.parametrize("place", ["femnist/data", "."])
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


def broken(change):
    user = written(3)
    part = {"users": ["ada"], "num_samples": [1], "user_data": {"ada": user}}
    change(part, user)
    return json.dumps(part)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2", "JSONDecodeError"),
        (broken(lambda part, _: part.pop("users")), "KeyError: 'users'"),
        (broken(lambda part, _: part.update(num_samples=[2])), "num_samples"),
        (broken(lambda _, user: user["x"][0].pop()), "reshape"),
        (broken(lambda _, user: user["x"][0].__setitem__(5, float("nan"))), "a pixel"),
        (broken(lambda _, user: user.update(y=[62])), "a label is no class"),
    ],
    ids=["truncated", "no-users", "miscounted", "short-image", "nan", "label-62"],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, text, said):
    path = tmp_path / "train" / "a.json"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_source("femnist", tmp_path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
