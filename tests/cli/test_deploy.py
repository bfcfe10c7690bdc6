"""`covey deploy`: exit codes, one JSON object, one sentence."""

import json


def test_init_and_check_tell_what_they_did(covey, answer, tmp_path):
    (tmp_path / "c.toml").write_text("rounds = 3\n")
    words = ("c.toml", "--out", "fed", "--node", "client-00000", "--port", "8444")
    told = answer("deploy", "init", *words)
    assert told == {
        "folder": str(tmp_path / "fed"),
        "address": "127.0.0.1:8444",
        "nodes": {"client-00000": str(tmp_path / "fed/nodes/client-00000")},
    }
    code, _, err = covey("deploy", "init", *words)
    assert code == 2
    assert "must be new or empty" in " ".join(err.split())

    key = tmp_path / "fed/nodes/client-00000/key"
    key.chmod(0o640)
    code, out, _ = covey("deploy", "check", key.parent, "--json")
    checked = json.loads(out)
    assert (code, checked["valid"]) == (1, False)
    assert {"level": "error", "about": "permissions"}.items() <= next(
        each for each in checked["findings"] if each["about"] == "permissions"
    ).items()
    code, out, _ = covey("deploy", "check", key.parent)
    assert code == 1
    assert len(out.splitlines()) == len(checked["findings"])


def test_a_check_without_errors_is_fine(covey, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("flower-supernode", "flower-superexec", "flwr-clientapp"):
        (programs / name).touch(0o755)
    monkeypatch.setenv("PATH", str(programs))
    (tmp_path / "c.toml").touch()
    code, out, _ = covey("deploy", "init", "c.toml", "--out", "fed", "--node", "client-00001")
    assert code == 0
    code, out, _ = covey("deploy", "check", "fed/nodes/client-00001")
    assert code == 0
    assert out.count("warning ") >= 2


def test_status_of_a_server_that_is_not_there(covey, tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "flwr").touch(0o755)
    (programs / "flwr").write_text(
        '#!/bin/sh\necho \'{"success": false, "error-message": "Away."}\'\n'
    )
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    (tmp_path / "c.toml").touch()
    covey("deploy", "init", "c.toml", "--out", "fed", "--node", "alice")
    code, out, _ = covey("deploy", "status", "fed", "--json")
    told = json.loads(out)
    assert (code, told["problem"] != "", told["nodes"], told["runs"]) == (1, True, [], [])
    assert "Start server.sh" in told["problem"]
    code, out, _ = covey("deploy", "status", "fed")
    assert (code, out.strip()) == (1, told["problem"])


def test_wrong_words_are_one_sentence_and_nothing_is_written(covey, tmp_path):
    (tmp_path / "c.toml").touch()
    for words, said in (
        (("init", "c.toml", "--out", "fed", "--node", "a/b"), "found 'a/b'"),
        (("init", "no.toml", "--out", "fed", "--node", "a"), "no config file no.toml"),
        (("check", "fed"), "deploy.toml says which"),
        (("status", "fed"), "deploy.toml says which"),
    ):
        code, out, err = covey("deploy", *words)
        assert (code, out) == (2, "")
        assert said in " ".join(err.split())
        assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["c.toml"]


def test_a_trial_overwrites_nothing(covey, tmp_path):
    (tmp_path / "tried").mkdir()
    code, out, err = covey("deploy", "try", "--out", "tried")
    assert (code, out) == (2, "")
    assert "must be a new folder" in " ".join(err.split())
    assert list((tmp_path / "tried").iterdir()) == []
