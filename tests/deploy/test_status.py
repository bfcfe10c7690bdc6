"""What the server says becomes names and sentences; `flwr` itself is a fake here."""

import json

import pytest

from covey.flower.status import NoAnswerError, Node, Run, nodes_of, status_of

LISTED = {
    "owner-name": "none",
    "created-at": "2026-11-21 10:00:00Z",
    "online-at": "2026-11-21 11:00:00Z",
    "online-elapsed": 1.0,
    "offline-at": "2026-11-21 12:00:00Z",
    "deleted-at": "N/A",
}
RUN = {
    "run-id": "17",
    "fab-id": "covey/coveyapp",
    "status": "finished:completed",
    "status-details": "",
    "elapsed": 3.5,
}

FLWR = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
home = Path(os.environ["FLWR_HOME"])
words = sys.argv[1:]
assert words[-3:] == ["covey", "--format", "json"], words
assert os.environ["FLWR_DISABLE_UPDATE_CHECK"] == "1"
print((home / ("nodes.json" if words[0] == "supernode" else "runs.json")).read_text())
"""


def test_nodes_have_names_and_states(federate, programs):
    (programs / "flwr").write_text(FLWR)
    folder = federate()
    listed = [
        {**LISTED, "node-id": "2", "status": "offline"},
        {**LISTED, "node-id": "3", "status": "online"},
        {**LISTED, "node-id": "1", "status": "registered"},
    ]
    home = folder / "flwr"
    (home / "nodes.json").write_text(json.dumps({"success": True, "nodes": listed}))
    (home / "runs.json").write_text(json.dumps({"success": True, "runs": [RUN]}))
    kept = home / "registered"
    kept.mkdir()
    (kept / "bob.json").write_text('{"success": true, "node-id": 2}')
    (kept / "carol.json").write_text('{"success": true, "node-id": 3}')
    found = status_of(folder)
    assert (found.address, found.problem) == ("127.0.0.1:8443", "")
    assert found.nodes == (
        Node("alice", None, "not registered", None),
        Node("bob", "2", "offline", "2026-11-21 12:00:00Z"),
        Node("carol", "3", "online", "2026-11-21 11:00:00Z"),
        Node(None, "1", "registered", "2026-11-21 10:00:00Z"),
    )
    assert found.runs == (Run("17", "covey/coveyapp", "finished:completed", "", 3.5),)


AWAY = '{"success": false, "error-message": "Using covey\\n\\nIt is away."}'


@pytest.mark.parametrize(
    "script", [f"printf '%s' '{AWAY}'", "echo 'It is away.' >&2; exit 1"], ids=["json", "text"]
)
def test_a_server_that_does_not_answer_is_one_sentence(federate, programs, script):
    (programs / "flwr").write_text(f"#!/bin/sh\n{script}\n")
    folder = federate()
    found = status_of(folder)
    assert "Expected the server at 127.0.0.1:8443 to answer, found: It is away." in found.problem
    assert (found.nodes, found.runs) == ((), ())
    with pytest.raises(NoAnswerError, match="It is away"):
        nodes_of(folder)
