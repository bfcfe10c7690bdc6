"""An organisation counts for a key that the operator registered, and for nobody's word."""

from pathlib import Path

import pytest
from flwr.proto.node_pb2 import NodeInfo

from covey import ConfigError, Examples
from covey.base.events import AnonymitySetsFormed, OrganisationsAttested
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from flower.inprocess import InProcessGrid
from flower.liars import NAMES, Ten, reasons, told

WHOSE = {name: "s" if i < 4 else name for i, name in enumerate(NAMES)}
HIDING = {
    "name": "anonymity-sets",
    "min_anonymity": 4,
    "deniability_threshold": 2,
    "min_organisations": 3,
}


def info(node: int, name: str = "") -> NodeInfo:
    pem = f"-----BEGIN PUBLIC KEY-----\n{node}\n".encode()
    return NodeInfo(node_id=node, public_key=pem, name=name or None)


@pytest.fixture
def ten(tmp_path: Path, digits: Examples, monkeypatch: pytest.MonkeyPatch) -> Ten:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    path = tmp_path / "whose.toml"
    path.write_text("".join(f'{n} = "{o}"\n' for n, o in WHOSE.items()))
    ten = Ten(tmp_path, digits)
    population = {"organisations": str(path)}
    ten.write(rounds=1, aggregation=HIDING, population=population)
    return ten


def registered(ten: Ten, *but: str) -> InProcessGrid:
    grid = ten.grid()
    for i, name in enumerate(NAMES):
        grid.identities[100 + i] = info(100 + i, "" if name in but else name)
    ten.grid = lambda: grid  # type: ignore[method-assign]
    return grid


def test_sets_are_of_three_organisations(ten: Ten):
    registered(ten)
    result = ten.play()
    assert reasons(result) == []
    (formed,) = [e for e in told(result) if isinstance(e, AnonymitySetsFormed)]
    (attested,) = [e for e in told(result) if isinstance(e, OrganisationsAttested)]
    assert sum(map(len, formed.sets)) == 10
    assert all(len(set(numbers)) >= 3 for numbers in attested.organisations)
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        assert set(ledger.organisations().values()) == set(WHOSE.values())


def test_a_name_with_an_organisation_needs_its_registered_key(ten: Ten):
    registered(ten, NAMES[9])
    result = ten.play(nodes=9)
    assert NAMES[9] not in result.names
    (reason,) = reasons(result)
    assert reason.startswith("its organisation is attested for a key")


def test_who_has_no_organisation_is_not_let_in(ten: Ten):
    registered(ten)
    path = ten.path / "whose.toml"
    path.write_text("".join(f'{n} = "{WHOSE[n]}"\n' for n in NAMES[:9]))
    result = ten.play(nodes=9)
    assert NAMES[9] not in result.names
    (reason,) = reasons(result)
    assert reason.startswith("its organisation must be attested")


def test_nodes_without_keys_attest_nothing(ten: Ten):
    with pytest.raises(ConfigError, match="found nodes without"):
        ten.play(binds_names=False)
