"""What proofs of version 1 said: every sentence follows from their facts as well.

It is here to check those that were signed; no proof is written in these words any more.
"""

from collections.abc import Iterator

from covey.unlearning.proof_text import (
    Facts,
    ValueOrReason,
    claim,
    guaranteed,
    kept,
    not_claimed,
)

__all__ = ["first_version_text"]


def first_version_text(facts: Facts) -> dict[str, str | tuple[str, ...]]:
    """Return every sentence that a proof of version 1 holds, by field."""
    sentences = (
        _model(facts),
        _representative(facts),
        *not_claimed(facts),
        *_earlier_rounds(facts),
        *_refuters(facts),
        *_copies(facts),
        *kept(facts),
        _measured(facts),
        guaranteed(facts),
        "Whether this answer meets a legal duty is for a lawyer to say.",
    )
    return {"claim": _claim(facts), "limits": sentences}


def _claim(facts: Facts) -> str:
    start, count = facts.first_replayed_round, facts.rounds_replayed
    match facts.answer:
        case "roll_back":
            return (
                f"The rounds from {start} on were replayed without the requester, "
                f"{count} in all."
            )
        case "retrain" if start is not None:
            return (
                "Everything from before the requester's first round was replayed "
                f"without it, from round {start} on, {count} in all."
            )
        case "calibrate":
            return (
                "The requester's contribution was estimated from stored updates and "
                f"taken out of the rounds from {start} on, {count} in all."
            )
        case _:
            return claim(facts)


def _model(facts: Facts) -> str:
    if facts.model_before == facts.model_after:
        return (
            f"The model's parameters were not changed: before and after the answer "
            f"their SHA-256 is {facts.model_after}."
        )
    return (
        f"The model's parameters were changed: their SHA-256 was {facts.model_before} "
        f"before the answer and is {facts.model_after} after it."
    )


def _representative(facts: Facts) -> str:
    whose = (
        "The requester's"
        if facts.answer == "deny"
        else "Before the answer, the requester's"
    )
    may = f"{whose} update may have been the one that was used."
    chance = facts.representative_probability
    if chance.value is None:
        return f"{may} How probable that is, is not known: {chance.reason}."
    return (
        f"{may} Rounds in which an anonymity set held it: {len(facts.rounds)}. "
        f"Probability that it was used in at least one of them: "
        f"{_percent(chance.value)}."
    )


def _earlier_rounds(facts: Facts) -> Iterator[str]:
    first, start = facts.first_round, facts.first_replayed_round
    if start is None:
        return
    yield f"The first replayed round is {start}."
    if first is None:
        return
    if first < start:
        yield (
            f"Every round from {first} to {start - 1}, before the first replayed one, "
            f"still includes the requester, and so do the models that the replay began "
            f"with."
        )
    else:
        yield f"No round before it includes the requester, whose first is {first}."


def _refuters(facts: Facts) -> Iterator[str]:
    yield (
        "Who could refute it: whoever holds the server's logs, the seed or the noise, "
        "backups, or raw updates, and the other clients, each of which knows its own."
    )
    if facts.answer == "deny":
        yield (
            "The denial is false as soon as anybody has recorded which update stood for "
            "a set, or the seed or the noise that it was drawn with."
        )
    if facts.secrets == "seeded":
        yield (
            "The secrets are recomputable from the seed: against whoever holds it there "
            "is no deniability and no differential privacy."
        )
    else:
        yield (
            "The secrets came from the operating system and were replaced after every "
            "round: whoever kept a copy of one can recompute its round."
        )
    if facts.refutation.value is None:
        yield (
            "How often who holds the candidates' updates would tell the right one is "
            f"not known: {facts.refutation.reason}."
        )
    else:
        yield (
            "Who holds the updates of two candidates tells the right one with "
            f"probability {_percent(facts.refutation.value)}."
        )


def _copies(facts: Facts) -> Iterator[str]:
    match facts.raw_updates_deleted:
        case ValueOrReason(True):
            yield "The requester's raw updates that the run had stored were deleted."
        case ValueOrReason(False):
            yield (
                "Raw updates are still stored, and they identify which update stood for "
                "its set."
            )
        case ValueOrReason(_, reason):
            yield f"Whether raw updates were deleted is not stated: {reason}."
    deleted = sorted(facts.superseded_deleted.items())
    kinds = ", ".join(f"{count} {kind}" for kind, count in deleted)
    yield f"Superseded artefacts deleted before this was signed: {kinds or 'none'}."
    yield (
        "Not covered: PostgreSQL's write-ahead log and backups, Flower's own database, "
        "and copies elsewhere."
    )


def _measured(facts: Facts) -> str:
    if facts.measured.value is None:
        return (
            "No attack on the requester's data was measured before and after the "
            f"answer: {facts.measured.reason}."
        )
    return (
        "An attack on the requester's data was measured before and after the answer: "
        "see the figures and their intervals. Another attack may do better."
    )


def _percent(probability: float) -> str:
    if 0.9995 <= probability < 1:
        return "more than 99.9%"
    return f"{probability:.1%}"
