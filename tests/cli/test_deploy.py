"""`covey deploy`: exit codes, one JSON object, one sentence."""

import json
from pathlib import Path

import pytest

from cli.conftest import needs_flower, refused
from covey.base.as_json import json_of
from covey.cli.answer import lines_of


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that has all that is on the PATH, and Flower's programs that do nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("flower-supernode", "flower-superexec", "flwr-clientapp", "flwr"):
        (folder / name).touch(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@needs_flower
def test_init_and_check_tell_what_they_did(covey, answer, programs, tmp_path):
    (tmp_path / "c.toml").write_text("rounds = 3\n")
    words = ("deploy", "init", "c.toml", "--out", "fed", "--node", "client-00000", "--port", "8444")
    told = answer(*words)
    node = tmp_path / "fed/nodes/client-00000"
    assert told == {
        "folder": str(tmp_path / "fed"),
        "address": "127.0.0.1:8444",
        "nodes": {"client-00000": str(node)},
    }
    refused("must be new or empty", *words)

    code, out, _ = covey("deploy", "check", node)
    assert code == 0
    assert out.count("warning ") >= 2
    (node / "key").chmod(0o640)
    code, out, _ = covey("deploy", "check", node, "--json")
    checked = json.loads(out)
    assert (code, checked["valid"]) == (1, False)
    assert ("error", "permissions") in {(f["level"], f["about"]) for f in checked["findings"]}
    code, out, _ = covey("deploy", "check", node)
    rows = len(checked["findings"]) + len(checked["trust"])
    assert (code, len(out.splitlines())) == (1, rows + 5)


@needs_flower
@pytest.mark.parametrize("kept", [True, False])
def test_what_a_trial_ends_with_is_true(kept):
    """A proof was verified, whether it is still there or not; what is not there is not named."""
    from covey_flower.trial import Tried

    where = {"folder": Path("tried"), "proof": Path("tried/run/proofs/1.json")} if kept else {}
    tried = Tried("carol", proof_holds=True, seconds=9.0, **where)
    lines = list(map(str, lines_of(tried)))
    assert lines[:2] == ["left: carol", "proof holds: yes"]
    assert len(lines) == 3 + len(where)
    assert json_of(tried).keys() == {"left", "proof_holds", "seconds", *where}


@needs_flower
def test_the_list_of_nodes_is_changed_by_two_commands(covey, answer, tmp_path):
    (tmp_path / "c.toml").write_text("rounds = 3\n")
    init = "deploy", "init", "c.toml", "--out", "fed", "--node", "alice", "--node", "bob"
    answer(*init)
    added = answer("deploy", "add", "fed", "carol")
    assert added["nodes"] == ["alice", "bob", "carol"]
    assert "register.sh" in added["next"]
    assert (tmp_path / "fed" / "nodes" / "carol" / "start.sh").is_file()
    removed = answer("deploy", "remove", "fed", "alice")
    assert removed["nodes"] == ["bob", "carol"]
    assert "covey forget RUN alice" in removed["next"]
    refused("list 'alice', found bob, carol:", "deploy", "remove", "fed", "alice")
    refused("each name once", "deploy", "add", "fed", "alice")
