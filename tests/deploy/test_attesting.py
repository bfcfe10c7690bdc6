"""The operator says whose client each node is; the node's own folder does not."""

import tomllib
from pathlib import Path

import pytest

from covey import ConfigError
from covey.data.population import read_organisations
from covey.flower.deployment import Plan, write_federation
from covey.flower.folder_check import check

MERGE = "[aggregation]\nname = 'anonymity-sets'\nmin_anonymity = 2\ndeniability_threshold = 1\n"
TWO = f"{MERGE}min_organisations = 2\n"


@pytest.fixture
def attest(tmp_path, now):
    def made(text: str, **whose: str) -> Path:
        config = tmp_path / "config.toml"
        config.write_text(text)
        plan = Plan(("alice", "bob"), organisations=whose)
        return write_federation(config, tmp_path / "fed", plan, now)

    return made


def test_the_server_has_a_file_and_no_node_has(attest):
    folder = attest(TWO, alice="A & A", bob="B")
    path = folder / "organisations.csv"
    assert read_organisations(path) == {"alice": "A & A", "bob": "B"}
    assert path.stat().st_mode & 0o777 == 0o600
    told = tomllib.loads((folder / "covey.toml").read_text())
    assert told["population"]["organisations"] == str(path)
    for each in (folder / "nodes").rglob("*"):
        assert not each.is_file() or b"A & A" not in each.read_bytes()
    theirs = tomllib.loads((folder / "nodes" / "bob" / "covey.toml").read_text())
    assert theirs["population"]["organisations"] == ""


def test_a_file_that_the_settings_name_is_taken_over(attest, tmp_path):
    (tmp_path / "whose.toml").write_text('alice = "A"\nbob = "B"\ncarol = "C"')
    folder = attest(f"{TWO}[population]\norganisations = '{tmp_path}/whose.toml'\n")
    assert read_organisations(folder / "organisations.csv") == {"alice": "A", "bob": "B"}


@pytest.mark.parametrize(
    ("whose", "expected"),
    [
        ({"alice": "A"}, "found nothing of 'bob'.* Say --organisation bob=WHOSE"),
        ({"alice": "A", "bob": "A"}, "Expected 2 organisations, .* found 1"),
        ({"alice": "A", "bob": "B", "carol": "C"}, "a --node, found 'carol'"),
        ({"alice": "A", "bob": ""}, "takes NAME=ORGANISATION"),
    ],
)
def test_what_cannot_be_attested_is_refused(attest, whose, expected):
    with pytest.raises(ConfigError, match=expected):
        attest(TWO, **whose)


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("rows", "expected"),
    [("alice,A\n", "nothing of 'bob'"), (None, "organisations.csv is neither")],
)
def test_a_check_looks_whether_every_node_is_attested(attest, now, rows, expected):
    folder = attest(TWO, alice="A", bob="B")
    path = folder / "organisations.csv"
    path.unlink() if rows is None else path.write_text(f"name,organisation\n{rows}")
    (found,) = [each for each in check(folder, now) if each.about == "organisations"]
    assert found.level == "error"
    assert expected in found.detail
