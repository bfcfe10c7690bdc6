"""What people pass as a client's data: every kind says the same, or is refused by name."""

from collections.abc import Callable, Mapping
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from covey import DataError, Examples
from covey.data.clients import clients_of

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
Y = np.array([0, 1, 1, 0])
ITEMS = [(x, int(y)) for x, y in zip(X, Y, strict=True)]
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": Y})


class Items(Dataset[Any]):
    """A map-style data set over whatever it is given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, at: int) -> Any:
        return self.items[at]


NAMED = datasets.Features(
    {
        "pixels": datasets.List(datasets.Value("float32")),
        "digit": datasets.ClassLabel(names=["no", "yes"]),
    }
)


def hugging_face(**columns: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns)


class Partitioner:
    """What of a partitioner of flwr-datasets is looked at."""

    def __init__(self, ids: dict[int, Any], parts: list[Any]) -> None:
        self.partition_id_to_natural_id = ids
        self.num_partitions = len(parts)
        self.parts = parts

    def load_partition(self, index: int) -> Any:
        return self.parts[index]


def only(clients: object, label: str = "") -> Examples:
    held = clients_of({"ada": clients}, label)["ada"]
    assert held.test is None
    return held.train


T = torch.from_numpy
SAME: Mapping[str, Any] = {
    "tensors": (T(X), T(Y)),
    "numpy": (X.astype(np.float64), Y.astype(np.uint8)),
    "frame": FRAME,
    "columns": {"x": X, "y": Y},
    "Subset": Subset(Items(ITEMS + ITEMS), range(4)),
    "items": ITEMS,
    "dicts": Items([{"pixels": x, "target": y} for x, y in ITEMS]),
    "Hugging Face": datasets.Dataset.from_dict({"pixels": X, "digit": Y}, features=NAMED),
    "Hugging Face columns": hugging_face(a=X[:, 0], b=X[:, 1], c=X[:, 2], label=Y),
    "Hugging Face tensors": hugging_face(x=X, y=Y).with_format("torch"),
    "Hugging Face arrays": hugging_face(x=X, y=Y).with_format("numpy"),
    "Hugging Face, some of it": hugging_face(x=[*X, *X], y=[*Y, *Y]).select(range(4)),
}


@pytest.mark.parametrize("data", SAME.values(), ids=list(SAME))
def test_every_kind_says_the_same(data: Any):
    examples = only(data)
    assert (examples.inputs.dtype, examples.labels.dtype) == (torch.float32, torch.int64)
    assert torch.equal(examples.inputs, T(X))
    assert torch.equal(examples.labels, T(Y))


@pytest.mark.parametrize(
    "data",
    [
        [(X, Y), (X[:2], Y[:2])],
        (FRAME, FRAME[:2]),
        {"train": FRAME, "test": Items(ITEMS[:2])},
        datasets.DatasetDict(
            {"train": hugging_face(x=X, y=Y), "test": hugging_face(x=X[:2], y=Y[:2])}
        ),
    ],
)
def test_a_pair_of_sets_is_train_and_test(data: Any):
    held = clients_of({"ada": data})["ada"]
    assert held.test is not None
    assert torch.equal(held.train.inputs, T(X))
    assert torch.equal(held.test.inputs, T(X[:2]))
    assert held.test.labels.tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64])
def test_whole_numbers_stay_whole_to_the_digit(dtype: type[np.integer[Any]]):
    ids = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (4, 5), dtype=dtype)
    examples = only((ids, Y))
    assert examples.inputs.dtype == torch.int64
    assert examples.inputs.tolist() == ids.tolist()


def test_pictures_are_images_with_their_channels_second():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    items = Items([(Image.fromarray(pixel), 0) for pixel in pixels])
    images = only(items).inputs
    assert images.dtype == torch.uint8
    assert np.array_equal(images.numpy(), np.moveaxis(pixels, 3, 1))


def test_pictures_of_hugging_face_are_images_of_their_class():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": NAMED["digit"]})
    columns = {"image": [Image.fromarray(picture) for picture in pixels], "label": Y}
    examples = only(datasets.Dataset.from_dict(columns, features=features))
    assert np.array_equal(examples.inputs.numpy(), np.moveaxis(pixels, 3, 1))
    assert examples.labels.tolist() == Y.tolist()


def test_a_partitioners_natural_ids_are_names():
    clients = clients_of(Partitioner({0: "ward-a", 1: 7}, [ITEMS, ITEMS[:2]]))
    assert {name: len(client.train) for name, client in clients.items()} == {"ward-a": 4, "7": 2}
    assert list(clients_of(Partitioner({}, [ITEMS]))) == ["client-00000"]


class Breaks(Items):
    def __getitem__(self, at: int) -> Any:
        raise KeyError("no such row")


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield ITEMS[0]


def ragged() -> Any:
    return Items([(np.zeros(3), 0), (np.zeros(4), 0)])


CYCLE: Any = Partitioner({}, [])
CYCLE.load_partition = None
CYCLE.num_partitions = 1

BAD_CLIENT: Mapping[str, tuple[Any, str]] = {
    "DataLoader": (DataLoader(Items(ITEMS)), r"pass its \.dataset"),
    "one tensor": (T(X), "one tensor of shape"),
    "a number": (3, "found a int"),
    "three arrays": ((X, Y, Y), "found 3 values"),
    "lengths": ((X, Y[:3]), "as many labels"),
    "no examples": ((X[:0], Y[:0]), "found none: leave it out"),
    "NaN": ((np.full((4, 3), np.nan), Y), "inputs must be finite"),
    "texts": ((np.array(["a", "b"]), Y[:2]), "must be numbers, found <U1"),
    "sparse": ((T(X).to_sparse(), T(Y)), "dense tensor of real numbers"),
    "ragged lists": (([[1.0], [1.0, 2.0]], [0, 1]), "numbers of one shape"),
    "odd images": ((np.zeros((4, 3), np.uint8), Y), "channels second or last"),
    "no label column": (FRAME.drop(columns="label"), "found none among a, b.*data.label"),
    "a column of texts": (FRAME.assign(d="x"), "column 'd' must be numbers"),
    "a hole in Int64": (
        FRAME.assign(d=pd.array([1, None, 2, 3], dtype="Int64")),
        "column 'd' must be finite",
    ),
    "items of three": (Items([(1, 2, 3)]), r"item 0 .*\(input, label\) or a dict"),
    "ragged items": (ragged(), r"must be numbers of one shape, found \(3,\) and \(4,\)"),
    "streamed from Hugging Face": (
        hugging_face(x=X, y=Y).to_iterable_dataset(),
        "found a IterableDataset",
    ),
    "two classes of Hugging Face": (
        datasets.Dataset.from_dict(
            {"a": Y, "b": Y}, features=datasets.Features(dict.fromkeys("ab", NAMED["digit"]))
        ),
        "found none among a, b.*data.label",
    ),
    "its own error": (Breaks(ITEMS), "item 0 of your Breaks raised KeyError"),
    "no length": (Streamed(), "found a Streamed|length"),
    "unlike test": (((X, Y), (X[:, :2], Y)), r"ada \(test\) must be .*, as ada, found"),
}


@pytest.mark.parametrize(("data", "said"), BAD_CLIENT.values(), ids=list(BAD_CLIENT))
def test_bad_data_are_refused_with_client_and_remedy(data: Any, said: str):
    with pytest.raises(DataError, match=f"(?s){said}") as caught:
        clients_of({"ada": data})
    assert "ada" in str(caught.value)
    assert str(caught.value).count(": ") >= 1  # what is wrong, and what to do


BAD_CLIENTS: Mapping[str, tuple[Callable[[], Any], str]] = {
    "a data set": (lambda: Items(ITEMS), r"found a Items.*\[data\]"),
    "nobody": (list, "at least one client"),
    "a number": (lambda: 3, "found a int"),
    "same name": (lambda: {1: ITEMS, "1": ITEMS}, "different texts or numbers"),
    "unlike kinds": (
        lambda: {"ada": (X, Y), "bob": (np.ones((4, 3), int), Y)},
        "bob must be floating-point .*, as ada, found whole numbers",
    ),
    "a partitioner's error": (lambda: CYCLE, "Partitioner raised TypeError"),
}


@pytest.mark.parametrize(("data", "said"), BAD_CLIENTS.values(), ids=list(BAD_CLIENTS))
def test_bad_sets_of_clients_are_refused_with_a_remedy(data: Callable[[], Any], said: str):
    with pytest.raises(DataError, match=f"(?s){said}"):
        clients_of(data())
