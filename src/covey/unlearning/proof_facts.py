"""What a proof must say of itself: its facts agree, and its sentences follow from them."""

from collections.abc import Iterator, Mapping
from typing import Any

from covey.errors import LedgerError
from covey.unlearning.proof import Proof, derived_text, forbidden_phrases
from covey.unlearning.signature import Check, instant

__all__ = ["check_facts", "check_text"]

REPLAYS = {"roll_back": ("recorded", "anew"), "retrain": ("anew",)}
REPLAYS |= {"calibrate": ("calibrated", "anew"), "subtract": ("subtracted",)}


def check_text(told: Proof, document: Mapping[str, Any]) -> Check:
    """Compare every sentence of a proof with those that its facts oblige it to say.

    A signer may put any sentence under a signature: only derived ones are accepted.
    """
    for name, expected in derived_text(told).items():
        if reason := _difference(getattr(told, name), expected):
            return Check.failed("text", f"{name}: {reason}")
    try:
        said = forbidden_phrases(document)
    except LedgerError as error:
        return Check.failed("text", ascii(str(error)))
    if said:
        return Check.failed("text", f"it says what no proof may say: {said[0]}")
    return Check.passed("text", "claim and limits are those that the facts bear")


def check_facts(told: Proof) -> Check:
    """Look for facts of a proof that contradict each other."""
    found = next((problem for problem in _contradictions(told)), None)
    if found:
        return Check.failed("facts", found)
    return Check.passed("facts", "they do not contradict each other")


def _difference(found: str | tuple[str, ...], expected: str | tuple[str, ...]) -> str:
    if found == expected:
        return ""
    said = (found,) if isinstance(found, str) else found
    due = (expected,) if isinstance(expected, str) else expected
    if more := next((each for each in said if each not in due), None):
        return f"{_short(more)} does not follow from the facts"
    if lacking := next((each for each in due if each not in said), None):
        return f"the facts oblige it to say {_short(lacking)}, and it does not"
    return "its sentences are not in the order that the facts give them"


def _short(sentence: str) -> str:
    """Return a sentence fit for a terminal."""
    return ascii(sentence if len(sentence) <= 90 else f"{sentence[:87]}...")


def _contradictions(told: Proof) -> Iterator[str]:
    yield from _times(told)
    yield from _replay(told)
    yield from _sets(told)
    yield from _sums(told)
    for name in ("representative_probability", "refutation"):
        value = getattr(told, name).value
        if value is not None and not 0 <= value <= 1:
            yield f"{name} is no probability: {value}"
    if told.earlier_heads is not None and told.answer != "subtract":
        yield "earlier_heads: it belongs to answers that subtract sums"
    if told.own_sums_kept and told.answer != "subtract":
        yield "own_sums_kept: it belongs to answers that subtract sums"
    if told.sealed_record_kept and told.answer == "retrain":
        yield "sealed_record_kept: after a retraining no sealed record is kept"


def _times(told: Proof) -> Iterator[str]:
    asked, answered = instant(told.asked), instant(told.answered)
    if asked is None or answered is None:
        yield "asked and answered must be moments, as ISO 8601 with an offset"
    elif answered < asked:
        yield "answered: before it was asked"


def _replay(told: Proof) -> Iterator[str]:
    start, affected = told.first_replayed_round, told.first_affected_round
    if start is None:
        if told.rounds_replayed or told.replayed or affected is not None:
            yield (
                "first_replayed_round: no round was played again, but others are counted "
                "or affected"
            )
        if told.answer == "roll_back":
            yield "first_replayed_round: a roll-back plays rounds again, and none is named"
        return
    if told.answer == "deny":
        yield "first_replayed_round: a denial plays no round again"
    elif told.replayed and told.replayed not in REPLAYS[told.answer]:
        yield f"replayed: {told.answer} does not play rounds again as {told.replayed}"
    if told.rounds_replayed < 1:
        yield "rounds_replayed: a round was played again, but none is counted"
    if affected is None or affected < start:
        yield "first_affected_round: it comes before the first replayed round, or is none"


def _sums(told: Proof) -> Iterator[str]:
    due = told.answer == "subtract" and told.first_replayed_round is not None
    if due != bool(told.subtracted):
        yield "subtracted: it belongs to answers that subtracted sums, and to those"
    if due and told.replayed != "subtracted":
        yield "replayed: sums were subtracted, and it does not say so"
    if due and told.rounds_replayed != 1:
        yield "rounds_replayed: a subtraction solves the heads of one round again"
    for j, each in enumerate(told.subtracted):
        gone = each.clients_before - each.clients_after
        if each.cluster != j or each.clients_after < 0 or gone < 0:
            yield "subtracted: clusters out of order, or of fewer clients than none"
        elif not gone and each.before != each.after:
            yield "subtracted: sums that nobody left were changed"


def _sets(told: Proof) -> Iterator[str]:
    places = [(each.round_index, each.cluster) for each in told.rounds]
    if len(set(places)) < len(places) or [t for t, _ in places] != sorted(
        t for t, _ in places
    ):
        yield "rounds: they are not in order, or one of them stands there twice"
    first = told.first_round
    if places and (first is None or places[0][0] < first):
        yield "first_round: a set held the requester before its first round"
