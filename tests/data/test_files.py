from pathlib import Path

import pytest

from covey import ChecksumError, DataError
from covey.data.sets import Mnist
from covey.data.source import PUBLICATIONS, check_data, data_folder

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
    for each in PUBLICATIONS.values():
        for name in each.files:
            with pytest.raises(DataError) as refused:
                each.read(name, tmp_path)
            sum_ = each.md5(name)
            told = (f"needs {name}, found none", f"by its MD5 {sum_}," if sum_ else "", each.url)
            for part in (*told, str(tmp_path), "COVEY_DATA", "data.dir"):
                assert part in str(refused.value)
