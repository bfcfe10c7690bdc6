"""`covey deploy`: exit codes, one JSON object, one sentence."""

import json

import pytest

from cli.conftest import needs_flower, refused


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
