"""Of whom the sums were that a client opened: kept for all nodes that have the same records."""

from pathlib import Path

import pytest

from covey_flower.masked import OpenedSum, OpenedSums, SumGuard


def test_what_one_node_opened_every_node_with_its_records_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    opened = OpenedSum("sums", "ab" * 32, "one", ("one", "two", "three"))
    SumGuard.of(tmp_path / "one", "ab" * 32).add(opened)
    for folder, records, known in (
        ("one", "ab" * 32, (opened,)),
        ("one", "cd" * 32, (opened,)),  # its own folder holds all that it opened
        ("another", "ab" * 32, (opened,)),
        ("another", "cd" * 32, ()),
    ):
        with SumGuard.of(tmp_path / folder, records).locked() as found:
            assert found.sums == known, (folder, records)


@pytest.mark.parametrize(
    ("what", "records", "name", "left", "like"),
    [
        ("sums", "r", "a", "", [{"a", "b", "c"}]),
        ("sums", "r", "renamed", "", [{"renamed", "b", "c"}]),  # the same records
        ("sums", "other", "a", "", [{"r", "b", "c"}]),  # with others it is another client
        ("sums", "r", "a", "c", [{"a", "b"}]),
        ("counts", "r", "a", "", []),
    ],
)
def test_an_earlier_sum_is_over_its_clients_but_for_those_who_left(what, records, name, left, like):
    opened = OpenedSums((OpenedSum("sums", "r", "a", ("a", "b", "c")),))
    assert list(opened.like(what, records, name, left)) == like
