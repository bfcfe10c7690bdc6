"""What a proof says was done: a summary in three sentences, then each action."""

from collections.abc import Iterator

from covey.types import round_number
from covey.unlearning.proof_text import Facts, ValueOrReason, beginning, counted

__all__ = ["answer_sentences", "summary_sentences"]


def summary_sentences(  # noqa: PLR0911 - one for each answer
    facts: Facts,
) -> tuple[str, str, str]:
    """Return the answer in three sentences."""
    asked = "A client asked to leave this run, and takes part in no later round of it."
    start, count = facts.first_replayed_round, facts.rounds_replayed
    again = f"{_were(count)} played again without it, {beginning(start)}"
    if start is None and facts.answer in ("subtract", "retrain", "calibrate"):
        nothing = "No round that counts holds its data, so none was played again."
        return asked, nothing, _left(facts)
    match facts.answer:
        case "deny":
            return (
                asked,
                "The model was not changed: what it learnt from the client, it still "
                "holds.",
                _hidden(facts),
            )
        case "subtract":
            return (
                asked,
                "Its records were subtracted from the sums that the models are solved "
                "from, and the models solved again.",
                _left(facts),
            )
        case "roll_back":
            return asked, f"{again}.", _before(facts)
        case "retrain":
            return asked, f"{again}; the model is what came of that.", _left(facts)
        case "calibrate":
            return (
                asked,
                f"Its contribution was estimated and taken out of "
                f"{counted(count, 'round')}, {beginning(start)}.",
                "The model is an approximation, and how far it is from one without the "
                "client is not bounded.",
            )


def answer_sentences(facts: Facts) -> tuple[str, ...]:
    """Return what the answer did, one sentence for each thing."""
    return (
        _model(facts),
        *_replayed(facts),
        *_sums(facts),
        *_deleted(facts),
        *_settled(facts),
        *_attacked(facts),
    )


def _hidden(facts: Facts) -> str:
    if not facts.rounds:
        return "No recorded round held the client in an anonymity set."
    return (
        "In every recorded round whose anonymity set held it, at least "
        f"{facts.deniability_threshold} other clients remain to whom what was released "
        f"can be attributed."
    )


def _before(facts: Facts) -> str:
    first, start = facts.first_round, facts.first_replayed_round
    if first is None or start is None or first >= start:
        return "No round before them includes it."
    rounds = (
        f"round {start}"
        if first == start - 1
        else f"rounds {round_number(first)} to {start}"
    )
    return f"The model was not rid of what it learnt from the client in {rounds}."


def _left(facts: Facts) -> str:
    left = [each for each in facts.copies if each.fate in ("outside", "missing")]
    owed = len({each.recipient for each in facts.copies if each.notify})
    if not left and not owed:
        return "No copy of an earlier model or page is on record elsewhere."
    return (
        f"Copies of earlier models or pages are on record elsewhere: {len(left)} not "
        f"deleted, and {counted(owed, 'recipient')} to be told."
    )


def _were(count: int) -> str:
    return f"{counted(count, 'round')} {'was' if count == 1 else 'were'}"


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


def _replayed(facts: Facts) -> Iterator[str]:
    first, start = facts.first_round, facts.first_replayed_round
    if start is None:
        yield "No round was played again."
        return
    if facts.answer == "subtract":
        number = round_number(start)
        yield f"The heads of round {number} were solved again; no client chose or trained."
        if facts.own_sums_kept:
            yield "What was subtracted are the requester's own sums, which were kept."
        return
    yield f"{_were(facts.rounds_replayed)} played again, {beginning(start)}."
    if first is not None and first >= start > 0:
        number = round_number(first)
        yield f"No round before them includes the requester, whose first is {number}."


def _sums(facts: Facts) -> Iterator[str]:
    for each in facts.subtracted:
        gone = each.clients_before - each.clients_after
        if gone:
            yield (
                f"The sums of cluster {each.cluster} lost the records of "
                f"{counted(gone, 'client')}, of {each.clients_before}: their SHA-256 was "
                f"{each.before} and is {each.after}."
            )


def _deleted(facts: Facts) -> Iterator[str]:
    match facts.raw_updates_deleted:
        case ValueOrReason(True):
            yield "The requester's raw updates that the run had stored were deleted."
        case ValueOrReason(None, reason):
            yield f"No raw updates were deleted: {reason}."
        case _:
            yield "Raw updates were not deleted."
    kinds = "; ".join(
        f"{count} {kind}" for kind, count in sorted(facts.superseded_deleted.items())
    )
    yield f"Superseded artefacts deleted before this was signed: {kinds or 'none'}."


def _settled(facts: Facts) -> Iterator[str]:
    fates = [each.fate for each in facts.copies]
    if not fates:
        yield "No copy of a model or a page was on record."
        return
    yield (
        f"Copies of models and pages on record: {len(fates)}, of which deleted, in the "
        f"run's folder: {fates.count('deleted')}."
    )
    if stay := fates.count("unchanged"):
        yield (
            f"Left as they are, since the answer did not change their models: {stay}."
        )


def _attacked(facts: Facts) -> Iterator[str]:
    if facts.measured.value is not None:
        yield (
            "An attack on the requester's data was measured before and after the "
            "answer: see the figures and their intervals."
        )
