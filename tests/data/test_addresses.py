"""Where missing data files are said to be, and how to tell that they are the right ones."""

import pytest

from covey import DataError
from covey.data.source import PUBLICATIONS, check_data

WITH_A_SUM = [
    (each.source, name) for each in PUBLICATIONS.values() for name in each.files if each.md5(name)
]


@pytest.mark.parametrize(("source", "name"), WITH_A_SUM)
def test_whoever_lacks_a_file_is_told_its_name_address_and_checksum(tmp_path, source, name):
    with pytest.raises(DataError) as refused:
        PUBLICATIONS[source].read(name, tmp_path)
    told = str(refused.value)
    assert f"the file {name} (MD5 {PUBLICATIONS[source].md5(name)})" in told
    assert PUBLICATIONS[source].url in told


def test_a_file_of_mnist_has_an_address_of_its_own_at_a_mirror(tmp_path):
    """The publisher's own address has answered 403 since 2024."""
    with pytest.raises(DataError) as refused:
        PUBLICATIONS["mnist"].read("t10k-labels-idx1-ubyte.gz", tmp_path)
    mirror = "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz"
    assert mirror in str(refused.value)
    assert not any("yann.lecun.com" in each.url for each in check_data(tmp_path))


def test_a_file_without_a_published_checksum_is_told_without_one(tmp_path):
    with pytest.raises(DataError) as refused:
        PUBLICATIONS["femnist"].read("train/*.json", tmp_path)
    assert "MD5" not in str(refused.value)


def test_sums_are_known_of_three_sets():
    assert {source for source, _ in WITH_A_SUM} == {"mnist", "fashion-mnist", "cifar10"}


def test_rows_state_the_published_checksums(tmp_path):
    told = {(each.source, each.file): each.md5 for each in check_data(tmp_path)}
    assert {key: told[key] for key in WITH_A_SUM} == {
        (source, name): PUBLICATIONS[source].md5(name) for source, name in WITH_A_SUM
    }
    assert all(sum_ is None for key, sum_ in told.items() if key not in WITH_A_SUM)
