"""What `covey forget` is asked for, by options or on a terminal, and who comes back."""

import json
import re
import shutil
import sys
from io import StringIO
from pathlib import Path

import pytest

from covey import Config, load, run
from covey.cli.app import main
from covey.unlearning.signature import signing_key
from runtime.witnesses import Witness, serving

LEAVER, OTHER = "client-00003", "client-00001"
SETTINGS = {
    "rounds": 2,
    "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
    "aggregation": {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3},
    "engine": {"name": "reference"},
}


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hidden") / "run"
    run(config=Config.of(SETTINGS), out=folder)
    return folder


@pytest.fixture
def folder(hidden, tmp_path):
    return shutil.copytree(hidden, tmp_path / "run")


def contents(folder: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def sentence(err: str) -> str:
    return " ".join(err.split())


class Terminal(StringIO):
    """What a person sees and types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(monkeypatch):
    """Run a command on a terminal: (exit code, what it printed)."""

    def answered(lines: str, *words: object) -> tuple[int, str]:
        out = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(lines))
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "argv", ["covey", *map(str, words)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), out.getvalue()

    return answered


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([LEAVER], "neither --answer nor --basis is given"),
        ([LEAVER, "--json"], "neither --answer nor --basis is given"),
        ([LEAVER, "--basis", "gdpr"], "basis takes erasure, withdrawal, objection"),
        (
            [LEAVER, "--basis", "erasure", "--answer", "deny"],
            "a denial removes nothing from the model",
        ),
        ([LEAVER, "--basis", "restriction", "--answer", "retrain"], "deletes the client's name"),
        ([LEAVER, OTHER, "--salt", "00", "--answer", "retrain"], "found 2 names"),
        ([LEAVER, "--salt", "0g", "--answer", "retrain"], "A salt is hexadecimal"),
        ([LEAVER, "--salt", "00" * 16, "--answer", "retrain"], "knows no client 'client-00003'"),
    ],
)
def test_what_cannot_be_asked_changes_nothing(covey, folder, words, said):
    before = contents(folder)
    code, out, err = covey("forget", folder, *words)
    assert code == 2
    assert ("error" in json.loads(out)) if "--json" in words else out == ""
    assert said in sentence(err)
    assert contents(folder) == before


def test_a_plan_needs_no_option_and_says_what_a_denial_does_not(covey, folder):
    before = contents(folder)
    code, out, _ = covey("forget", folder, LEAVER, OTHER, "--plan")
    assert code == 0
    assert "nothing is removed from the model" in sentence(out)
    assert contents(folder) == before


@pytest.mark.parametrize("lines", ["\n", "nothing\n", "forget me\nretrain\nn\n"])
def test_on_a_terminal_nothing_is_done_that_was_not_confirmed(typed, folder, lines):
    before = contents(folder)
    code, out = typed(lines, "forget", folder, LEAVER)
    assert code == 1
    assert out.startswith(f"{LEAVER}: deny\n")
    assert "A denial removes nothing from the model" in out
    assert out.rstrip().endswith("Nothing was done.")
    assert contents(folder) == before


def test_on_a_terminal_an_answer_is_chosen_in_view_of_the_plan(typed, folder):
    code, out = typed("deny\ny\n", "forget", folder, LEAVER)
    assert code == 0
    assert "deny, retrain, stop, auto, nothing" in out
    question = out[out.index("client-00003: deny. ") :]
    assert "A denial removes nothing from the model" in question
    assert "the model is unchanged: nothing was removed from it" in question
    assert load(folder).summary.left == {"deny": 1}


def test_who_asks_for_erasure_is_retrained_and_several_at_once(answer, folder):
    before = load(folder).summary.model_hash
    told = answer("forget", folder, LEAVER, OTHER, "--basis", "erasure")
    assert [(each["client"], each["answer"], each["basis"]) for each in told["answers"]] == [
        (LEAVER, "retrain", "erasure"),
        (OTHER, "retrain", "erasure"),
    ]
    assert {each["sealed_record_kept"] for each in told["answers"]} == {False}
    assert len({each["model_hash"] for each in told["answers"]} | {before}) == 2


def test_a_denied_client_comes_back_with_its_salt(answer, covey, folder):
    (first,) = answer("forget", folder, LEAVER, "--basis", "withdrawal")["answers"]
    assert (first["answer"], first["sealed_record_kept"]) == ("deny", True)
    page = Path(first["proof"]).with_suffix(".html").read_text()
    assert "(basis: withdrawal)" in page
    assert "A sealed record is kept" in page
    back = ("forget", folder, LEAVER, "--salt", first["salt"])
    (plan,) = answer(*back, "--basis", "erasure", "--plan")["plans"]
    assert (plan["chosen"]["answer"], plan["basis"]) == ("retrain", "erasure")
    assert [each["answer"] for each in plan["options"] if not each["reason"]] == ["retrain"]
    code, out, _ = covey(*back, "--answer", "retrain")
    assert code == 0
    assert "2 rounds played again" in out
    (salt,) = re.findall("requester: ([0-9a-f]{32})", out)
    proofs = {json.loads(p.read_text())["answer"] for p in folder.glob("proofs/*.json")}
    assert proofs == {"deny", "retrain"}
    assert salt != first["salt"]
    code, _, err = covey(*back, "--answer", "retrain")
    assert code == 2
    assert "comes back with --salt" in sentence(err)


def test_a_salt_is_shown_again_until_it_is_acknowledged(covey, folder):
    code, out, err = covey("forget", folder, LEAVER, "--answer", "deny")
    assert code == 0
    (salt,) = re.findall("requester: ([0-9a-f]{32})", out)
    assert f"{LEAVER}: asked, receipt" in err.replace("\n", "")
    assert salt in err  # before anything was done
    code, out, _ = covey("forget", folder, "--again", "--json")
    (left,) = json.loads(out)["unacknowledged"]
    assert (left["salt"], left["answer"]) == (salt, "deny")
    assert covey("forget", folder, "--received", "nothing")[0] == 2
    code, out, _ = covey("forget", folder, "--received", left["request"])
    assert (code, out.splitlines()[1:]) == (0, ["unacknowledged: none"])
    code, _, err = covey("forget", folder)
    assert code == 2
    assert "no client is named" in err


def test_a_salt_is_told_although_the_report_fails(covey, folder, monkeypatch, capsys):
    (folder / "report.html").unlink(missing_ok=True)
    (folder / "figures").write_text("in the way") if not (folder / "figures").exists() else None
    code, out, _ = covey("forget", folder, LEAVER, "--answer", "deny")
    assert re.findall("requester: [0-9a-f]{32}", out), code


def test_a_head_is_witnessed_and_keys_are_listed(covey, folder, tmp_path):
    code, out, _ = covey("ledger", "head", folder)
    assert (code, out.startswith("old 0\n\ncovey.run/")) == (0, True)
    key = tmp_path / "witness.key"
    with serving(Witness(signing_key().public_key())) as witness:
        key.write_text(witness.line)
        seen = json.loads(
            covey("ledger", "head", folder, "--witness", witness.url, key, "--json")[1]
        )
        code, out, _ = covey("ledger", "head", folder, "--witness", witness.url, key)
        assert (code, out.startswith("covey.run/")) == (0, True)
    assert list(map(Path, seen["runs"].values())) == [folder / "witnessed.tlog-proof"]
    assert covey("ledger", "head", folder, "--since", 2)[0] == 1
    assert covey("ledger", "head", tmp_path / "nowhere")[0] == 2
    code, out, _ = covey("ledger", "keys", "--json")
    assert code == 0
    known = json.loads(out)
    code, out, _ = covey("ledger", "keys", "--rotate")
    assert len(json.loads(covey("ledger", "keys", "--json")[1])["keys"]) == 2
    code, out, _ = covey("ledger", "keys", "--revoke", known["keys"][0]["fingerprint"])
    assert (code, "revoked" in out) == (0, True)
