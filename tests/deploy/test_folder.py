"""The folder of a federation: settings, keys, scripts, and nothing that is too much."""

import json
import os
import re
import ssl
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from covey import ConfigError
from covey_flower.deployment import SWITCHES, DeploymentPlan, write_federation
from deploy.conftest import NOW
from recorded import contents


def toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def called(script: Path, *words: str) -> dict[str, Any]:
    """How a script calls the program that it becomes."""
    done = subprocess.run([script, *words], capture_output=True, text=True, check=True, cwd="/")
    return json.loads(done.stdout)


IFCA, SEEDED = "[method]\nname = 'ifca'\n", "[secrets]\nsource = 'seeded'\n"


@pytest.mark.parametrize(
    ("settings_of_node", "expected"),
    [
        ("[engine]\nname = 'reference'\n", {"engine.name": "flower", "secrets.source": "os"}),
        (SEEDED, {"secrets.source": "seeded"}),
        # updates are aggregated robustly unless the settings say how
        ("rounds = 7\n", {"rounds": 7, "aggregation.name": "geometric-median"}),
        ("[aggregation]\nweights = 'examples'\n", {"aggregation.name": "mean"}),
        ("[privacy]\nclient_clip = 1.0\nclient_noise = 1.0\n", {"aggregation.name": "mean"}),
        # clusters that a majority holds are not entered at will
        (IFCA, {"method.max_newcomers": 1.0}),
        (IFCA + "max_newcomers = 0.0\n", {"method.max_newcomers": 0.0}),
        (IFCA + "[aggregation]\nname = 'mean'\n", {"method.max_newcomers": 0.0}),
        (IFCA + "[train]\nparticipation = 0.5\n", {"method.max_newcomers": 0.0}),
        ("[method]\nname = 'fedavg'\n", {"method.max_newcomers": None}),
    ],
)
def test_what_is_not_set_is_safe_and_what_is_set_stays(federate, settings_of_node, expected):
    settings = toml(federate(settings_of_node) / "covey.toml")
    for name, value in expected.items():
        entry: Any = settings
        for key in name.split("."):
            entry = entry.get(key)
        assert entry == value, name


RIDGE = """
[model]
name = "linear-head"
[method]
name = "ridge"
num_clusters = 1
[risk]
name = "federated"
"""


@pytest.mark.parametrize(
    ("settings", "secure", "sentence"),
    [
        (RIDGE, True, "at least 3 clients"),
        (RIDGE + "[privacy]\nsecure_sums = false\n", False, "by itself"),
        (RIDGE.replace("clusters = 1", "clusters = 2"), False, "by itself"),
    ],
)
def test_the_server_sees_sums_alone_wherever_the_settings_allow_it(
    tmp_path, settings, secure, sentence
):
    config = tmp_path / "config.toml"
    config.write_text(settings)
    plan = DeploymentPlan(tuple(f"node-{i}" for i in range(4)))
    folder = write_federation(config, tmp_path / "fed", plan, NOW)
    for path in (folder / "covey.toml", folder / "nodes" / "node-1" / "covey.toml"):
        assert toml(path)["privacy"]["secure_sums"] is secure
    assert sentence in " ".join((folder / "README.md").read_text().split())
    peers = [(folder / "nodes" / n / "peers").read_bytes() for n in plan.nodes]
    keys = [(folder / "nodes" / n / "key.pub").read_bytes() for n in plan.nodes]
    assert set(peers) == {b"".join(keys)}


def test_an_empty_folder_is_taken_and_another_never_overwritten(federate, tmp_path):
    (tmp_path / "a federation").mkdir()
    folder = federate()
    before = contents(folder)
    with pytest.raises(ConfigError, match="must be new or empty"):
        federate()
    assert contents(folder) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [folder.name, "config.toml"]


def test_what_is_private_is_private_whatever_the_umask(federate):
    before = os.umask(0)
    try:
        folder = federate()
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in [folder, *folder.rglob("*")]
    }
    for name, mode in modes.items():
        last = Path(name).name
        if (folder / name).is_dir() or last.endswith(".sh"):
            assert mode == 0o700, name
        elif last in ("key", "ca.key", "server.key", "node.toml"):
            assert mode == 0o600, name
        else:
            assert mode == 0o644, name


def test_a_node_gets_what_is_its_own_and_nothing_of_the_server(federate):
    folder = federate(
        "[ledger]\nurl = 'env:COVEY_LEDGER_URL'\n[secrets]\nkey_path = '/keys/signing.pem'\n"
    )
    ours = toml(folder / "covey.toml")
    seeds, keys = set(), set()
    for name in ("alice", "bob"):
        node = folder / "nodes" / name
        written = toml(node / "node.toml")
        assert written["name"] == name
        assert written["risk_threshold"] == 0.6
        assert [written[key] for key in ("report_violation", "report_accuracy", "leave")] == [
            False
        ] * 3
        assert 0 <= written["seed"] < 2**63
        seeds.add(written["seed"])
        keys.add((node / "key").read_bytes())
        theirs = toml(node / "covey.toml")
        assert theirs == {
            **{key: value for key, value in ours.items() if key != "ledger"},
            "secrets": {"source": "os"},
        }
        assert (node / "ca.crt").read_bytes() == (folder / "certificates/ca.crt").read_bytes()
        for path in node.iterdir():
            assert b"password" not in path.read_bytes()
    assert len(seeds) == len(keys) == 2


def handshake(folder: Path, host: str) -> None:
    """Let a client that trusts the folder's authority greet the folder's server."""
    trusting = ssl.create_default_context(cafile=folder / "certificates/ca.crt")
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(folder / "certificates/server.pem", folder / "certificates/server.key")
    server_side, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, server_side, server_hostname=host)
    server = serving.wrap_bio(server_side, back, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    client.getpeercert()


@pytest.mark.parametrize("host", ["fed.example.org", "::1"])
def test_the_server_is_believed_under_its_names_alone(federate, host):
    folder = federate(host=host)
    for name in (host, "localhost", "127.0.0.1"):
        handshake(folder, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(folder, "other.example.org")


def test_the_scripts_call_flower_with_every_switch(federate, programs, read_by_flower):
    folder = federate(host="fed.example.org")
    server = called(folder / "server.sh", "--more")
    certificates = folder / "certificates"
    assert " ".join(server["words"]) == (
        f"--host 0.0.0.0 --port 8443 --ssl-ca-certfile {certificates}/ca.crt --ssl-certfile "
        f"{certificates}/server.pem --ssl-keyfile {certificates}/server.key "
        "--enable-supernode-auth --disable-runtime-dependency-installation --more"
    )
    bob = folder / "nodes" / "bob"
    node = called(bob / "start.sh")
    config = node["words"].index("--node-config")
    assert " ".join(node["words"][:config]) == (
        f"--superlink fed.example.org:8443 --root-certificates {bob}/ca.crt "
        f"--auth-supernode-private-key {bob}/key --host 127.0.0.1 --port 9095"
    )
    assert read_by_flower(node["words"][config + 1]) == {"file": str(bob / "node.toml")}
    cli = called(folder / "flwr.sh", "list", "covey")
    assert cli["words"] == ["list", "covey"]
    for call, home in ((server, folder), (node, bob), (cli, folder)):
        environment = call["environment"]
        assert {name: environment[name] for name in SWITCHES} == SWITCHES
        assert environment["FLWR_HOME"] == str(home / "flwr")


def test_every_file_is_whole(federate):
    """No template is left unfilled, and each file is in its own language."""
    folder = federate()
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_text()
        assert "{{" not in text, path
        assert "{%" not in text, path
        if path.suffix == ".toml":
            toml(path)
        if path.suffix == ".sh":
            subprocess.run(["sh", "-n", path], check=True)
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert set(services) == {"superlink", "register", "node-1", "node-2"}


# what cannot become a folder, a certificate or an address


EVERY = "0.0.0.0"  # noqa: S104 - looked at, not listened on


@pytest.mark.parametrize(
    ("host", "address", "bind"),
    [
        ("127.0.0.1", "127.0.0.1:8000", "127.0.0.1"),
        ("::1", "[::1]:8000", "::1"),
        ("192.0.2.7", "192.0.2.7:8000", EVERY),
        ("fed.example.org", "fed.example.org:8000", EVERY),
    ],
)
def test_where_the_server_is_and_listens(host, address, bind):
    plan = DeploymentPlan(("alice",), host)
    assert (plan.address, plan.bind) == (address, bind)
    assert plan.is_local == (bind not in (EVERY, "::"))


@pytest.mark.parametrize(
    ("nodes", "host", "port", "said"),
    [
        ((), "localhost", 8000, "At least one node"),
        (("a", "b", "a"), "localhost", 8000, "each name once, found a, b, a"),
        (("../a",), "localhost", 8000, "found '../a'"),
        (("-a",), "localhost", 8000, "found '-a'"),
        (("a",), "https://x", 8000, "found 'https://x'"),
        (("a",), "$(id)", 8000, "found '$(id)'"),
        (("a",), "localhost", 65536, "found 65536"),
    ],
)
def test_what_is_refused(nodes, host, port, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        DeploymentPlan(nodes, host, port)


def test_the_nodes_of_one_machine_have_ports_of_their_own():
    plan = DeploymentPlan(("alice", "bob", "carol"))
    assert [plan.node_port(name) for name in plan.nodes] == [9094, 9095, 9096]
