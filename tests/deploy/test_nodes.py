"""What the server says becomes names and sentences; `flwr` itself is a fake here."""

import json

import pytest

from covey_flower.nodes import NoAnswerError, Node, nodes_of

LISTED = {
    "owner-name": "none",
    "created-at": "2026-11-21 10:00:00Z",
    "online-at": "2026-11-21 11:00:00Z",
    "online-elapsed": 1.0,
    "offline-at": "2026-11-21 12:00:00Z",
    "deleted-at": "N/A",
}

FLWR = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path
home = Path(os.environ["FLWR_HOME"])
words = sys.argv[1:]
assert words[-3:] == ["covey", "--format", "json"], words
assert os.environ["FLWR_DISABLE_UPDATE_CHECK"] == "1"
assert words[0] == "supernode"
print((home / "nodes.json").read_text())
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
    kept = home / "registered"
    kept.mkdir()
    (kept / "bob.json").write_text('{"success": true, "node-id": 2}')
    (kept / "carol.json").write_text('{"success": true, "node-id": 3}')
    assert nodes_of(folder) == (
        Node("alice", None, "not registered", None),
        Node("bob", "2", "offline", "2026-11-21 12:00:00Z"),
        Node("carol", "3", "online", "2026-11-21 11:00:00Z"),
        Node(None, "1", "registered", "2026-11-21 10:00:00Z"),
    )


AWAY = '{"success": false, "error-message": "Using covey\\n\\nIt is away."}'


@pytest.mark.parametrize(
    "script", [f"printf '%s' '{AWAY}'", "echo 'It is away.' >&2; exit 1"], ids=["json", "text"]
)
def test_a_server_that_does_not_answer_is_one_sentence(federate, programs, script):
    (programs / "flwr").write_text(f"#!/bin/sh\n{script}\n")
    folder = federate()
    said = "Expected the server at 127.0.0.1:8443 to answer, found: It is away."
    with pytest.raises(NoAnswerError, match=said):
        nodes_of(folder)
