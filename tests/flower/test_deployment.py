"""The folder of `covey deploy init` starts a real federation: TLS, keys and two nodes."""

import json
import re
import shutil
import tomllib

import pytest

from covey.flower.deployment import NodeKey
from covey.flower.operation import NoAnswerError, nodes_of, status_of
from flower.deployment import Deployment, invited

pytestmark = pytest.mark.slow

CONFIG = 'rounds = 1\n[model]\nname = "mlp"\n'

SERVER_APP = """
import json
import time

from flwr.app import Message, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < context.run_config["nodes"]:
        time.sleep(0.1)
    asked = [
        Message(RecordDict(), dst_node_id=node_id, message_type="query", ttl=60.0)
        for node_id in grid.get_node_ids()
    ]
    told = [dict(each.content["told"]) for each in grid.send_and_receive(asked)]
    told.sort(key=lambda each: each["file"])
    print("TOLD", json.dumps({"nodes": told, "run": dict(context.run_config)}))
"""

CLIENT_APP = """
import tomllib
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message, context):
    file = context.node_config["file"]
    name = tomllib.loads(Path(file).read_text())["name"]
    told = ConfigRecord({"name": name, "file": file})
    return Message(RecordDict({"told": told}), reply_to=message)
"""


@pytest.fixture
def federation(tmp_path):
    """A folder whose name needs quoting, with an app that asks every node once."""
    inner = tmp_path / "a federation"
    inner.mkdir()
    folder = invited(inner, CONFIG, ["alice", "bob"])
    (folder / "app/coveyapp/server_app.py").write_text(SERVER_APP)
    (folder / "app/coveyapp/client_app.py").write_text(CLIENT_APP)
    return folder


def told_in(text: str) -> dict[str, object]:
    found = re.search(r"TOLD (\{.*\})", text)
    assert found, text
    return json.loads(found[1])


def test_a_federation_with_tls_and_keys_answers_and_survives(federation):
    with Deployment(federation) as deployment:
        told = told_in(deployment.submit().wait())
        assert told["nodes"] == [
            {"name": name, "file": str(federation / "nodes" / name / "node.toml")}
            for name in ("alice", "bob")
        ]
        app = tomllib.loads((federation / "app/pyproject.toml").read_text())
        assert told["run"] == app["tool"]["flwr"]["app"]["config"]
        found = status_of(federation)
        assert [(node.name, node.state) for node in found.nodes] == [
            ("alice", "online"),
            ("bob", "online"),
        ]
        assert [run.state for run in found.runs] == ["finished:completed"]

        deployment.kill_node("bob")
        deployment.kill_superlink()
        with pytest.raises(NoAnswerError, match="Start server"):
            nodes_of(federation)
        deployment.restart_superlink()
        deployment.start_node("bob")
        deployment.wait_online("bob")
        assert len(deployment.running()) > len(deployment.processes) / 2
    assert deployment.running() == []


def test_a_node_whose_key_is_not_registered_is_refused(federation):
    mallory = federation / "nodes" / "mallory"
    shutil.copytree(federation / "nodes" / "alice", mallory)
    with Deployment(federation, ["alice"]) as deployment:
        (mallory / "key").write_bytes(NodeKey.new("mallory").private)
        refused = deployment.start_node("mallory")
        assert refused.wait(60) == 1
        assert "Exit Code: 305" in deployment.log("mallory")
        assert deployment.online() == {"alice"}
    assert deployment.running() == []
