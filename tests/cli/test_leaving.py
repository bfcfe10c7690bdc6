"""Leaving by the command line: what is refused, what is told, and what can be checked."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from covey import Config, load, run
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.leaving import ForgetResult
from covey.unlearning.plan import ANSWERS
from covey.unlearning.proof import proof_json
from covey.unlearning.signature import sign, signing_key

LEAVER = "client-00003"
HIDDEN = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3}
SMALL: dict[str, Any] = {
    "rounds": 3,
    "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
    "engine": {"name": "reference"},
}


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small runs, each played once."""
    made: dict[str, Path] = {}
    of = {
        "hidden": {"aggregation": HIDDEN},
        "other": {"aggregation": HIDDEN, "rounds": 1},
        "plain": {"rounds": 1},
        "stored": {"rounds": 1, "aggregation": HIDDEN, "leaving": {"store_updates": 1}},
        "pair": {"rounds": 1, "population": {**SMALL["population"], "clients": 2}},
        "local": {"rounds": 1, "method": {"name": "local"}},
    }

    def played(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind) / "run"
            run(config=Config.of({**SMALL, **of[kind]}), out=made[kind])
        return made[kind]

    return played


@pytest.fixture
def copy(runs, tmp_path):
    """A run of one's own."""
    return lambda kind: shutil.copytree(runs(kind), tmp_path / kind)


@pytest.fixture(scope="module")
def leaving(runs, ask, tmp_path_factory):
    """Runs that clients have left already, and what was printed; nobody writes them."""
    made: dict[str, tuple[Path, dict[str, Any]]] = {}

    def left(wanted: str) -> tuple[Path, dict[str, Any]]:
        if wanted not in made:
            folder = tmp_path_factory.mktemp(wanted) / "run"
            shutil.copytree(runs("hidden"), folder)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XDG_CONFIG_HOME", str(folder.parent / "keys"))
                made[wanted] = folder, ask("forget", folder, LEAVER, "--answer", wanted)
        return made[wanted]

    return left


@pytest.fixture
def denied(leaving):
    return leaving("deny")


def without(folder: Path, *clients: str) -> tuple[ForgetResult, ...]:
    """Let clients leave, with no report afterwards."""
    return load(folder).forget(clients, "retrain")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sentence(err: str) -> str:
    return " ".join(err.split())


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("hidden", ["nobody", "--basis", "none"], "knows no client 'nobody'"),
        ("hidden", [LEAVER, "nobody", "--answer", "auto"], "knows no client 'nobody'"),
        (
            "plain",
            [LEAVER, "--answer", "auto"],
            "Only a run that hides updates in anonymity sets can deny",
        ),
        ("plain", [LEAVER, "--answer", "roll_back"], "Only a run that hides updates"),
        ("stored", [LEAVER, "--answer", "deny"], "this run keeps raw updates"),
        ("stored", [LEAVER, "--answer", "auto"], "this run keeps raw updates"),
        ("hidden", [LEAVER, "--answer", "roll_back"], "too small, and none would"),
        ("hidden", [LEAVER, "--answer", "calibrate"], "this run stores none"),
        ("hidden", [LEAVER, "--answer", "erase"], "answer takes auto, deny"),
        ("local", [LEAVER, "--answer", "auto"], "Delete that client's model instead"),
    ],
    ids=[
        "unknown",
        "one-unknown",
        "no-sets",
        "no-sets-to-roll-back",
        "stored-updates",
        "stored-updates-auto",
        "nothing-falls-below",
        "nothing-stored",
        "wrong-answer",
        "local",
    ],
)
def test_a_request_that_cannot_be_served_changes_nothing(covey, copy, kind, words, said):
    folder = copy(kind)
    before = contents(folder)
    code, out, err = covey("forget", folder, *words)
    assert code == 2
    assert said in sentence(err)
    assert "Traceback" not in err
    assert out == ""
    assert contents(folder) == before


@pytest.mark.parametrize(("command", "words"), [("forget", ["--answer", "auto"]), ("explain", [])])
def test_who_left_and_who_never_came_get_the_same_sentence(covey, denied, command, words):
    folder, _ = denied
    before = contents(folder)
    left = covey(command, folder, LEAVER, *words)
    never = covey(command, folder, "client-00099", *words)
    assert left[0] == never[0] == 2
    assert left[2] == never[2].replace("client-00099", LEAVER)
    assert contents(folder) == before


@pytest.mark.parametrize("words", [["forget", "missing", LEAVER], ["explain", "missing", LEAVER]])
def test_a_run_that_is_not_there(covey, tmp_path, words):
    code, out, err = covey(*words)
    assert code == 2
    assert "missing is not a covey run" in sentence(err)
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            ["aggregation.min_anonymity=4", "aggregation.deniability_threshold=5"],
            "at most k = 4, found x = 5. Lower x or raise k.",
        ),
        (
            ["aggregation.min_anonymity=9", "population.clients=8"],
            "at most as many as there are, 8, found 9. Lower k.",
        ),
        (["method.name=local"], "but method.name = 'local' rules it out"),
        (["aggregation.noise=sound"], "needs partition = 'public-random'"),
        (["leaving.store_updates=2"], "Set leaving.store_updates = 0"),
    ],
    ids=["x-above-k", "k-above-cohort", "local", "sound", "stored-and-clustered"],
)
def test_settings_that_hide_nobody_are_refused_before_anything_is_written(
    covey, tmp_path, settings, said
):
    words = [word for each in settings for word in ("--set", each)]
    hidden = ["--set", "aggregation.name=anonymity-sets"]
    code, out, err = covey("run", *hidden, *words, "--out", "new")
    assert code == 2
    assert said in sentence(err)
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_the_last_client_cannot_leave(covey, copy):
    folder = copy("pair")
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        one, other = sorted(ledger.names().values())
    without(folder, one)
    before = contents(folder)
    code, _, err = covey("forget", folder, other, "--answer", "retrain")
    assert code == 2
    assert "this client is the last one" in sentence(err)
    assert contents(folder) == before


def test_once_the_updates_are_deleted_a_denial_is_true(answer, copy):
    folder = copy("stored")
    shutil.rmtree(folder / "updates")
    (plan,) = answer("forget", folder, LEAVER, "--plan")["plans"]
    assert plan["chosen"]["answer"] == "deny"


@pytest.mark.parametrize("wanted", ["auto", "retrain", "calibrate"])
def test_a_plan_changes_nothing_and_says_what_each_answer_costs(answer, copy, wanted):
    folder = copy("hidden")
    before = contents(folder)
    told = answer("forget", folder, LEAVER, "client-00001", "--plan", "--answer", wanted)
    assert contents(folder) == before
    assert [each["client"] for each in told["plans"]] == [LEAVER, "client-00001"]
    # with x = 3, a set of four can spare one: who comes second is not denied
    unlike = zip(told["plans"], ("deny", "retrain"), ("deny", "roll_back"), strict=True)
    for plan, auto, cheap in unlike:
        expected = {"auto": auto, "calibrate": None}.get(wanted, wanted)
        assert (plan["chosen"] or {}).get("answer") == expected
        assert bool(plan["reason"]) == (expected is None)
        found = {each["answer"]: each for each in plan["options"]}
        assert tuple(found) == ANSWERS
        possible = [n for n, each in found.items() if not each["reason"]]
        assert possible == ["deny" if wanted == "calibrate" else cheap, "retrain", "stop"]
        assert found["deny"]["seconds"] == found["deny"]["bytes_deleted"] == 0
        assert found["retrain"]["rounds_replayed"] == 3
        assert found["retrain"]["bytes_deleted"] == sum(
            len(each) for name, each in before.items() if name.startswith("checkpoints")
        )
    last = told["plans"][-1]["chosen"]
    assert (last["rounds_replayed"] if last else 0) == (0 if wanted == "calibrate" else 3)


def test_a_plan_in_words(covey, copy):
    code, out, _ = covey("forget", copy("hidden"), LEAVER, "--plan")
    assert code == 0
    assert out.startswith(f"{LEAVER}: deny\n")
    assert all(name in out for name in ("roll_back", "retrain", "calibrate"))


def test_what_a_denial_tells(denied):
    folder, told = denied
    (one,) = told["answers"]
    promised = """client answer first_affected_round rounds_replayed seconds
    model_changed model_hash proof salt"""
    assert set(promised.split()) <= set(one)
    assert one["client"] == LEAVER
    assert one["answer"] == "deny"
    assert one["first_affected_round"] is None
    assert one["rounds_replayed"] == 0
    assert one["model_changed"] is False
    assert re.fullmatch("[0-9a-f]{64}", one["model_hash"])
    assert re.fullmatch("[0-9a-f]{32}", one["salt"])
    assert one["seconds"] >= 0
    assert Path(one["proof"]).is_file()
    assert Path(one["proof"]).with_suffix(".html").is_file()
    assert {"denials_left", "next_forces_rollback"} <= set(told["budget"])
    assert (folder / "report.html").is_file()
    for name, content in contents(folder).items():
        assert LEAVER.encode() not in content, name
        assert one["salt"].encode() not in content, name


def test_what_a_retraining_tells(runs, leaving):
    folder, told = leaving("retrain")
    (one,) = told["answers"]
    assert one["answer"] == "retrain"
    assert one["first_affected_round"] == 0
    assert one["rounds_replayed"] == 3
    assert one["model_changed"] is True
    assert load(runs("hidden")).summary.model_hash != one["model_hash"]
    assert load(folder).summary.model_hash == one["model_hash"]


def test_several_leave_together_and_each_once(copy):
    folder = copy("other")
    done = without(folder, LEAVER, "client-00001", LEAVER)
    assert [each.client for each in done] == [LEAVER, "client-00001"]
    assert len({each.answered.salt for each in done}) == 2
    last = load(folder).summary.model_hash
    assert done[0].answered.model_hash == done[1].answered.model_hash == last


def test_what_is_held_on_a_client(answer, copy):
    folder = copy("hidden")
    before = contents(folder)
    told = answer("explain", folder, LEAVER)
    assert contents(folder) == before
    assert told["client"] == LEAVER
    assert told["rounds_trained"] == [0, 1, 2]
    assert [each["round"] for each in told["anonymity_sets"]] == [0, 1, 2]
    assert all(4 <= each["members"] <= 7 for each in told["anonymity_sets"])
    assert told["states_that_depend_on_it"] == [0, 1, 2]
    assert told["raw_updates_stored"] == []
    assert told["requests"] == []


def checked(covey, one: dict[str, Any], *words: object) -> tuple[int, dict[str, Any]]:
    code, out, _ = covey("verify", one["proof"], *words, "--json")
    told = json.loads(out)
    return code, {each["name"]: each["ok"] for each in told["checks"]} | {"valid": told["valid"]}


def test_a_proof_holds_against_the_ledger_the_key_and_the_requester(covey, denied, tmp_path):
    folder, told = denied
    (one,) = told["answers"]
    key = folder.parent / "keys" / "covey" / "signing-key.pub.pem"
    words = ("--key", key, "--mine", LEAVER, one["salt"])
    code, checks = checked(covey, one, *words, "--ledger", folder)
    assert code == 0
    assert all(checks.values())
    # later events do not matter: the proof's head is an ancestor
    later = shutil.copytree(folder, tmp_path / "later")
    without(later, "client-00001")
    assert checked(covey, one, *words, "--ledger", later)[0] == 0


def test_a_proof_alone_is_valid_and_says_that_trust_is_open(covey, denied):
    code, checks = checked(covey, denied[1]["answers"][0])
    assert code == 0
    assert checks["valid"] is True
    assert checks["trust"] is None


def test_every_flipped_byte_of_a_proof_shows(covey, denied, tmp_path):
    whole = Path(denied[1]["answers"][0]["proof"]).read_bytes()
    path = tmp_path / "proof.json"
    for at in range(5, len(whole), len(whole) // 8):
        path.write_bytes(bytes(b ^ (i == at) for i, b in enumerate(whole)))
        code, checks = checked(covey, {"proof": path})
        assert (code, checks["valid"]) == (1, False), at


def test_a_proof_fails_against_what_it_is_not_about(covey, denied, runs):
    (one,) = denied[1]["answers"]
    code, checks = checked(covey, one, "--ledger", runs("other"))
    assert (code, checks["ledger"]) == (1, False)
    code, checks = checked(covey, one, "--mine", "client-00001", one["salt"])
    assert (code, checks["subject"]) == (1, False)
    code, checks = checked(covey, one, "--mine", LEAVER, "00" * 16)
    assert (code, checks["subject"]) == (1, False)


@pytest.mark.parametrize("wanted", ["deny", "retrain"])
def test_a_signed_proof_of_another_model_fails_against_the_ledger(covey, leaving, tmp_path, wanted):
    folder, told = leaving(wanted)
    document = json.loads(Path(told["answers"][0]["proof"]).read_text())
    document["model_after"] = "0" * 64
    if wanted == "deny":
        document["model_before"] = document["model_after"]
    key = signing_key(folder.parent / "keys" / "covey" / "signing-key.pem")
    forged = {"proof": tmp_path / "proof.json"}
    forged["proof"].write_text(proof_json(sign(key, document)))
    code, checks = checked(covey, forged)
    assert (code, checks["valid"]) == (0, True)
    code, checks = checked(covey, forged, "--ledger", folder)
    assert (code, checks["record"]) == (1, False)


def test_a_proof_that_cannot_be_read_is_bad_input(covey, denied):
    (one,) = denied[1]["answers"]
    for words in (
        ["missing.json"],
        [one["proof"], "--mine", LEAVER, "no hexadecimal"],
        [one["proof"], "--ledger", "missing"],
        [one["proof"], "--key", "missing.pem"],
    ):
        code, _, err = covey("verify", *words)
        assert code == 2, words
        assert "Traceback" not in err


@pytest.mark.parametrize("wanted", ["deny", "retrain"])
def test_a_proof_names_nobody(runs, leaving, wanted):
    with Ledger.read(RunFolder(runs("hidden")).ledger) as ledger:
        known = ledger.names()
    _, told = leaving(wanted)
    proof = Path(told["answers"][0]["proof"])
    for path in (proof, proof.with_suffix(".html")):
        written = path.read_text()
        for handle, name in known.items():
            assert handle not in written
            assert name not in written
