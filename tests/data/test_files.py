from pathlib import Path

import pytest

from covey import ChecksumError, DataError
from covey.data.sets import Cifar10, Mnist
from covey.data.source import check_data, data_folder

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


def test_a_missing_file_is_named_with_where_to_look_and_where_to_get_it(tmp_path):
    with pytest.raises(DataError) as caught:
        Cifar10.publication.read("test_batch", tmp_path)
    for part in ("test_batch", str(tmp_path), "cs.toronto.edu", "COVEY_DATA", "data.dir"):
        assert part in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_data_error(tmp_path, monkeypatch):
    def refuse(path, mode):
        raise PermissionError("not yours")

    (tmp_path / "test_batch").write_bytes(b"")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="test_batch must be readable: not yours"):
        Cifar10.publication.read("test_batch", tmp_path)


def test_one_flipped_bit_of_a_published_file_is_noticed(real_data, tmp_path):
    name = "t10k-labels-idx1-ubyte.gz"
    content = bytearray((real_data / "mnist" / name).read_bytes())
    path = tmp_path / name
    path.write_bytes(content)
    assert Mnist.publication.read(name, tmp_path) == (content, path)
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(ChecksumError, match=f"MD5 {Mnist.publication.md5(name)}, found MD5 ") as e:
        Mnist.publication.read(name, tmp_path)
    assert str(path) in str(e.value)


def test_a_file_without_a_published_sum_is_read_unchecked(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(b"anything")
    assert Mnist.publication.read(IMAGES, tmp_path) == (b"anything", path)


def test_checking_knows_the_sets_of_many_files(tmp_path):
    for name in ("femnist/data/train/a.json", "celeba/img_align_celeba/000001.jpg"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"not looked into")
    rows = {(row.source, row.file): row.state for row in check_data(tmp_path)}
    assert rows["femnist", "train/*.json"] == "unchecked"
    assert rows["femnist", "test/*.json"] == "missing"
    assert rows["celeba", "img_align_celeba/*.jpg"] == "unchecked"
    assert rows["celeba", "list_eval_partition.txt"] == "missing"


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
