"""Answers that a signer with the key records, and the ledger contradicts."""

import copy
from pathlib import Path
from typing import Any

import pytest

from covey import verify
from covey.ledger.chain import Record
from covey.unlearning.proof import proof_json, subject_mark
from runtime.left_runs import LEAVER, OTHER, Left
from runtime.lying import Liar, Lie, told_by

SALT = "00" * 16
MARK = subject_mark(OTHER, bytes.fromhex(SALT))


def unplayed(liar: Liar) -> None:
    liar.signed = liar.answer + 1
    del liar.entries[liar.signed :]


def as_before(liar: Liar) -> None:
    old = liar.rounds(again=False)
    liar.entries[liar.answer + 1 : liar.signed] = old
    liar.signed = liar.answer + 1 + len(old)
    del liar.entries[liar.signed :]


def again_later(liar: Liar) -> None:
    liar.drop("RunFinished")
    del liar.entries[liar.signed :]
    sampled = Record(3, "CohortSampled", {"handles": [liar.handle]})
    liar.entries.append(("2099-01-01T00:00:00.000+00:00", [sampled]))


def back_by_handle(liar: Liar) -> None:
    liar.renamed[liar.handle] = "somebody"


def back_by_name(liar: Liar) -> None:
    liar.renamed["f00d"] = LEAVER


def not_stored(liar: Liar) -> None:
    for body in liar.of("RunStarted"):
        body["updates_stored"] = False


def newest_sums(liar: Liar) -> tuple[dict[str, Any], dict[str, Any], int]:
    *_, before = [
        r.body for _, some in liar.entries[: liar.answer] for r in some if r.kind == "HeadsSolved"
    ]
    *_, after = liar.of("HeadsSolved", after=True)
    pairs = zip(before["clients"], after["clients"], strict=True)
    return before, after, next(j for j, (a, b) in enumerate(pairs) if a != b)


def unchanged_sums(liar: Liar) -> None:
    before, after, _ = newest_sums(liar)
    after.update(sums=before["sums"], clients=before["clients"])


def same_sums(liar: Liar) -> None:
    before, after, _ = newest_sums(liar)
    after.update(sums=before["sums"])


def seven_more(liar: Liar) -> None:
    _, after, j = newest_sums(liar)
    after["clients"][j] = 0


def moved(liar: Liar) -> None:
    body = next(liar.of("ClientsAssigned", after=True))
    one = next(iter(body["clusters"]))
    body["clusters"][one] = 1 - body["clusters"][one]


def made_out(liar: Liar) -> None:
    liar.mine, liar.facts = (OTHER, SALT), {"subject": MARK}


def made_out_in_the_chain(liar: Liar) -> None:
    made_out(liar)
    for body in liar.of("LeaveRequested", "ClientLeft"):
        body["subject"] = MARK


def made_out_without_a_name(liar: Liar) -> None:
    made_out_in_the_chain(liar)
    liar.renamed[liar.names[OTHER]] = None


def unmarked(liar: Liar) -> None:
    for body in liar.of("LeaveRequested", "ClientLeft"):
        body["subject"] = ""


def another_basis(liar: Liar) -> None:
    liar.basis = "withdrawal"


def denied_erasure(liar: Liar) -> None:
    liar.basis = "erasure"
    for body in liar.of("LeaveRequested"):
        body["basis"] = "erasure"


def shorter(liar: Liar) -> None:
    (body,) = liar.of("RunRolledBack")
    body["until"] = 2
    del liar.entries[liar.signed - 1 :]
    liar.signed -= 1


def unrewound(liar: Liar) -> None:
    liar.drop("RunRolledBack")
    unplayed(liar)
    liar.facts = {"first_affected_round": None}


def of_another_handle(liar: Liar) -> None:
    for body in liar.of("ClientLeft"):
        body["handle"] = liar.names[OTHER]


LIES: dict[str, tuple[str, Lie, str]] = {
    "replays that are not recorded": ("retrain", unplayed, "record: replays: round 0"),
    "replays that hold the leaver": ("retrain", as_before, "record: later events"),
    "a roll-back that holds it": ("roll_back", as_before, "record: later events"),
    "a calibration that is not recorded": ("calibrate", unplayed, "record: replays:"),
    "a subtraction that is not recorded": ("subtract", unplayed, "record: replays:"),
    "fewer rounds than were played": ("retrain", shorter, "record: replays: 3 rounds"),
    "a retraining of nothing": ("retrain", unrewound, "record: rounds that count"),
    "it trains again": ("retrain", again_later, "record: later events: event"),
    "it trains again after a denial": ("deny", again_later, "record: later events"),
    "its handle has a name again": ("retrain", back_by_handle, "record: names: the"),
    "its name has a handle again": ("retrain", back_by_name, "subject: the ledger st"),
    "no updates were stored": ("calibrate", not_stored, "record: answer: a calibrat"),
    "sums that do not change": ("subtract", unchanged_sums, "its sums lost 0"),
    "sums with one less that are the same": ("subtract", same_sums, "did not change"),
    "sums that lose others too": ("subtract", seven_more, "record: subtracted: 1 left"),
    "others in another cluster": ("subtract", moved, "record: subtracted: in round 2"),
    "somebody else's proof": ("retrain", made_out, "record: subject: the ledger gives"),
    "somebody else's answer": ("retrain", made_out_in_the_chain, "subject: the ledger still names"),
    "of somebody without a name": ("retrain", made_out_without_a_name, "record: names: in round"),
    "of another handle": ("retrain", of_another_handle, "record: names: the table still"),
    "an answer without a mark": ("retrain", unmarked, "subject: the ledger's event"),
    "a request that is not in the chain": (
        "deny",
        lambda liar: liar.drop("LeaveRequested"),
        "record: answer: the ledger records no answer to this request, or no request",
    ),
    "another basis in the table": ("deny", another_basis, "record: basis: the table"),
    "an erasure that is denied": ("deny", denied_erasure, "record: basis: A request"),
}


def told(one: Left, lie: Lie, tmp_path: Path) -> list[Any]:
    def checked(document: dict[str, Any], ledger: Path, mine: tuple[str, str]):
        forged = tmp_path / "forged.json"
        forged.write_text(proof_json(one.signed(document)))
        keys = one.folder.parent / "keys" / "covey" / "signing-key.pub.pem"
        return verify(forged, ledger, keys, mine)

    honest = one.folder, copy.deepcopy(one.document), (LEAVER, one.salt)
    return told_by(lie, honest, tmp_path / "lied", checked)


@pytest.mark.parametrize("kind", LIES)
def test_what_the_ledger_contradicts_is_refused(left, kind, tmp_path):
    answer, lie, said = LIES[kind]
    checks = told(left(answer), lie, tmp_path)
    ok = {each.name: each.ok for each in checks}
    assert ok["signature"]
    assert ok["trust"]
    refused = [f"{each.name}: {each.detail}" for each in checks if each.ok is False]
    assert said in " | ".join(refused)


@pytest.mark.parametrize("answer", ["deny", "retrain", "roll_back", "calibrate", "subtract"])
def test_the_honest_twin_holds_and_says_what_is_the_operators_word(left, answer, tmp_path):
    checks = told(left(answer), lambda _: None, tmp_path)
    assert [(c.name, c.detail) for c in checks if c.ok is False] == []
    last = checks[-1].detail
    for word in ("trained as they are recorded", "hashes", "whose handle"):
        assert word in last
