"""Proofs of a signer who lies: the right key, one fact or sentence that does not hold."""

import shutil
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from covey import Config, verify
from covey.runtime.leaving import forget
from covey.runtime.loop import run_rounds
from covey.runtime.session import open_or_create
from covey.unlearning.signature import Check
from runtime.left_runs import LEAVER, OTHER, SETTINGS

Forge = Callable[[dict[str, Any]], Any]


def put(**changes: Any) -> Forge:
    return lambda document: document.update(changes)


def sized(size: int) -> Forge:
    return lambda document: [each.update(size_left=size) for each in document["rounds"]]


def far(document: dict[str, Any]) -> None:
    document["rounds"][0]["diameter"] = {"value": 0.001, "reason": ""}


def shorter(name: str) -> Forge:
    return lambda document: document[name].pop()


def twice(document: dict[str, Any]) -> None:
    document["rounds"].append(dict(document["rounds"][-1]))


def another_cluster(document: dict[str, Any]) -> None:
    document["rounds"][0]["cluster"] = 7


def later_touch(document: dict[str, Any]) -> None:
    document["touched"][0]["round_index"] += 1


def of_sums(**changes: Any) -> Forge:
    return lambda document: document["subtracted"][0].update(changes)


def known(value: Any) -> dict[str, Any]:
    return {"value": value, "reason": ""}


def unknown(reason: str) -> dict[str, Any]:
    return {"value": None, "reason": reason}


FIGURE = {"cluster": 0, "mia_accuracy": 0.5, "low": 0.4, "high": 0.6}
NO_MODEL = "0" * 64

FACTS: dict[str, tuple[Forge, str]] = {
    "set sizes of 100": (sized(100), "rounds: the ledger gives"),
    "a set less": (shorter("rounds"), "rounds: the ledger gives"),
    "a set twice": (twice, "one of them stands there twice"),
    "another cluster": (another_cluster, "rounds: the ledger gives"),
    "a small diameter": (far, "rounds: the ledger gives"),
    "another x": (put(deniability_threshold=2), "deniability_threshold: the ledger"),
    "another k": (put(min_anonymity=40), "min_anonymity: the ledger gives 4"),
    "another distance": (put(max_distance=0.5), "max_distance: the ledger gives None"),
    "asked in 1999": (put(asked="1999-01-01T00:00:00.000+00:00"), "asked: the ledger"),
    "answered in 1999": (put(answered="1999-01-01T00:00:00.000+00:00"), "answered:"),
    "answered in 2099": (put(answered="2099-01-01T00:00:00.000+00:00"), "answered: after"),
    "answered some day": (put(answered="lately"), "asked and answered must be moments"),
    "nothing touched": (put(touched=[]), "touched: the ledger gives"),
    "touched in another round": (later_touch, "touched: the ledger gives"),
    "it came later": (put(first_round=2), "first_round"),
    "it never came": (put(first_round=None), "first_round"),
    "it was never used": (put(representative_probability=known(0.0)), "representative"),
    "nobody can tell": (put(refutation=known(0.5)), "refutation: the ledger gives"),
    "no probability": (put(refutation=known(7.0)), "refutation is no probability"),
    "other secrets": (put(secrets="os"), "secrets: the ledger gives 'seeded'"),
    "another basis": (put(basis="withdrawal"), "basis: the ledger gives 'none'"),
    "a guarantee": (put(guarantee=known({"epsilon": 0.1})), "guarantee: the ledger"),
    "updates deleted": (put(raw_updates_deleted=known(True)), "raw_updates_deleted"),  # noqa: FBT003
    "a reason that claims": (
        put(raw_updates_deleted=unknown("all of its data are gone")),
        "'raw_updates_deleted'.'reason'",
    ),
    "traces deleted": (put(superseded_deleted={"traces": 9}), "'superseded_deleted'.'traces'"),
    "many states deleted": (put(superseded_deleted={"states": 9}), "more than"),
    "a measurement of one's own": (put(measured=known({"auc": 0.5})), "'measured'.'value'"),
    "a measurement that is no share": (
        put(measured=known({"before": {**FIGURE, "mia_accuracy": 7.0}, "after": None})),
        "measured: not a share",
    ),
    "a reason of one's own": (put(measured=unknown("it is safe")), "'measured'.'reason'"),
    "another run": (put(run="0" * 16), "run: the ledger gives"),
    "another tree": (put(tree_root=NO_MODEL), "tree_root: the ledger gives"),
    "another model afterwards": (put(model_after=NO_MODEL), "model_after: the ledger gives"),
    "a claim as a version": (put(covey_version="data erased"), "no proof may say"),
    "another request": (put(request="0" * 16), "request: nobody asked under this"),
    "other models": (put(model_before=NO_MODEL, model_after=NO_MODEL), "model_before: the"),
    "another head": (put(ledger_head=NO_MODEL), "is not the one"),
    "no head": (put(ledger_events=10_000), "the ledger has"),
    "an earlier head": (lambda d: d.update(ledger_events=1), "is not the one"),
}

ANSWERS: dict[str, tuple[str, Forge, str]] = {
    "a denial as a retraining": ("deny", put(answer="retrain"), "answer: the ledger"),
    "a denial as a calibration": ("deny", put(answer="calibrate"), "answer: the ledger"),
    "a denial as a roll-back": ("deny", put(answer="roll_back"), "a roll-back plays"),
    "a denial as a replay": (
        "deny",
        put(
            answer="retrain",
            replayed="anew",
            first_affected_round=0,
            first_replayed_round=0,
            rounds_replayed=3,
            sealed_record_kept=False,
        ),
        "answer: the ledger gives 'deny'",
    ),
    "a denial that keeps nothing": ("deny", put(sealed_record_kept=False), "sealed_re"),
    "a retraining that keeps": ("retrain", put(sealed_record_kept=True), "sealed_record"),
    "a roll-back as a retraining": (
        "roll_back",
        put(answer="retrain", replayed="anew", sealed_record_kept=False),
        "answer: the ledger gives 'roll_back'",
    ),
    "a longer replay": ("roll_back", put(rounds_replayed=9), "rounds_replayed: the"),
    "an earlier replay": ("roll_back", put(first_replayed_round=0), "first_"),
    "a later break": ("roll_back", put(first_affected_round=2), "first_affected_round:"),
    "choices made anew": ("roll_back", put(replayed="anew"), "replayed: the ledger"),
    "a calibration as a retraining": (
        "calibrate",
        put(answer="retrain", replayed="anew", sealed_record_kept=False),
        "answer: the ledger gives 'calibrate'",
    ),
    "a subtraction as a retraining": (
        "subtract",
        put(subtracted=[], answer="retrain", replayed="anew", sealed_record_kept=False),
        "answer: the ledger gives 'subtract'",
    ),
    "a subtraction of other sums": (
        "subtract",
        of_sums(before=NO_MODEL),
        "subtracted: the ledger gives",
    ),
    "sums that are others afterwards": ("subtract", of_sums(after=NO_MODEL), "subtracted: "),
    "fewer clients in the sums": (
        "subtract",
        of_sums(clients_after=0),
        "subtracted: the ledger gives",
    ),
    "sums that nobody left": (
        "subtract",
        of_sums(clients_before=3, clients_after=3, before=NO_MODEL),
        "subtracted: sums that nobody left",
    ),
    "no sums": ("subtract", put(subtracted=[]), "subtracted: it belongs"),
    "sums of a denial": (
        "deny",
        put(
            subtracted=[
                {
                    "cluster": 0,
                    "before": NO_MODEL,
                    "after": NO_MODEL,
                    "clients_before": 1,
                    "clients_after": 1,
                }
            ]
        ),
        "subtracted: it belongs",
    ),
    "an earlier subtraction": ("subtract", put(first_replayed_round=1), "first_"),
    "a longer subtraction": ("subtract", put(rounds_replayed=2), "rounds_replayed: "),
    "a subtraction that was played anew": ("subtract", put(replayed="anew"), "replayed: "),
    "a subtraction that keeps nothing": (
        "subtract",
        put(sealed_record_kept=False),
        "sealed_record_kept: the ledger",
    ),
    "own sums that nobody kept": ("subtract", put(own_sums_kept=True), "own_sums_kept: the ledger"),
    "own sums that are not told": (
        "subtract, kept",
        put(own_sums_kept=False),
        "own_sums_kept: the ledger",
    ),
    "own sums of a denial": ("deny", put(own_sums_kept=True), "own_sums_kept: it bel"),
    "a denial as a subtraction": (
        "deny",
        put(answer="subtract"),
        "answer: the ledger gives 'deny'",
    ),
    "a retraining as a subtraction": (
        "retrain",
        put(answer="subtract", replayed="subtracted", sealed_record_kept=True),
        "subtracted: it belongs",
    ),
    "sets where there were none": ("calibrate", put(min_anonymity=9), "min_anonymity"),
}


def refused(checks: list[Check]) -> str:
    ok = {c.name: c.ok for c in checks}
    assert ok["format"] is False or (ok["signature"] and ok["trust"])
    return " | ".join(check.detail for check in checks if check.ok is False)


@pytest.mark.parametrize(
    "kind", ["deny", "subtract", "subtract, kept", "retrain", "roll_back", "calibrate"]
)
def test_an_honest_proof_of_every_answer_holds(left, kind):
    one = left(kind)
    assert one.document["answer"] == kind.partition(",")[0]
    assert one.document["own_sums_kept"] == kind.endswith("kept")
    checks = one.checks(one.document)
    assert [(c.name, c.detail) for c in checks if c.ok is False] == []
    found = {check.name: check for check in checks}
    assert "facts follow from the ledger's events" in found["record"].detail
    assert "measured" in found["operator"].detail
    assert [c.name for c in verify(one.proof) if c.ok is False] == []


def test_a_proof_from_before_the_first_round_holds_and_claims_no_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    config, place = Config.of(SETTINGS), tmp_path / "run"
    made, folder = open_or_create(place, config)
    one = forget(made, folder, [LEAVER])[1][0].answered
    for rounds in (0, 3):
        if rounds:
            run_rounds(*open_or_create(place, config))
        checks = verify(one.proof, place, name_and_salt=(LEAVER, one.salt))
        assert [(c.name, c.detail) for c in checks if c.ok is False] == []
        assert ("deniability_threshold" in checks[-1].detail) == (not rounds)


@pytest.mark.parametrize("key", ["claim", "summary", "done", "limits", "refuters", "left_to_do"])
def test_words_under_a_signature_are_no_proof(left, key):
    (check,) = left("deny").checks(left("deny").document | {key: ["All its data were erased."]})
    assert (check.name, check.ok) == ("format", False)
    assert key in check.detail


@pytest.mark.parametrize("kind", FACTS)
def test_a_false_fact_is_refused(left, kind):
    forge, said = FACTS[kind]
    one = left("deny")
    document = one.document
    forge(document)
    assert said in refused(one.checks(document))


@pytest.mark.parametrize("kind", ANSWERS)
def test_another_answer_than_the_one_that_was_given_is_refused(left, kind):
    answer, forge, said = ANSWERS[kind]
    one = left(answer)
    document = one.document
    forge(document)
    assert said in refused(one.checks(document))


def test_a_proof_on_a_ledger_in_which_nobody_asked_is_refused(left):
    one = left("deny")
    untouched = one.folder.parent / "before"
    from covey.ledger.store import Ledger
    from covey.runtime.folder import RunFolder

    with Ledger.read(RunFolder(untouched).ledger) as ledger:
        hashes = [each.hash for each in ledger.links()]
    document = one.document | {"ledger_events": len(hashes), "ledger_head": hashes[-1]}
    found = refused(one.checks(document, untouched))
    assert "request: nobody asked under this number in this ledger" in found


@pytest.mark.parametrize(
    "forge",
    [
        put(tree_root=NO_MODEL),
        put(ledger_head=NO_MODEL),
        put(ledger_events=5),
        put(inclusion=["x"]),
        shorter("inclusion"),
    ],
)
def test_a_head_that_is_not_the_last_of_its_tree_is_refused_without_the_ledger(left, forge):
    document = left("deny").document
    forge(document)
    left("deny").checks(document)
    checks = verify(left("deny").folder.parent / "forged.json")
    assert [each.name for each in checks if each.ok is False] == ["head"]


def test_only_name_and_salt_together_are_the_requester(left):
    one = left("deny")
    ok = {}
    for name, salt in ((LEAVER, one.salt), (OTHER, one.salt), (LEAVER, "00" * 16), ("\ud800", "")):
        checks = verify(one.proof, name_and_salt=(name, salt))
        ok[name, salt] = {each.name: each.ok for each in checks}["subject"]
    assert [*ok.values()] == [True, False, False, False]


def test_a_ledger_whose_chain_is_broken_shows_nothing(left, tmp_path):
    one = left("deny")
    shutil.copytree(one.folder, tmp_path / "broken")
    place = sqlite3.connect(tmp_path / "broken" / "ledger.sqlite")
    place.execute("UPDATE events SET hash = ? WHERE position = 2", (NO_MODEL,))
    place.commit()
    place.close()
    (check,) = [c for c in one.checks(one.document, tmp_path / "broken") if c.ok is False]
    assert check.name == "ledger"
