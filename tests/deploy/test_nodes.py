"""What the server says becomes names, or a sentence; `flwr` itself is a fake here."""

import json

import pytest

from covey_flower.nodes import NoAnswerError, online_nodes

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


def test_who_is_online_is_told_by_the_names_of_registered_keys(federate, programs):
    (programs / "flwr").write_text(FLWR)
    folder = federate()
    states = {"2": "offline", "3": "online", "1": "online"}
    listed = [{"node-id": number, "status": state} for number, state in states.items()]
    home = folder / "flwr"
    (home / "nodes.json").write_text(json.dumps({"success": True, "nodes": listed}))
    kept = home / "registered"
    kept.mkdir()
    (kept / "bob.json").write_text('{"success": true, "node-id": 2}')
    (kept / "carol.json").write_text('{"success": true, "node-id": 3}')
    assert online_nodes(folder) == {"carol"}


AWAY = '{"success": false, "error-message": "Using covey\\n\\nIt is away."}'


@pytest.mark.parametrize(
    "script", [f"printf '%s' '{AWAY}'", "echo 'It is away.' >&2; exit 1"], ids=["json", "text"]
)
def test_a_server_that_does_not_answer_is_one_sentence(federate, programs, script):
    (programs / "flwr").write_text(f"#!/bin/sh\n{script}\n")
    folder = federate()
    said = "Expected the server at 127.0.0.1:8443 to answer, found: It is away."
    with pytest.raises(NoAnswerError, match=said):
        online_nodes(folder)
