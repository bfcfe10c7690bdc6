"""Everything that a signer who lies has tried: the right key, and something that does not hold."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from covey import Config, Run, resume, verify
from covey.base.signature import signing_key
from covey.leaving.handover import subject_mark
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.ledger.tree import root_of
from runs.left_runs import LEAVER, OTHER, SETTINGS
from runs.lying import Forger, Liar, in_the_ledger

Forge = Callable[[Forger], Any]
Lies = dict[str, dict[str, tuple[Forge, str]]]
"""By the answer that is lied about, and by name: how, and what is said of it."""

SALT = "00" * 16
MARK = subject_mark(OTHER, bytes.fromhex(SALT))
NO_HASH = "0" * 64
LONG_AGO, LATER = "1999-01-01T00:00:00.000+00:00", "2099-01-01T00:00:00.000+00:00"
PROSE = "experts certify it"


# in the proof: one fact that does not hold


def put(**changes: Any) -> Forge:
    return lambda forger: forger.document.update(changes)


def inside(*path: str | int, value: Any) -> Forge:
    def forge(forger: Forger) -> None:
        *first, last = path
        place: Any = forger.document
        for key in first:
            place = place[key]
        place[last] = value

    return forge


def sized(size: int) -> Forge:
    return lambda forger: [
        facts_of_round.update(size_left=size) for facts_of_round in forger.document["rounds"]
    ]


def known(value: Any) -> dict[str, Any]:
    return {"value": value, "reason": ""}


def unknown(reason: str) -> dict[str, Any]:
    return {"value": None, "reason": reason}


FIGURE = {"cluster": 0, "mia_accuracy": 0.5, "low": 0.4, "high": 0.6}
GUARANTEE = {
    "epsilon": 0.1,
    "delta": 1e-5,
    "unit": "client",
    "relation": "CLIENT_COUNTS",
    "adversary": "SEES_MODELS",
    "covers": ["EVERY_MODEL"],
    "does_not_cover": ["SERVER"],
    "holds_if": ["ONE_NAME"],
    "accountant": "PLD",
    "noise_multiplier": 9.0,
}
COPY = {
    "what": "model",
    "sha256": NO_HASH,
    "path_sha256": NO_HASH,
    "recipient": None,
    "fate": "deleted",
    "notify": False,
}
SUMS = {"cluster": 0, "before": NO_HASH, "after": NO_HASH, "clients_before": 1, "clients_after": 1}
AS_RETRAINING = {"answer": "retrain", "replayed": "anew", "sealed_record_kept": False}

FACTS: Lies = {
    "deny": {
        "set sizes of 100": (sized(100), "rounds: the ledger gives"),
        "set sizes below x": (sized(1), "facts: others contradict what is said of rounds"),
        "another x": (put(deniability_threshold=2), "deniability_threshold: the ledger"),
        "another distance": (
            put(max_distance=0.5, distance="cosine"),
            "max_distance: the ledger gives None",
        ),
        "a distance of nothing": (put(distance="cosine"), "said of distance"),
        "asked in 1999": (put(requested=LONG_AGO), "requested: the ledger"),
        "answered in 2099": (put(answered=LATER), "answered: after"),
        "answered some day": (put(answered="lately"), "format: not a covey proof: 'answered'"),
        "answered on no day": (put(answered="2025-13-41T00:00:00.000+00:00"), "said of answered"),
        "nothing touched": (put(touched=[]), "touched: the ledger gives"),
        "it was never used": (put(representative_probability=known(0.0)), "representative"),
        "another basis": (put(basis="withdrawal"), "basis: the ledger gives 'none'"),
        "a guarantee": (put(guarantee=known(GUARANTEE)), "guarantee: the ledger"),
        "updates deleted": (put(raw_updates_deleted=known(value=True)), "raw_updates_deleted"),
        "many states deleted": (put(superseded_deleted={"states": 9}), "more than"),
        "a measurement that is no share": (
            put(measured=known({"before": {**FIGURE, "mia_accuracy": 7.0}, "after": None})),
            "'measured'.'value'",
        ),
        "another run": (put(run="0" * 16), "run: the ledger gives"),
        "another tree": (put(tree_root=NO_HASH), "head: the tree that is signed"),
        "another request": (put(request="0" * 16), "request: this ledger has no request"),
        "another head": (put(ledger_head=NO_HASH), "ledger: event"),
        "no head": (put(ledger_events=10_000), "the ledger has"),
        "an earlier head": (put(ledger_events=1), "is not the one"),
        "a head of size 0": (put(ledger_events=0), "'ledger_events'"),
        "an invented path to the head": (put(inclusion=[NO_HASH]), "head: the tree"),
        "an older format": (put(version=8), "must be of format 11, found 8"),
        "a denial as a stop": (put(answer="stop"), "answer: the ledger gives 'deny'"),
        "a denial as a replay": (
            put(**AS_RETRAINING, first_affected_round=0, first_replayed_round=0, rounds_replayed=3),
            "answer: the ledger gives 'deny'",
        ),
        "a denial that keeps nothing": (put(sealed_record_kept=False), "sealed_re"),
    },
    "retrain": {
        "another model afterwards": (put(model_after=NO_HASH), "model_after: the ledger"),
        "somebody else's proof": (put(subject=MARK), "subject: the ledger gives"),
    },
    "roll_back": {
        "a roll-back as a retraining": (put(**AS_RETRAINING), "answer: the ledger gives"),
        "a longer replay": (put(rounds_replayed=9), "rounds_replayed: the"),
        "an earlier replay": (put(first_replayed_round=0), "first_"),
        "a later break": (put(first_affected_round=2), "first_affected_round:"),
        "choices made anew": (put(replayed="anew"), "replayed: the ledger"),
    },
    "calibrate": {
        "a calibration as a retraining": (put(**AS_RETRAINING), "answer: the ledger gives")
    },
    "stop": {"a stop as a denial": (put(answer="deny"), "answer: the ledger gives 'stop'")},
    "subtract": {
        "a subtraction as a retraining": (put(**AS_RETRAINING, subtracted=[]), "answer: the"),
        "a subtraction of other sums": (
            inside("subtracted", 0, "before", value=NO_HASH),
            "subtracted: the ledger gives",
        ),
        "sums that nobody left": (
            inside("subtracted", 0, value={**SUMS, "after": "1" * 64}),
            "said of subtracted",
        ),
        "a subtraction that keeps nothing": (put(sealed_record_kept=False), "sealed_record_kept:"),
    },
}

# words under a signature: where a code or a number belongs

WORDS: dict[str, Forge] = {
    "a claim": put(claim=[PROSE]),
    "the reason of a guarantee": put(guarantee=unknown(PROSE)),
    "the reason of a measurement": put(measured=unknown(PROSE)),
    "a diameter": inside("rounds", 0, "diameter", value=unknown(PROSE)),
    "a guarantee": put(guarantee=known({**GUARANTEE, "certified": PROSE})),
    "what a guarantee covers": put(guarantee=known({**GUARANTEE, "covers": [PROSE]})),
    "what became of a copy": put(copies=[{**COPY, "fate": PROSE}]),
    "a version with words": put(covey_version="0.2.0.dev1 experts certify it"),
    "a book as a recipient": put(copies=[{**COPY, "recipient": PROSE * 1_000}]),
}

# in the ledger: rewritten, sealed again, and signed as it follows


def unplayed(liar: Liar) -> None:
    liar.replay([])


def as_before(liar: Liar) -> None:
    liar.replay(liar.rounds(again=False))


def again_later(liar: Liar) -> None:
    """Something that is recorded after its answer names it."""
    liar.add(Record(None, "Remembered", {"clients": [liar.handle]}))


def truncated(liar: Liar) -> None:
    """Cut off before the request, and grown again to what it was, without the request."""
    liar.follows = False
    kinds = ("LeaveRequested", "ClientLeft")
    old = sum(len(records) for _, records in liar.entries)
    liar.entries = [e for e in liar.entries if not any(r.kind in kinds for r in e[1])]
    while sum(len(records) for _, records in liar.entries) < old:
        liar.add(Record(None, "RunRolledBack", {"round_index": 3, "until": 3, "how": "anew"}))


def answered_again(liar: Liar) -> None:
    """The same request, recorded and answered once more after the proof."""
    mine = [
        Record(None, r.kind, {**r.body})
        for _, records in liar.entries
        for r in records
        if r.kind in ("LeaveRequested", "ClientLeft")
    ]
    liar.add(*mine)


def request_after_the_answer(liar: Liar) -> None:
    at = next(
        i
        for i, (_, records) in enumerate(liar.entries)
        for r in records
        if r.kind == "LeaveRequested"
    )
    request = liar.entries.pop(at)
    liar.entries.insert(liar.answer + 1, request)


def back_by_handle(liar: Liar) -> None:
    liar.renamed[liar.handle] = "somebody"


def back_by_name(liar: Liar) -> None:
    liar.renamed["f00d"] = LEAVER


def not_stored(liar: Liar) -> None:
    for body in liar.of("RunStarted"):
        body["updates_stored"] = False


def newest_sums(liar: Liar) -> tuple[dict[str, Any], dict[str, Any], int]:
    *_, before = [
        r.body
        for _, records in liar.entries[: liar.answer]
        for r in records
        if r.kind == "HeadsSolved"
    ]
    *_, after = liar.of("HeadsSolved", after=True)
    pairs = zip(before["clients"], after["clients"], strict=True)
    return before, after, next(j for j, (a, b) in enumerate(pairs) if a != b)


def unchanged_sums(liar: Liar) -> None:
    before, after, _ = newest_sums(liar)
    after.update(sums=before["sums"], clients=before["clients"])


def seven_more(liar: Liar) -> None:
    _, after, j = newest_sums(liar)
    after["clients"][j] = 0


def moved(liar: Liar) -> None:
    body = next(liar.of("ClientsAssigned", after=True))
    one = next(iter(body["clusters"]))
    body["clusters"][one] = 1 - body["clusters"][one]
    (merged, *_) = liar.of("ModelsMerged", after=True)
    counts = Counter(body["clusters"].values())
    merged["participants"] = [counts[0], counts[1]]


def made_out_in_the_chain(liar: Liar) -> None:
    liar.forger.mine, liar.facts = (OTHER, SALT), {"subject": MARK}
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


def fewer_rounds(liar: Liar) -> None:
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


def other_settings(forger: Forger) -> None:
    path = forger.own_folder() / "config.toml"
    path.write_text(path.read_text().replace("min_anonymity = 4", "min_anonymity = 5"))


def without_request(forger: Forger) -> None:
    """The ledger from before the request; the proof names its end."""
    forger.folder = forger.folder.parent / "before"
    at = len(forger.hashes)
    forger.document |= {"ledger_events": at, "ledger_head": forger.hashes[-1]}


LEDGER: Lies = {
    "retrain": {
        "replays that are not recorded": (
            in_the_ledger(unplayed),
            "record: replays: rounds up to 3",
        ),
        "replays that hold the leaver": (in_the_ledger(as_before), "names a client that has left"),
        "fewer rounds than were played": (
            in_the_ledger(fewer_rounds),
            "3 rounds had been played, not 0 to 2",
        ),
        "a retraining of nothing": (in_the_ledger(unrewound), "no roll-back follows a retrain"),
        "it trains again": (in_the_ledger(again_later), "names a client that has left"),
        "its handle has a name again": (in_the_ledger(back_by_handle), "record: names: the"),
        "its name has a handle again": (in_the_ledger(back_by_name), "subject: the ledger st"),
        "somebody else's answer": (in_the_ledger(made_out_in_the_chain), "the ledger still names"),
        "of somebody without a name": (
            in_the_ledger(made_out_without_a_name),
            "names: somebody takes part",
        ),
        "of another handle": (
            in_the_ledger(of_another_handle),
            "it is not the client that made the request",
        ),
        "an answer without a mark": (in_the_ledger(unmarked), "subject: the ledger's event"),
    },
    "subtract": {
        "a subtraction that is not recorded": (in_the_ledger(unplayed), "said of subtracted"),
        "sums that do not change": (in_the_ledger(unchanged_sums), "its sums lost 0"),
        "sums that lose others too": (
            in_the_ledger(seven_more),
            "1 left cluster 0, and its sums lost 8",
        ),
        "others in another cluster": (
            in_the_ledger(moved),
            "others are not in the clusters that are recorded",
        ),
    },
    "stop": {
        "it trains again after a stop": (in_the_ledger(again_later), "names a client that has left")
    },
    "deny": {
        "cut off, and grown again": (in_the_ledger(truncated), "no answer needs a replay"),
        "answered again later": (
            in_the_ledger(answered_again),
            "there was a request of this number",
        ),
        "asked after the answer": (
            in_the_ledger(request_after_the_answer),
            "no such request is open",
        ),
        "a request that is not in the chain": (
            in_the_ledger(lambda liar: liar.drop("LeaveRequested")),
            "no such request is open",
        ),
        "another basis in the table": (in_the_ledger(another_basis), "record: basis: the table"),
        "an erasure that is denied": (
            in_the_ledger(denied_erasure),
            "a request for erasure is never answered by deny",
        ),
        "settings of another run": (other_settings, "config_hash: the settings say"),
        "a ledger in which nobody asked": (without_request, "record: request: this ledger has no"),
    },
    "calibrate": {
        "no updates were stored": (
            in_the_ledger(not_stored),
            "updates_stored: the settings say True",
        )
    },
}

# in what holds the history fast: receipts, keys


def receipt(*, linked: bool = True, **changes: Any) -> Forge:
    return lambda forger: forger.receipt(linked=linked, **changes)


def receipt_at(size: int, root: bytes | None = None) -> Forge:
    return lambda forger: forger.receipt(checkpoint=forger.head(size, root=root).note())


def before_the_request(forger: Forger) -> None:
    position = next(
        at for at, record in enumerate(records_of(forger), 1) if record.kind == "LeaveRequested"
    )
    forger.receipt(checkpoint=forger.head(position - 1).note())


def records_of(forger: Forger) -> list[Any]:
    with Ledger.read(forger.folder / "ledger.sqlite") as ledger:
        return [*ledger.links()]


def dated_back(forger: Forger) -> None:
    forger.dated()  # nothing is known of when the key came into use
    forger.receipt(signed=LONG_AGO)


def unlinked(**changes: Any) -> Forge:
    def forge(forger: Forger) -> None:
        forger.receipt(linked=False)
        forger.document |= changes

    return forge


def strangers_receipt(forger: Forger) -> None:
    forger.receipt(key=signing_key(forger.place / "stranger" / "key.pem"))


def by_a_stranger(forger: Forger) -> None:
    forger.key = signing_key(forger.place / "stranger" / "key.pem")
    forger.document["covey_version"] = "0.2.1"


def key(**dates: str) -> Forge:
    return lambda forger: forger.dated(**dates)


def replaced(forger: Forger) -> None:
    """Another key came into use before the answer was signed with this one."""
    signing_key(forger.place / "newer" / "key.pem")
    newer = (forger.place / "newer" / "key.pub.pem").read_text()
    forger.keys.write_text(
        f"{forger.keys.read_text()}since: 2000-01-01T00:00:00.000+00:00\n"
        f"{newer.partition('-----BEGIN')[1]}{newer.partition('-----BEGIN')[2]}"
    )


def receipt_by_a_revoked_key(forger: Forger) -> None:
    forger.dated(revoked="2098-01-01T00:00:00.000+00:00")
    forger.receipt(signed=LATER)


ANCHORS: Lies = {
    "deny": {
        "a receipt of size 0": (receipt_at(0, root_of([])), "record: receipt: the run's folder"),
        "a receipt from before the request": (before_the_request, "receipt: it holds"),
        "a receipt of an invented tree": (receipt_at(5, bytes(32)), "receipt: the ledger's t"),
        "an invented hash of a receipt": (unlinked(receipt=NO_HASH), "receipt: the proof refers"),
        "an invented hash, and no receipt": (put(receipt=NO_HASH), "record: receipt: the run"),
        "a path from an invented tree": (unlinked(consistency=[NO_HASH]), "receipt: the ledger's"),
        "a receipt that nothing links to": (unlinked(receipt=None, consistency=[]), "receipt: the"),
        "a receipt that is dated back": (dated_back, "receipt: it was signed"),
        "a receipt from after the answer": (receipt(signed=LATER), "receipt: it was signed"),
        "a receipt of another request": (receipt(request="0" * 16), "receipt: request:"),
        "a receipt of another run": (receipt(run="0" * 16), "receipt: run:"),
        "a receipt without a head": (receipt(linked=False, checkpoint="-"), "must be a receipt"),
        "a proof as a receipt": (receipt(linked=False, format="covey-proof"), "must be a receipt"),
        "a stranger's receipt": (strangers_receipt, "receipt: its trust"),
        "a receipt by a revoked key": (receipt_by_a_revoked_key, "receipt: its key: it was rev"),
        "a stranger's proof": (by_a_stranger, "trust: signed by"),
        "a key that was revoked": (key(revoked=LONG_AGO), "key: it was revoked at"),
        "a key that came later": (key(since=LATER), "key: it came into use at"),
        "a key that was replaced": (replaced, "key: it was replaced at"),
    }
}

FORGERIES: dict[str, tuple[str, Forge, str]] = {
    f"words as {name}": ("deny", forge, "format: not a covey proof")
    for name, forge in WORDS.items()
} | {
    name: (kind, *lie)
    for lies in (FACTS, LEDGER, ANCHORS)
    for kind, lies_of_kind in lies.items()
    for name, lie in lies_of_kind.items()
}
"""By name: which answer it is about, how to lie, and what refuses it."""


def marked(name: str, kind: str) -> Any:
    """Return a parameter; a run is played for each kind, and those of two suffice by default."""
    return pytest.param(name, marks=() if kind in ("deny", "retrain") else pytest.mark.slow)


@pytest.mark.parametrize("name", [marked(name, lie[0]) for name, lie in FORGERIES.items()])
def test_a_forgery_is_refused(left, name, tmp_path):
    kind, forge, said = FORGERIES[name]
    forger = Forger(left(kind), tmp_path)
    forge(forger)
    verification = forger.shown()
    assert not verification.valid
    assert said in " | ".join(f"{check.name}: {check.detail}" for check in verification.failed)
    ok = {check.name: check.ok for check in verification.checks}
    assert ok["format"] is False or ok["signature"]
    assert not (verification.anchored and said.startswith("receipt: "))


KINDS = ("deny", "retrain", "stop", "subtract", "roll_back", "calibrate")


@pytest.mark.parametrize("kind", [marked(kind, kind) for kind in KINDS])
def test_an_honest_proof_holds_and_its_forger_does_too_where_nothing_is_forged(
    left, kind, tmp_path
):
    forger = Forger(left(kind), tmp_path)
    assert forger.document["answer"] == kind
    offline = verify(left(kind).proof)
    assert (offline.failed, offline.operator) == ((), ("facts", "history", "dates"))
    assert not any(statement.follows for statement in offline.statements)
    forger.receipt(linked=False)
    verification = forger.shown()
    assert verification.failed == ()
    (anchor,) = verification.anchored
    assert anchor.events == requested_at(forger)
    assert {"training", "models", "handle", "measured", "history", "dates"} <= {
        *verification.operator
    }
    follows = {statement.text: statement.follows for statement in verification.statements}
    assert follows["A client requested to leave this run, and takes part in no later round of it."]
    deleted = [text for text in follows if "eleted" in text or "copy" in text or "Copies" in text]
    assert deleted
    assert not any(follows[text] for text in deleted)
    forger.arguments.clear()
    in_the_ledger(lambda _: None)(forger)
    assert forger.shown().failed == ()


def requested_at(forger: Forger) -> int:
    (at,) = (n for n, record in enumerate(records_of(forger), 1) if record.kind == "LeaveRequested")
    return at


def test_a_proof_from_before_the_first_round_holds_and_claims_no_settings(tmp_path):
    config, place = Config.of(SETTINGS), tmp_path / "run"
    one = Run.of(place, config).forget(LEAVER, "auto")[0].answered
    for rounds in (0, 3):
        if rounds:
            resume(place)
        verification = verify(one.proof, place, name_and_salt=(LEAVER, one.salt))
        assert verification.failed == ()
        assert ("deniability_threshold" in verification.operator) == (not rounds)
