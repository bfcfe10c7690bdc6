"""Files of publishers and people: read, or refused in a sentence."""

import gzip
import json
import pickle
import struct
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import ChecksumError, DataError, Examples
from covey.data.examples import Client, Preference
from covey.data.formats import parse_batch, parse_idx, parse_image
from covey.data.sets import Mnist, NpzFolder
from covey.data.source import PUBLICATIONS, check_data, data_folder
from data.layouts import encoded, face, read_source, write_celeba, write_idx, write_leaf, written

IMAGES = "train-images-idx3-ubyte.gz"


@pytest.fixture
def no_settings(monkeypatch):
    monkeypatch.delenv("COVEY_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return monkeypatch


def test_the_data_folder_is_the_configured_one_then_the_variable_then_the_cache(no_settings):
    assert data_folder("") == Path.home() / ".cache" / "covey"
    no_settings.setenv("XDG_CACHE_HOME", "/caches")
    assert data_folder("") == Path("/caches/covey")
    no_settings.setenv("COVEY_DATA", "/sets")
    assert data_folder("") == Path("/sets")
    assert data_folder("~/mine") == Path.home() / "mine"


@pytest.mark.parametrize("place", [f"mnist/{IMAGES}", IMAGES, "mnist/train-images-idx3-ubyte"])
def test_a_file_is_found_in_its_folder_or_beside_it_zipped_or_not(tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    assert [*Mnist.publication.find(IMAGES, tmp_path)] == [path]


def test_one_flipped_bit_of_a_published_file_is_noticed(real_data, tmp_path):
    name = "t10k-labels-idx1-ubyte.gz"
    content = bytearray((real_data / "mnist" / name).read_bytes())
    path = tmp_path / name
    path.write_bytes(content)
    assert Mnist.publication.read(name, tmp_path) == (content, path)
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ChecksumError, match=f"must have MD5 {Mnist.publication.md5(name)}, found "
    ) as e:
        Mnist.publication.read(name, tmp_path)
    assert str(path) in str(e.value)


def test_checking_tells_ok_missing_corrupt_and_unchecked_apart(tmp_path, real_data):
    labels = "t10k-labels-idx1-ubyte.gz"
    own = tmp_path / "mnist"
    own.mkdir()
    (own / labels).write_bytes((real_data / "mnist" / labels).read_bytes())
    (own / IMAGES).write_bytes(b"broken download")
    (own / "t10k-images-idx3-ubyte").write_bytes(b"unzipped")
    rows = [row for row in check_data(tmp_path) if row.source == "mnist"]
    assert {row.file: row.state for row in rows} == {
        IMAGES: "corrupt",
        labels: "ok",
        "t10k-images-idx3-ubyte.gz": "unchecked",
        "train-labels-idx1-ubyte.gz": "missing",
    }
    assert all(row.url.startswith("https://") for row in rows)


def test_whoever_lacks_a_file_is_told_its_name_address_and_checksum(tmp_path):
    for publication in PUBLICATIONS.values():
        for name in publication.files:
            with pytest.raises(DataError) as refused:
                publication.read(name, tmp_path)
            sum_ = publication.md5(name)
            messages = (
                f"needs {name}, found none",
                f"by its MD5 {sum_}," if sum_ else "",
                publication.url,
            )
            for part in (*messages, str(tmp_path), "COVEY_DATA", "data.dir"):
                assert part in str(refused.value)


def read_clients(folder: Path) -> dict[str, Examples]:
    request: Any = SimpleNamespace(folder=folder, label="")
    return NpzFolder().clients(request)


@given(
    count=st.integers(1, 5),
    height=st.integers(4, 6),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
)
def test_images_come_back_with_channels_second_however_they_lay(count, height, channels, seed):
    shape = (count, channels, height, 7)
    x = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    y = np.arange(count)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder, "ada.npz"), x=x, y=y)
        np.savez(Path(folder, "bob.npz"), x=np.moveaxis(x, 1, -1), y=y)
        clients = read_clients(Path(folder))
    assert list(clients) == ["ada", "bob"]
    for examples in clients.values():
        assert np.array_equal(examples.inputs.numpy(), x)
        assert examples.labels.tolist() == y.tolist()


IDX_PATH = Path("some-images-idx3-ubyte.gz")
IDX_IMAGES = b"\0\0\x08\x03" + struct.pack(">3I", 2, 2, 1) + bytes([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found nothing"),
        (b"\0\0\x0d\x03" + IDX_IMAGES[4:], "found 00000d03"),
        (IDX_IMAGES[:8], "must have a whole header"),
        (IDX_IMAGES[:-1], "2 x 2 x 1 bytes after its header, found 3"),
        (IDX_IMAGES + b"\0", "2 x 2 x 1 bytes after its header, found 5"),
        (gzip.compress(IDX_IMAGES, mtime=0)[:-9], "must be whole gzip"),
        (b"\x1f\x8b and no more", "must be whole gzip"),
    ],
)
def test_a_corrupt_file_is_refused_by_name(content, message):
    with pytest.raises(DataError, match=message) as caught:
        parse_idx(content, IDX_PATH, dimensions=3)
    assert str(IDX_PATH) in str(caught.value)


@pytest.mark.parametrize("length", range(len(IDX_IMAGES)))
def test_no_truncation_goes_unnoticed(length):
    with pytest.raises(DataError):
        parse_idx(IDX_IMAGES[:length], IDX_PATH, dimensions=3)


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


CIFAR_PATH = Path("data_batch_9")
PIXELS = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)


def batch(data: np.ndarray = PIXELS, labels=(3, 9)):
    content = {b"data": data, b"labels": list(labels)}
    return pickle.dumps(content, protocol=4)


def test_rows_become_images_of_three_colour_planes():
    examples = parse_batch(batch(), CIFAR_PATH)
    assert examples.inputs.shape == (2, 3, 32, 32)
    assert examples.inputs[1, 2, 0, 5] == PIXELS[1, 2 * 1024 + 5]
    assert examples.labels.tolist() == [3, 9]


class RunsACommand:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path):
    marker = tmp_path / "was run"
    content = pickle.dumps({b"data": RunsACommand(marker)}, protocol=2)
    with pytest.raises(DataError, match=r"data_batch_9 .* asks for ") as caught:
        parse_batch(content, CIFAR_PATH)
    assert "not run" in str(caught.value)
    assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"no pickle at all",
        batch()[:-100],
        pickle.dumps({b"labels": [1]}),
        batch(labels=[1, 10]),
        batch(data=PIXELS.astype(np.int32)),
        batch(data=np.asfortranarray(PIXELS)),
    ],
)
def test_what_is_no_batch_is_refused_by_name(content):
    with pytest.raises(DataError, match="data_batch_9 must be a CIFAR-10 python batch"):
        parse_batch(content, CIFAR_PATH)


CELEBA_PATH = Path("somewhere.jpg")


@pytest.mark.parametrize("place", ["celeba", "."])
def test_celebas_files_become_images_with_forty_labels(tmp_path, place):
    write_celeba(tmp_path / place)
    source = read_source("celeba", tmp_path)
    assert source.test is not None
    assert source.train.inputs.shape == (2, 3, 32, 32)
    assert source.test.inputs.shape == (1, 3, 32, 32)
    assert source.train.labels.tolist() == [
        [int(k == number) for k in range(40)] for number in (0, 2)
    ]
    assert source.test.labels.nonzero().tolist() == [[0, 3]]
    assert (source.num_classes, source.notes) == (40, ())


def test_the_middle_square_is_kept_and_made_small():
    exact = parse_image(encoded(face(), "PNG"), CELEBA_PATH)
    assert exact.dtype == torch.uint8
    assert exact[0].max() == 0  # nothing of the red above and below
    assert exact[2].max() == 0
    assert exact[1, :, :15].max() == 0
    assert exact[1, :, 17:].min() == 255
    stored = parse_image(encoded(face()), CELEBA_PATH)
    assert (stored.int() - exact.int()).abs().float().mean() < 3  # JPEG loses a little


def write_mnist(folder, train_labels=(7, 1)):
    """Unzipped, so that no published sum stands in the way of made-up images."""
    images = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    for part, labels in {"train": train_labels, "t10k": (2, 5)}.items():
        write_idx(folder / f"{part}-images-idx3-ubyte", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte", np.array(labels))
    return images


def test_digits_come_with_scikit_learn(tmp_path):
    source = read_source("digits", tmp_path)
    assert source.train.inputs.shape == (1797, 1, 8, 8)
    # The first row of the first digit, 0 0 5 13 9 1 0 0 of 16.
    row = [0, 0, 80, 207, 143, 16, 0, 0]
    assert source.train.inputs[0, 0, 0].tolist() == row
    assert source.train.inputs.max() == 255
    assert source.train.labels.unique().tolist() == list(range(source.num_classes))
    assert source.test is None


def test_idx_files_become_images_of_one_channel(tmp_path):
    images = write_mnist(tmp_path)
    source = read_source("mnist", tmp_path)
    assert np.array_equal(source.train.inputs[:, 0].numpy(), images)
    assert source.train.labels.tolist() == [7, 1]
    assert source.test is not None
    assert source.test.labels.tolist() == [2, 5]


def test_labels_must_match_the_images(tmp_path):
    write_mnist(tmp_path, train_labels=(1, 2, 3))
    with pytest.raises(DataError, match=r"train-labels.* must hold 2 labels, found 3"):
        read_source("mnist", tmp_path)


def test_made_up_bytes_under_a_published_name_are_refused(tmp_path):
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", np.zeros((2, 28, 28)))
    with pytest.raises(ChecksumError, match="must have MD5"):
        read_source("mnist", tmp_path)


def test_real_mnist_is_mnist(real_data):
    source = read_source("mnist", real_data)
    assert source.train.labels.bincount().tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    mean = source.train.inputs.float().mean() / 255
    assert float(mean) == pytest.approx(0.1307, abs=1e-4)


def test_real_cifar10_uses_the_batches_that_are_there(real_data, tmp_path):
    for name in ("data_batch_2", "test_batch"):
        (tmp_path / name).symlink_to(real_data / "cifar-10-batches-py" / name)
    source = read_source("cifar10", tmp_path)
    assert source.train.inputs.shape == (10_000, 3, 32, 32)
    assert source.test is not None
    assert source.test.labels.bincount().tolist() == [1_000] * 10
    # The published channel means of the data set; one batch is within 0.01 of them.
    means = source.train.inputs.float().mean(dim=(0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.01)
    (note,) = source.notes
    assert "data_batch_1, data_batch_3, data_batch_4, data_batch_5" in note


SOME_IMAGES = Examples(
    torch.tensor([0, 51, 255], dtype=torch.uint8).view(3, 1, 1, 1), torch.tensor([7, 8, 9])
)


def test_nothing_prints_data_or_a_clients_name():
    client = Client("ada", "h-0123", None, SOME_IMAGES, SOME_IMAGES, Preference(0.5, 0.6))
    assert repr(client) == "Client(h-0123)"
    assert repr(SOME_IMAGES) == "Examples((3, 1, 1, 1), torch.uint8)"
