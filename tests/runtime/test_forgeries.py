"""Everything that a signer who lies has tried: the right key, and something that does not hold."""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from covey import Config, Run, resume, run, verify
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.ledger.tree import TreeHead, root_of
from covey.unlearning.proof import Proof, subject_mark
from covey.unlearning.signature import COSIGNATURE, key_line, signing_key
from runtime.left_runs import LEAVER, OTHER, SETTINGS
from runtime.lying import Forger, Liar, entries_in, in_the_ledger, moment, rounds_of

Forge = Callable[[Forger], Any]

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
    return lambda forger: [each.update(size_left=size) for each in forger.document["rounds"]]


def shorter(name: str) -> Forge:
    return lambda forger: forger.document[name].pop()


def twice(forger: Forger) -> None:
    forger.document["rounds"].append(dict(forger.document["rounds"][-1]))


def later_touch(forger: Forger) -> None:
    forger.document["touched"][0]["round_index"] += 1


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

FACTS: dict[str, tuple[str, Forge, str]] = {
    "set sizes of 100": ("deny", sized(100), "rounds: the ledger gives"),
    "set sizes below x": ("deny", sized(1), "facts: others contradict what is said of rounds"),
    "a denial without x": (
        "deny",
        put(deniability_threshold=None),
        "said of deniability_threshold",
    ),
    "a denial that changes the model": ("deny", put(model_after=NO_HASH), "said of model_after"),
    "a set less": ("deny", shorter("rounds"), "rounds: the ledger gives"),
    "a set twice": ("deny", twice, "said of rounds"),
    "another cluster": ("deny", inside("rounds", 0, "cluster", value=7), "rounds: the ledger"),
    "a small diameter": (
        "deny",
        inside("rounds", 0, "diameter", value=known(0.001)),
        "rounds: the ledger gives",
    ),
    "another x": ("deny", put(deniability_threshold=2), "deniability_threshold: the ledger"),
    "another k": ("deny", put(min_anonymity=40), "min_anonymity: the ledger gives 4"),
    "another distance": ("deny", put(max_distance=0.5), "max_distance: the ledger gives None"),
    "asked in 1999": ("deny", put(asked=LONG_AGO), "asked: the ledger"),
    "answered in 1999": ("deny", put(answered=LONG_AGO), "said of answered"),
    "answered in 2099": ("deny", put(answered=LATER), "answered: after"),
    "answered some day": ("deny", put(answered="lately"), "format: not a covey proof: 'answered'"),
    "answered on no day": (
        "deny",
        put(answered="2025-13-41T00:00:00.000+00:00"),
        "said of answered",
    ),
    "nothing touched": ("deny", put(touched=[]), "touched: the ledger gives"),
    "touched in another round": ("deny", later_touch, "touched: the ledger gives"),
    "it came later": ("deny", put(first_round=2), "said of first_round"),
    "it never came": ("deny", put(first_round=None), "said of first_round"),
    "it was never used": ("deny", put(representative_probability=known(0.0)), "representative"),
    "nobody can tell": ("deny", put(refutation=known(0.5)), "refutation: the ledger gives"),
    "no probability": ("deny", put(refutation=known(7.0)), "'refutation'.'value'"),
    "other secrets": ("deny", put(secrets="os"), "secrets: the ledger gives 'seeded'"),
    "another basis": ("deny", put(basis="withdrawal"), "basis: the ledger gives 'none'"),
    "a guarantee": ("deny", put(guarantee=known(GUARANTEE)), "guarantee: the ledger"),
    "another reason": ("deny", put(guarantee=unknown("SEEDED")), "guarantee: the ledger"),
    "updates deleted": ("deny", put(raw_updates_deleted=known(True)), "raw_updates_deleted"),  # noqa: FBT003
    "traces deleted": ("deny", put(superseded_deleted={"traces": 9}), "'superseded_deleted'"),
    "many states deleted": ("deny", put(superseded_deleted={"states": 9}), "more than"),
    "a measurement of one's own": ("deny", put(measured=known({"auc": 0.5})), "'measured'"),
    "a measurement that is no share": (
        "deny",
        put(measured=known({"before": {**FIGURE, "mia_accuracy": 7.0}, "after": None})),
        "'measured'.'value'",
    ),
    "an interval upside down": (
        "deny",
        put(measured=known({"before": {**FIGURE, "low": 0.9}, "after": None})),
        "said of measured",
    ),
    "another run": ("deny", put(run="0" * 16), "run: the ledger gives"),
    "another tree": ("deny", put(tree_root=NO_HASH), "head: the tree that is signed"),
    "another model afterwards": ("retrain", put(model_after=NO_HASH), "model_after: the ledger"),
    "another request": ("deny", put(request="0" * 16), "request: this ledger has no request"),
    "other models": (
        "deny",
        put(model_before=NO_HASH, model_after=NO_HASH),
        "model_before: the ledger",
    ),
    "another head": ("deny", put(ledger_head=NO_HASH), "ledger: event"),
    "no head": ("deny", put(ledger_events=10_000), "the ledger has"),
    "an earlier head": ("deny", put(ledger_events=1), "is not the one"),
    "a head of size -5": ("deny", put(ledger_events=-5), "'ledger_events'"),
    "a head of size 0": ("deny", put(ledger_events=0), "'ledger_events'"),
    "a head of size 10^30": ("deny", put(ledger_events=10**30), "'ledger_events'"),
    "an invented path to the head": ("deny", put(inclusion=[NO_HASH]), "head: the tree"),
    "no path to the head": ("deny", put(inclusion=[]), "head: the tree"),
    "a path that is none": ("deny", put(inclusion=["x"]), "'inclusion'"),
    "an older format": ("deny", put(version=6), "must be of format 7, found 6"),
    "no format": ("deny", put(version=None), "must be of format 7, found None"),
    # another answer than the one that was given
    "a denial as a retraining": ("deny", put(answer="retrain"), "answer: the ledger"),
    "a denial as a calibration": ("deny", put(answer="calibrate"), "answer: the ledger"),
    "a denial as a roll-back": ("deny", put(answer="roll_back"), "said of first_replayed_round"),
    "a denial as a stop": ("deny", put(answer="stop"), "answer: the ledger gives 'deny'"),
    "a denial as a replay": (
        "deny",
        put(**AS_RETRAINING, first_affected_round=0, first_replayed_round=0, rounds_replayed=3),
        "answer: the ledger gives 'deny'",
    ),
    "a denial that keeps nothing": ("deny", put(sealed_record_kept=False), "sealed_re"),
    "a retraining that keeps": (
        "retrain",
        put(sealed_record_kept=True),
        "said of sealed_record_kept",
    ),
    "a roll-back as a retraining": (
        "roll_back",
        put(**AS_RETRAINING),
        "answer: the ledger gives 'roll_back'",
    ),
    "a longer replay": ("roll_back", put(rounds_replayed=9), "rounds_replayed: the"),
    "an earlier replay": ("roll_back", put(first_replayed_round=0), "first_"),
    "a later break": ("roll_back", put(first_affected_round=2), "first_affected_round:"),
    "choices made anew": ("roll_back", put(replayed="anew"), "replayed: the ledger"),
    "a calibration as a retraining": (
        "calibrate",
        put(**AS_RETRAINING),
        "answer: the ledger gives 'calibrate'",
    ),
    "a stop that deletes": (
        "stop",
        put(superseded_deleted={"pages": 1}),
        "said of superseded_deleted",
    ),
    "a stop as a denial": ("stop", put(answer="deny"), "answer: the ledger gives 'stop'"),
    "a subtraction as a retraining": (
        "subtract",
        put(**AS_RETRAINING, subtracted=[]),
        "answer: the ledger gives 'subtract'",
    ),
    "a subtraction of other sums": (
        "subtract",
        inside("subtracted", 0, "before", value=NO_HASH),
        "subtracted: the ledger gives",
    ),
    "sums that are others afterwards": (
        "subtract",
        inside("subtracted", 0, "after", value=NO_HASH),
        "subtracted: ",
    ),
    "fewer clients in the sums": (
        "subtract",
        inside("subtracted", 0, "clients_after", value=0),
        "subtracted: the ledger gives",
    ),
    "sums that nobody left": (
        "subtract",
        inside("subtracted", 0, value={**SUMS, "after": "1" * 64}),
        "said of subtracted",
    ),
    "sums with more clients": (
        "subtract",
        inside("subtracted", 0, "clients_before", value=0),
        "said of subtracted",
    ),
    "no sums": ("subtract", put(subtracted=[]), "said of subtracted"),
    "sums of a denial": ("deny", put(subtracted=[SUMS]), "said of subtracted"),
    "an earlier subtraction": ("subtract", put(first_replayed_round=1), "first_"),
    "a longer subtraction": ("subtract", put(rounds_replayed=2), "rounds_replayed: "),
    "a subtraction that was played anew": ("subtract", put(replayed="anew"), "said of replayed"),
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
    "own sums of a denial": ("deny", put(own_sums_kept=True), "said of own_sums_kept"),
    "a denial as a subtraction": (
        "deny",
        put(answer="subtract"),
        "answer: the ledger gives 'deny'",
    ),
    "a retraining as a subtraction": (
        "retrain",
        put(answer="subtract", replayed="subtracted", sealed_record_kept=True),
        "said of rounds_replayed, subtracted",
    ),
    "sets where there were none": ("calibrate", put(min_anonymity=9), "min_anonymity"),
    "somebody else's proof": ("retrain", put(subject=MARK), "subject: the ledger gives"),
}

# words under a signature: where a code or a number belongs

WORDS: dict[str, tuple[str, Forge, str]] = {
    f"words as {each.name}": ("deny", put(**{each.name: PROSE}), "format: not a covey proof")
    for each in fields(Proof)
    if each.name != "signature"
}
WORDS |= {
    f"words as {name}": ("deny", put(**{name: [PROSE]}), "format: not a covey proof")
    for name in ("claim", "summary", "done", "limits", "refuters", "left_to_do")
}
WORDS |= {
    f"words as the reason of {name}": (
        "deny",
        put(**{name: unknown(PROSE)}),
        f"format: not a covey proof: '{name}'.'reason'",
    )
    for name in (
        *("representative_probability", "refutation"),
        *("guarantee", "raw_updates_deleted", "measured"),
    )
}
WORDS |= {
    f"words in {name}": ("deny", forge, "format: not a covey proof")
    for name, forge in {
        "a diameter": inside("rounds", 0, "diameter", value=unknown(PROSE)),
        "what was touched": inside("touched", 0, "what", value=PROSE),
        "a guarantee": put(guarantee=known({**GUARANTEE, "certified": PROSE})),
        "what a guarantee covers": put(guarantee=known({**GUARANTEE, "covers": [PROSE]})),
        "a guarantee's relation": put(guarantee=known({**GUARANTEE, "relation": PROSE})),
        "a copy": put(copies=[{**COPY, "what": PROSE}]),
        "what became of a copy": put(copies=[{**COPY, "fate": PROSE}]),
        "the hash of a copy": put(copies=[{**COPY, "sha256": PROSE}]),
        "where a copy was": put(copies=[{**COPY, "path_sha256": PROSE}]),
        "what was deleted": put(superseded_deleted={PROSE: 1}),
        "a version with words": put(covey_version="0.2.0.dev1 experts certify it"),
    }.items()
}
WORDS["a book as a recipient"] = (
    "deny",
    put(copies=[{**COPY, "recipient": PROSE * 1_000}]),
    "format: not a covey proof: 'copies'",
)

# in the ledger: rewritten, sealed again, and signed as it follows


def unplayed(liar: Liar) -> None:
    liar.replay([])


def as_before(liar: Liar) -> None:
    liar.replay(liar.rounds(again=False))


@cache
def another_run(kind: str, base: Any) -> Any:
    """A run with the same settings and another seed."""
    del kind
    return run(config=Config.of({**SETTINGS, "seed": 7}), out=base).folder


def of_another_run(liar: Liar) -> None:
    folder = another_run("retrain", liar.forger.place.parent / "another-run")
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        liar.replay([e for e in rounds_of(entries_in(ledger)) if not starts(e[1])] or [])


def starts(records: list[Record]) -> bool:
    records[:] = [r for r in records if r.kind not in ("RunStarted", "ComponentsUsed")]
    return not records


def a_cohort_with_it(liar: Liar) -> Record:
    return Record(3, "CohortSampled", {"handles": [liar.handle]})


def again_later(liar: Liar) -> None:
    liar.drop("RunFinished")
    del liar.entries[liar.signed :]
    liar.add(a_cohort_with_it(liar))


def truncated(liar: Liar) -> None:
    """Cut off before the request, and grown again to what it was, without the request."""
    liar.follows = False
    kinds = ("LeaveRequested", "ClientLeft")
    old = sum(len(some) for _, some in liar.entries)
    liar.entries = [e for e in liar.entries if not any(r.kind in kinds for r in e[1])]
    while sum(len(some) for _, some in liar.entries) < old:
        liar.add(Record(None, "RunRolledBack", {"round_index": 3, "until": 3, "how": "anew"}))


def answered_again(liar: Liar) -> None:
    """The same request, put down and answered once more after the proof."""
    mine = [
        Record(None, r.kind, {**r.body})
        for _, some in liar.entries
        for r in some
        if r.kind in ("LeaveRequested", "ClientLeft")
    ]
    liar.add(*mine)


def answered_twice(liar: Liar) -> None:
    again = next(r for r in liar.entries[liar.answer][1] if r.kind == "ClientLeft")
    liar.entries[liar.answer][1].append(Record(None, again.kind, {**again.body}))


def asked_after_the_answer(liar: Liar) -> None:
    at = next(
        i for i, (_, some) in enumerate(liar.entries) for r in some if r.kind == "LeaveRequested"
    )
    asked = liar.entries.pop(at)
    liar.entries.insert(liar.answer + 1, asked)


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


def as_written_before(liar: Liar) -> None:
    """Without the fields that an older version did not write."""
    for body in liar.of("RunStarted"):
        for name in ("deniability_threshold", "updates_stored", "secrets"):
            del body[name]
    for body in liar.of("ClientLeft"):
        del body["subject"]


def a_request_as_written_before(liar: Liar) -> None:
    for body in liar.of("LeaveRequested"):
        del body["subject"]


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


def nobody_asked(forger: Forger) -> None:
    """The ledger from before the request; the proof names its end."""
    forger.folder = forger.folder.parent / "before"
    at = len(forger.hashes)
    forger.document |= {"ledger_events": at, "ledger_head": forger.hashes[-1]}


def broken(forger: Forger) -> None:
    place = sqlite3.connect(forger.own_folder() / "ledger.sqlite")
    place.execute("UPDATE events SET hash = ? WHERE position = 2", (NO_HASH,))
    place.commit()
    place.close()


LEDGER: dict[str, tuple[str, Forge, str]] = {
    name: (kind, in_the_ledger(lie), said)
    for name, (kind, lie, said) in {
        "replays that are not recorded": ("retrain", unplayed, "record: replays: round 0"),
        "replays that hold the leaver": ("retrain", as_before, "record: later events"),
        "a roll-back that holds it": ("roll_back", as_before, "record: later events"),
        "replays of another run": ("retrain", of_another_run, "ledger: The ledger is broken"),
        "a calibration that is not recorded": ("calibrate", unplayed, "record: replays:"),
        "a subtraction that is not recorded": ("subtract", unplayed, "record: replays:"),
        "fewer rounds than were played": ("retrain", fewer_rounds, "record: replays: 3 rounds"),
        "a retraining of nothing": ("retrain", unrewound, "record: rounds that count"),
        "it trains again": ("retrain", again_later, "record: later events: event"),
        "it trains again after a denial": ("deny", again_later, "record: later events"),
        "it trains again after a stop": ("stop", again_later, "record: later events"),
        "cut off, and grown again": ("deny", truncated, "is not the one that the proof was made"),
        "cut off after a retraining, and grown again": ("retrain", truncated, "ledger: "),
        "answered again later": ("deny", answered_again, "or several"),
        "answered twice at once": ("deny", answered_twice, "or several"),
        "asked after the answer": ("deny", asked_after_the_answer, "record: answer: the ledger"),
        "its handle has a name again": ("retrain", back_by_handle, "record: names: the"),
        "its name has a handle again": ("retrain", back_by_name, "subject: the ledger st"),
        "no updates were stored": ("calibrate", not_stored, "record: answer: a calibrat"),
        "sums that do not change": ("subtract", unchanged_sums, "its sums lost 0"),
        "sums with one less that are the same": ("subtract", same_sums, "did not change"),
        "sums that lose others too": ("subtract", seven_more, "record: subtracted: 1 left"),
        "others in another cluster": ("subtract", moved, "record: subtracted: in round 2"),
        "somebody else's answer": ("retrain", made_out_in_the_chain, "the ledger still names"),
        "of somebody without a name": ("retrain", made_out_without_a_name, "names: in round"),
        "of another handle": (
            "retrain",
            of_another_handle,
            "record: subject: the requester is not",
        ),
        "an answer without a mark": ("retrain", unmarked, "subject: the ledger's event"),
        "events as an older version wrote them": (
            "deny",
            as_written_before,
            "ledger: The ledger is broken",
        ),
        "a request as an older version wrote it": (
            "deny",
            a_request_as_written_before,
            "ledger: The ledger is broken",
        ),
        "a request that is not in the chain": (
            "deny",
            lambda liar: liar.drop("LeaveRequested"),
            "record: answer: the ledger records no answer to this request, or no request",
        ),
        "another basis in the table": ("deny", another_basis, "record: basis: the table"),
        "an erasure that is denied": ("deny", denied_erasure, "record: basis: A request"),
    }.items()
}
LEDGER |= {
    "settings of another run": ("deny", other_settings, "record: config.toml: not the settings"),
    "a ledger in which nobody asked": (
        "deny",
        nobody_asked,
        "record: request: this ledger has no request",
    ),
    "a chain that is broken": ("deny", broken, "ledger: The ledger is broken"),
}

# in what holds the history fast: receipts, witnesses, keys


def receipt(*, linked: bool = True, **changes: Any) -> Forge:
    return lambda forger: forger.receipt(linked=linked, **changes)


def receipt_at(size: int, root: bytes | None = None) -> Forge:
    return lambda forger: forger.receipt(checkpoint=forger.head(size, root=root).note())


def before_the_request(forger: Forger) -> None:
    asked = next(
        at for at, each in enumerate(records_of(forger), 1) if each.kind == "LeaveRequested"
    )
    forger.receipt(checkpoint=forger.head(asked - 1).note())


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


def seen(at: int | None = None, *, root: bytes | None = None, **given: Any) -> Forge:
    def forge(forger: Forger) -> None:
        size = forger.document["ledger_events"] if at is None else at
        forger.witness(forger.head(size, root=root), **given)

    return forge


def seen_before_it_was_asked(forger: Forger) -> None:
    early = moment(forger.document, "asked") - 3_600
    forger.witness(forger.head(forger.document["ledger_events"]), early)


def seen_before_it_was_asked_without_the_ledger(forger: Forger) -> None:
    seen_before_it_was_asked(forger)
    forger.folder = None  # type: ignore[assignment]


def seen_elsewhere(forger: Forger) -> None:
    head = forger.head(forger.document["ledger_events"])
    forger.witness(TreeHead("covey.run/0000", head.size, head.root).signed(forger.key))


def seen_by_a_stranger(forger: Forger) -> None:
    forger.witness(forger.head(forger.document["ledger_events"]))
    seen, known = forger.given["witness"]
    stranger = signing_key(forger.place / "stranger" / "key.pem").public_key()
    known.write_text(key_line("stranger.example", stranger, COSIGNATURE) + "\n")
    forger.given["witness"] = (seen, known)


def seen_by_a_receipt(forger: Forger) -> None:
    seen_by_a_stranger(forger)
    _, public = forger.given["witness"]
    forger.given["witness"] = (next((forger.folder / "receipts").iterdir()), public)


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


ANCHORS: dict[str, tuple[str, Forge, str]] = {
    "a receipt of size 0": (
        "deny",
        receipt_at(0, root_of([])),
        "record: receipt: the run's folder",
    ),
    "a receipt of size -5": ("deny", receipt_at(-5), "receipt: "),
    "a receipt of size 10^30": ("deny", receipt_at(10**30), "receipt: "),
    "a receipt from before the request": ("deny", before_the_request, "receipt: it holds"),
    "a receipt of an invented tree": ("deny", receipt_at(5, bytes(32)), "receipt: the ledger's t"),
    "an invented hash of a receipt": (
        "deny",
        unlinked(receipt=NO_HASH),
        "receipt: the proof refers to another receipt",
    ),
    "an invented hash, and no receipt": (
        "deny",
        put(receipt=NO_HASH),
        "record: receipt: the run's folder",
    ),
    "a path from an invented tree": (
        "deny",
        unlinked(consistency=[NO_HASH]),
        "receipt: the ledger's tree at the proof does not begin",
    ),
    "an invented path, and no receipt": ("deny", put(consistency=[NO_HASH]), "record: receipt"),
    "a path without a receipt": (
        "deny",
        put(receipt=None, consistency=[NO_HASH]),
        "said of consistency",
    ),
    "a receipt that nothing links to": (
        "deny",
        unlinked(receipt=None, consistency=[]),
        "receipt: the proof refers to another receipt, or to none",
    ),
    "a receipt that is dated back": ("deny", dated_back, "receipt: it was signed"),
    "a receipt from after the answer": ("deny", receipt(signed=LATER), "receipt: it was signed"),
    "a receipt of some day": ("deny", receipt(signed="lately"), "receipt: "),
    "a receipt of another request": ("deny", receipt(request="0" * 16), "receipt: request:"),
    "a receipt of another client": ("deny", receipt(subject="0" * 64), "receipt: subject:"),
    "a receipt of another moment": ("deny", receipt(asked=LONG_AGO), "receipt: asked:"),
    "a receipt of another answer": ("deny", receipt(wanted="retrain"), "receipt: wanted:"),
    "a receipt of another basis": ("deny", receipt(basis="erasure"), "receipt: basis:"),
    "a receipt of another run": ("deny", receipt(run="0" * 16), "receipt: run:"),
    "a receipt without a head": (
        "deny",
        receipt(linked=False, checkpoint="-"),
        "must be the receipt of a request",
    ),
    "a proof as a receipt": (
        "deny",
        receipt(linked=False, format="covey-proof"),
        "must be the receipt of a request",
    ),
    "a receipt that was signed again": (
        "deny",
        receipt(linked=False, signed=LATER),
        "receipt: the proof refers to another receipt",
    ),
    "a stranger's receipt": ("deny", strangers_receipt, "receipt: its trust"),
    "a receipt by a revoked key": (
        "deny",
        receipt_by_a_revoked_key,
        "receipt: its key: it was rev",
    ),
    "a witness from before the request": ("deny", seen_before_it_was_asked, "before it was made"),
    "a witness from before the request, without the ledger": (
        "deny",
        seen_before_it_was_asked_without_the_ledger,
        "witness: it holds the request, and is of",
    ),
    "a witness in 1970": ("deny", seen(seconds=0), "witness: it holds the request, and is of 1970"),
    "a witness of size 0": ("deny", seen(0, root=root_of([])), "witness: the history that"),
    "a witness of size -5": ("deny", seen(-5), "witness: "),
    "a witness of size 10^30": ("deny", seen(10**30), "witness: "),
    "a witness of an invented tree": ("deny", seen(root=bytes(32)), "witness: the history that"),
    "a witness of another ledger": ("deny", seen_elsewhere, "witness: the head is of another"),
    "a stranger as a witness": ("deny", seen_by_a_stranger, "witness: no key that you trust"),
    "a receipt as a witness": ("deny", seen_by_a_receipt, "witness: "),
    "a witness whose key was revoked": (
        "deny",
        seen(until="2096-01-01T00:00:00.000+00:00"),
        "witness: witness",
    ),
    "a stranger's proof": ("deny", by_a_stranger, "trust: signed by"),
    "a key that was revoked": ("deny", key(revoked=LONG_AGO), "key: it was revoked at"),
    "a key that came later": ("deny", key(since=LATER), "key: it came into use at"),
    "a key that was replaced": ("deny", replaced, "key: it was replaced at"),
}

FORGERIES: Mapping[str, tuple[str, Forge, str]] = {**FACTS, **WORDS, **LEDGER, **ANCHORS}
"""By name: which answer it is about, how to lie, and what refuses it."""


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(left, name, tmp_path):
    kind, forge, said = FORGERIES[name]
    forger = Forger(left(kind), tmp_path)
    forge(forger)
    found = forger.shown()
    assert not found.valid
    assert said in " | ".join(f"{each.name}: {each.detail}" for each in found.failed)
    ok = {each.name: each.ok for each in found.checks}
    assert ok["format"] is False or ok["signature"]
    assert not [each for each in found.anchored if f"{each.by}: " in said]


KINDS = ("deny", "stop", "subtract", "subtract, kept", "retrain", "roll_back", "calibrate")


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_proof_holds_and_its_forger_does_too_where_nothing_is_forged(
    left, kind, tmp_path
):
    forger = Forger(left(kind), tmp_path)
    assert forger.document["answer"] == kind.partition(",")[0]
    assert forger.document["own_sums_kept"] == kind.endswith("kept")
    offline = verify(left(kind).proof)
    assert (offline.failed, offline.operator) == ((), ("facts", "history", "dates"))
    forger.receipt(linked=False)
    found = forger.shown()
    assert found.failed == ()
    (anchor,) = found.anchored
    assert (anchor.by, anchor.events) == ("receipt", requested_at(forger))
    assert {"training", "models", "handle", "measured", "history", "dates"} <= {*found.operator}
    forger.given.clear()
    forger.witness(forger.head(forger.document["ledger_events"]))
    found = forger.shown()
    assert found.failed == ()
    assert [(each.by, each.when) for each in found.anchored] == [
        ("witness", "2096-10-02T07:06:40+00:00")
    ]
    assert "history" not in found.operator
    forger.given.clear()
    in_the_ledger(lambda _: None)(forger)
    assert forger.shown().failed == ()


def requested_at(forger: Forger) -> int:
    (at,) = (n for n, each in enumerate(records_of(forger), 1) if each.kind == "LeaveRequested")
    return at


def test_a_proof_from_before_the_first_round_holds_and_claims_no_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    config, place = Config.of(SETTINGS), tmp_path / "run"
    one = Run.of(place, config).forget(LEAVER, "auto")[0].answered
    for rounds in (0, 3):
        if rounds:
            resume(place)
        found = verify(one.proof, place, name_and_salt=(LEAVER, one.salt))
        assert found.failed == ()
        assert ("deniability_threshold" in found.operator) == (not rounds)


@pytest.mark.parametrize(
    "forge",
    [put(tree_root=NO_HASH), put(ledger_head=NO_HASH), put(ledger_events=5), shorter("inclusion")],
)
def test_a_head_that_is_not_the_last_of_its_tree_is_refused_without_the_ledger(
    left, forge, tmp_path
):
    forger = Forger(left("deny"), tmp_path)
    forge(forger)
    forger.folder = None  # type: ignore[assignment]
    assert [each.name for each in forger.shown().failed] == ["head"]


def test_only_name_and_salt_together_are_the_requester(left):
    one = left("deny")
    ok = {}
    for name, salt in ((LEAVER, one.salt), (OTHER, one.salt), (LEAVER, "00" * 16), ("\ud800", "")):
        found = verify(one.proof, name_and_salt=(name, salt))
        ok[name, salt] = {each.name: each.ok for each in found.checks}["subject"]
    assert [*ok.values()] == [True, False, False, False]
