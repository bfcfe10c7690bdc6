"""Leaving by the command line: plans, answers, proofs, keys and what is held on a client."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import refused
from covey import load
from covey.base.names import ANSWERS
from covey.base.signature import signing_key
from covey.cli.app import main
from recorded import assert_nowhere, contents

LEAVER, OTHER = "client-00003", "client-00001"


@pytest.fixture
def folder(copy) -> Path:
    """A run that hides updates in sets, to be changed."""
    return copy("hidden")


@pytest.fixture(scope="module")
def denied(runs, ask, tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """A run that denied a client, only to be read, and what was printed."""
    folder = shutil.copytree(runs / "hidden", tmp_path_factory.mktemp("denied") / "run")
    return folder, ask("forget", folder, LEAVER, "--answer", "deny")


class Terminal(StringIO):
    """What a person sees and types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("lines", "is_done"), [("\n", False), ("forget me\nretrain\nn\n", False), ("deny\ny\n", True)]
)
def test_on_a_terminal_nothing_is_done_that_was_not_confirmed(
    monkeypatch, folder, lines, *, is_done
):
    before, out = contents(folder), Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", Terminal(lines))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "argv", ["covey", "forget", str(folder), LEAVER])
        with pytest.raises(SystemExit) as ended:
            main()
    said = out.getvalue()
    assert (ended.value.code or 0) == 1 - is_done
    assert said.startswith(f"{LEAVER}: deny\n")
    assert "A denial removes nothing from the model" in said
    assert said.rstrip().endswith("Nothing was done.") is not is_done
    assert (contents(folder) == before) is not is_done
    assert load(folder).summary.left == ({"deny": 1} if is_done else {})


def test_a_plan_changes_nothing_and_says_what_each_answer_costs(answer, covey, folder):
    before = contents(folder)
    first, second = answer("forget", folder, LEAVER, OTHER, "--plan", "--answer", "auto")["plans"]
    code, out, _ = covey("forget", folder, LEAVER, OTHER, "--plan")
    assert contents(folder) == before
    assert (code, out.startswith(f"{LEAVER}: deny\n")) == (0, True)
    assert "nothing is removed from the model" in " ".join(out.split())
    assert [first["client"], second["client"]] == [LEAVER, OTHER]
    # with x = 3, a set of four can spare one: who comes second is not denied
    for plan, chosen, cheapest in ((first, "deny", "deny"), (second, "retrain", "roll_back")):
        assert plan["chosen"]["answer"] == chosen
        options = {option["answer"]: option for option in plan["options"]}
        assert tuple(options) == ANSWERS
        possible = [name for name, option in options.items() if not option["reason"]]
        assert possible == [cheapest, "retrain", "stop"]
        assert options["deny"]["seconds"] == options["deny"]["bytes_deleted"] == 0
        assert options["retrain"]["rounds_replayed"] == 2
        states = sum(
            len(content) for name, content in before.items() if name.startswith("checkpoints")
        )
        assert options["retrain"]["bytes_deleted"] == states


def test_what_a_denial_says_and_names(denied, runs):
    folder, printed = denied
    (one,) = printed["answers"]
    assert one["client"] == LEAVER
    assert one["answer"] == "deny"
    assert (one["rounds_replayed"], one["model_changed"]) == (0, False)
    assert {"denials_left", "next_forces_rollback"} <= set(printed["budget"])
    assert_nowhere(folder, LEAVER, one["salt"])
    proof = Path(one["proof"])
    signed = proof.read_text() + proof.with_suffix(".html").read_text()
    for name, handle in load(runs / "hidden").names.items():
        assert name not in signed
        assert handle not in signed


def test_who_left_and_who_never_came_get_the_same_sentence(covey, denied):
    for words in (("explain", denied[0]), ("forget", "--answer", "auto", denied[0])):
        left, never = (covey(*words, name) for name in (LEAVER, "client-00099"))
        assert left[0] == never[0] == 2
        assert left[2] == never[2].replace("client-00099", LEAVER)


@pytest.mark.slow
def test_a_salt_is_shown_until_it_is_acknowledged_although_the_report_fails(covey, folder):
    (folder / "figures").write_text("in the way")
    _, out, err = covey("forget", folder, LEAVER, "--answer", "deny")
    (salt,) = re.findall("requester: ([0-9a-f]{32})", out)
    assert f"{LEAVER}: request recorded, receipt" in err.replace("\n", "")
    assert salt in err  # before anything was done
    (left,) = json.loads(covey("forget", folder, "--again", "--json")[1])["unacknowledged"]
    assert (left["salt"], left["answer"]) == (salt, "deny")
    code, out, _ = covey("forget", folder, "--received", left["request"])
    assert (code, out.splitlines()[1:]) == (0, ["unacknowledged: none"])


def test_keys_are_listed_replaced_and_revoked(covey, answer, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    signing_key()
    (known,) = answer("ledger", "keys")["keys"]
    assert covey("ledger", "keys", "--rotate")[0] == 0
    assert len(answer("ledger", "keys")["keys"]) == 2
    code, out, _ = covey("ledger", "keys", "--revoke", known["fingerprint"])
    assert (code, "revoked" in out) == (0, True)


def checked(covey, proof: object, *words: object) -> tuple[int, dict[str, Any]]:
    """Verify a proof: the exit code, and what each check found."""
    code, out, _ = covey("verify", proof, *words, "--json")
    printed = json.loads(out)
    return code, {check["name"]: check["ok"] for check in printed["checks"]} | {
        "valid": printed["valid"]
    }


@pytest.mark.slow
def test_a_proof_holds_against_the_ledger_the_key_and_the_requester(covey, denied, tmp_path):
    folder, printed = denied
    (one,) = printed["answers"]
    key = Path(os.environ["XDG_CONFIG_HOME"]) / "covey" / "signing-key.pub.pem"
    words = ("--key", key, "--mine", LEAVER, one["salt"])
    code, checks = checked(covey, one["proof"], *words, "--ledger", folder)
    assert (code, all(checks.values())) == (0, True)
    # later events do not matter: the proof's head is an ancestor
    later = shutil.copytree(folder, tmp_path / "later")
    assert covey("forget", later, OTHER, "--answer", "stop")[0] == 0
    assert checked(covey, one["proof"], *words, "--ledger", later)[0] == 0
    code, checks = checked(covey, one["proof"])
    assert (code, checks["valid"], checks["trust"]) == (0, True, None)


def test_a_proof_fails_against_what_it_is_not_about(covey, denied, runs):
    (one,) = denied[1]["answers"]
    for words, name in (
        (("--ledger", runs / "other"), "ledger"),
        (("--mine", OTHER, one["salt"]), "subject"),
        (("--mine", LEAVER, "00" * 16), "subject"),
    ):
        code, checks = checked(covey, one["proof"], *words)
        assert (code, checks[name]) == (1, False)
    for said, words in (
        ("missing.json", ["missing.json"]),
        ("hexadecimal", [one["proof"], "--mine", LEAVER, "no hexadecimal"]),
        ("missing", [one["proof"], "--ledger", "missing"]),
        ("missing.pem", [one["proof"], "--key", "missing.pem"]),
    ):
        refused(said, "verify", *words)


@pytest.mark.slow
def test_a_retraining_leaves_no_old_model_here_and_says_who_holds_one(folder, covey, tmp_path):
    covey("export", folder, "--cluster", "0")
    to_a_clinic = ("--out", tmp_path / "sent", "--recipient", "A Clinic")
    covey("export", folder, "--client", LEAVER, *to_a_clinic)
    code, out, err = covey("forget", folder, LEAVER, "--answer", "retrain")
    assert code == 0, err
    assert "\ndeleted: model of cluster 0 in exports/cluster-0.safetensors" in out
    assert f"\nto be deleted by you: model of cluster 0 in {tmp_path}/sent" in out
    assert "\n  to notify (GDPR Art. 19): A Clinic" in out
    assert not list(folder.glob("exports/*"))
    assert (tmp_path / "sent").is_file()
    (proof,) = folder.glob("proofs/*.json")
    facts = json.loads(proof.read_text())["copies"]
    assert [(event["fate"], event["recipient"], event["notify"]) for event in facts] == [
        ("deleted", None, False),
        ("outside", "A Clinic", True),
    ]
    page = proof.with_suffix(".html").read_text()
    assert "A Clinic" in page
    assert str(tmp_path) not in page
    assert covey("verify", proof, "--ledger", folder)[0] == 0
    assert_nowhere(folder, LEAVER)


def test_what_is_held_on_a_client_is_a_page_to_print_and_lists_its_places(
    folder, answer, covey, tmp_path
):
    page = tmp_path / "held.html"
    printed = answer("explain", folder, LEAVER, "--page", page)
    assert printed["rounds_trained"] == printed["states_that_depend_on_it"] == [0, 1]
    assert [anonymity_set["round"] for anonymity_set in printed["anonymity_sets"]] == [0, 1]
    assert all(4 <= anonymity_set["members"] <= 7 for anonymity_set in printed["anonymity_sets"])
    assert printed["raw_updates_stored"] == []
    assert {place["kind"] for place in printed["places"]} == {"ledger", "model", "secret"}
    shown = html.unescape(page.read_text())
    assert LEAVER in shown
    assert OTHER not in shown
    assert all(place["path"] in shown for place in printed["places"])
    assert not re.search(r"https?:|<script|<link|<img", shown)
    # the page is itself a place, and for nobody but its client
    lines = covey("explain", folder, LEAVER)[1].splitlines()
    assert any(str(page) in line and "a page: explanation" in line for line in lines)
    assert str(page) not in covey("explain", folder, OTHER)[1]
    assert page.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_explain_needs_no_right_to_write(folder):
    """Root has every right, so that it is taken from the command where tests run as root."""
    drop = ["--bounding-set=-dac_override,-dac_read_search,-fowner"]
    program = "from covey.cli.app import main; main()"
    words = [sys.executable, "-c", program, "explain", str(folder), OTHER, "--json"]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv takes the rights of root away, and is not installed")
        words = ["setpriv", *drop, *words]
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        for path in paths:
            path.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds_trained"] == [0, 1]
