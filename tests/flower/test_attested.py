"""An organisation counts for a key that the operator registered, and for nobody's word."""

import pytest
from flwr.proto.node_pb2 import NodeInfo

from covey import ConfigError
from covey.base.events import AnonymitySetsFormed, OrganisationsAttested
from covey.flower.apps import Federated
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from flower.conftest import all_of, reasons, settings_with

NAMES = tuple(f"client-{index:05}" for index in range(6))
WHOSE = {name: "s" if i < 3 else name for i, name in enumerate(NAMES)}
HIDING = {
    "name": "anonymity-sets",
    "min_anonymity": 3,
    "deniability_threshold": 1,
    "min_organisations": 3,
}


@pytest.fixture
def federation(build, tmp_path):
    path = tmp_path / "whose.toml"
    path.write_text("".join(f'{n} = "{o}"\n' for n, o in WHOSE.items()))
    population = {"thresholds": [0.5, 0.6], "organisations": str(path)}
    hiding = {"aggregation": HIDING, "population": population, "risk": {"name": "none"}}
    found = build(settings_with(rounds=1, method={"name": "fedavg"}, **hiding), clients=range(6))
    for i, name in enumerate(NAMES):
        pem = f"-----BEGIN PUBLIC KEY-----\n{i}\n".encode()
        found.identities[100 + i] = NodeInfo(node_id=100 + i, public_key=pem, name=name)
    return found


def test_sets_are_of_three_organisations(federation):
    result = federation.play(nodes=6)
    assert reasons(result) == []
    (formed,) = all_of(AnonymitySetsFormed, result)
    (attested,) = all_of(OrganisationsAttested, result)
    assert sum(map(len, formed.sets)) == 6
    assert all(len(set(numbers)) >= 3 for numbers in attested.organisations)
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        assert set(ledger.organisations().values()) == set(WHOSE.values())


def test_a_name_with_an_organisation_needs_its_registered_key(federation):
    federation.identities[105].name = ""
    result = federation.play(nodes=5)
    assert NAMES[5] not in result.names
    (reason,) = reasons(result)
    assert reason.startswith("its organisation is attested for a key")


def test_nodes_without_keys_attest_nothing(federation):
    federated = Federated(federation.path / "covey.toml", binds_names=False)
    with pytest.raises(ConfigError, match="found nodes without"):
        federated.start(federation.grid(), federation.path / "run", 6)
