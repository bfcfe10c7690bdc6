"""The words of a proof: sentences that follow from its facts alone, and a page to print."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from covey.base.names import round_number
from covey.unlearning.facts import Facts, SettledCopy
from covey.unlearning.proof import Proof

REASONS: Mapping[str, str] = {
    "no-distances": "the partition tells no distances",
    "not-hidden": "updates were not hidden in anonymity sets: every one of them was used",
    "no-set": "no anonymity set held the requester",
    "noise-unknown": "how far the noise reaches is not recorded",
    "none-stored": "this run stored no raw updates, so there were none to delete",
    "too-few": "the requester holds too few examples to attack",
    "not-at-hand": "the requester's data were not at hand",
    "gone": "the answer was interrupted, and the data are gone since",
    "diverged-before": "before the answer the model diverged",
    "diverged-after": "after the answer the model diverged",
}
"""Codes of why a value is not known, in words."""

_KINDS = {"pages": "of report, figures, metrics, audit and baseline"}
_NOT_KEPT = "The server kept sums of clusters, and no client's own."
_KEPT = (
    "The server kept every client's own sums as well, the requester's too until the "
    "answer, and keeps those of the clients that stay."
)


def sentences(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Return what a proof says in plain words, by subject.

    Returns:
        summary: the answer in three sentences.
        done: what was done.
        claim: the one thing that is claimed.
        limits: what the answer did not do and does not say.
        refuters: which of the requester's data were used, and who could know or show it.
        left_to_do: what people still have to do; empty if nothing is known of.
    """
    return {
        "summary": _summary(facts),
        "done": tuple(_done(facts)),
        "claim": (_claim(facts),),
        "limits": tuple(_limits(facts)),
        "refuters": tuple(_refuters(facts)),
        "left_to_do": tuple(_left_to_do(facts)),
    }


def proof_page(proof: Proof) -> str:
    """Return a proof as one printable page that needs nothing beside it."""
    return _page().render(proof=asdict(proof), changed=proof.model_changed, **sentences(proof))


@cache
def _page() -> Template:
    environment = Environment(
        loader=PackageLoader("covey.unlearning"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "digits": lambda value: f"{value:.3g}" if isinstance(value, float) else value,
        "numbered": lambda t: None if t is None else round_number(t),
        "reason": _reason,
        "kind": lambda kind: _KINDS.get(kind, kind),
    }
    return environment.get_template("proof.html")


def _reason(code: str) -> str:
    """Return a reason in words; those of guarantees are words already."""
    return REASONS.get(code, code)


def _summary(facts: Facts) -> tuple[str, str, str]:
    left = "A client asked to leave this run, and takes part in no later round of it."
    first, start, copies = facts.first_round, facts.first_replayed_round, _copies_left(facts)
    again = f"{_were(facts.rounds_replayed)} played again without it, {_beginning(start)}"
    match facts.answer:
        case "deny":
            hidden = "No recorded round held the client in an anonymity set."
            if facts.rounds:
                hidden = (
                    "In every recorded round whose anonymity set held it, at least "
                    f"{facts.deniability_threshold} other clients remain to whom what was "
                    "released can be attributed."
                )
            done = "The model was not changed: what it learnt from the client, it still holds."
            return left, done, hidden
        case "stop":
            done = "The model was not changed: what it learnt from the client, it still holds."
            return left, done, "Nothing was erased, the client's name neither."
        case "subtract" | "retrain" | "calibrate" if start is None:
            return left, "No round that counts holds its data, so none was played again.", copies
        case "subtract":
            done = (
                "Its records were subtracted from the sums that the models are solved "
                "from, and the models solved again."
            )
            return left, done, copies
        case "retrain":
            return left, f"{again}; the model is what came of that.", copies
        case "calibrate":
            unbounded = (
                "The model is an approximation, and how far it is from one without the "
                "client is not bounded."
            )
            return left, f"Its contribution was estimated and {_taken_out(facts)}", unbounded
        case "roll_back":
            before = "No round before them includes it."
            if first is not None and start is not None and first < start:
                several = f"rounds {round_number(first)} to {start}"
                rounds = f"round {start}" if first == start - 1 else several
                before = f"The model was not rid of what it learnt from the client in {rounds}."
            return left, f"{again}.", before


def _taken_out(facts: Facts) -> str:
    beginning = _beginning(facts.first_replayed_round)
    return f"taken out of {_counted(facts.rounds_replayed, 'round')}, {beginning}."


def _copies_left(facts: Facts) -> str:
    left = len(_elsewhere(facts))
    owed = len({each.recipient for each in facts.copies if each.notify})
    if not left and not owed:
        return "No copy of an earlier model or page is on record elsewhere."
    return (
        f"Copies of earlier models or pages are on record elsewhere: {left} not "
        f"deleted, and {_counted(owed, 'recipient')} to be told."
    )


def _elsewhere(facts: Facts) -> list[SettledCopy]:
    return [each for each in facts.copies if each.fate in ("outside", "missing")]


def _done(facts: Facts) -> Iterator[str]:
    if facts.model_changed:
        yield (
            f"The model's parameters were changed: their SHA-256 was {facts.model_before} "
            f"before the answer and is {facts.model_after} after it."
        )
    else:
        yield (
            f"The model's parameters were not changed: before and after the answer "
            f"their SHA-256 is {facts.model_after}."
        )
    yield from _replayed(facts)
    for each in facts.subtracted:
        if gone := each.clients_before - each.clients_after:
            yield (
                f"The sums of cluster {each.cluster} lost the records of "
                f"{_counted(gone, 'client')}, of {each.clients_before}: their SHA-256 was "
                f"{each.before} and is {each.after}."
            )
    yield from _deleted(facts)
    if facts.measured.value is not None:
        yield (
            "An attack on the requester's data was measured before and after the "
            "answer: see the figures and their intervals."
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
    yield f"{_were(facts.rounds_replayed)} played again, {_beginning(start)}."
    if first is not None and first >= start > 0:
        number = round_number(first)
        yield f"No round before them includes the requester, whose first is {number}."


def _deleted(facts: Facts) -> Iterator[str]:
    updates = facts.raw_updates_deleted
    yield {
        None: f"No raw updates were deleted: {_reason(updates.reason)}.",
        True: "The requester's raw updates that the run had stored were deleted.",
        False: "Raw updates were not deleted.",
    }[updates.value]
    counts = sorted((_KINDS.get(kind, kind), n) for kind, n in facts.superseded_deleted.items())
    kinds = "; ".join(f"{n} {kind}" for kind, n in counts)
    yield f"Superseded artefacts deleted before this was signed: {kinds or 'none'}."
    fates = [each.fate for each in facts.copies]
    if not fates:
        yield "No copy of a model or a page was on record."
        return
    yield (
        f"Copies of models and pages on record: {len(fates)}, of which deleted, in the "
        f"run's folder: {fates.count('deleted')}."
    )
    if stay := fates.count("unchanged"):
        yield f"Left as they are, since the answer did not change their models: {stay}."


def _claim(facts: Facts) -> str:
    start, count = facts.first_replayed_round, facts.rounds_replayed
    match facts.answer:
        case "deny":
            return (
                "In every recorded round whose anonymity set held the requester, what was released "
                f"is attributable to at least {facts.deniability_threshold} remaining clients, "
                "within the diameter where one is recorded."
            )
        case "stop":
            return "No round after this answer uses the requester's data, and nothing was erased."
        case "subtract" if start is None:
            return "No sums that count hold the requester's records: none were changed."
        case "subtract":
            return (
                "Every cluster's head was solved again from sums over the records of "
                "clients that stay, the requester's subtracted, with the others in the "
                "clusters that are recorded. A head whose cluster nobody is left in was "
                "set back to the one that the run began with."
            )
        case "roll_back":
            return (
                f"Replayed without the requester: {_counted(count, 'round')}, {_beginning(start)}."
            )
        case "retrain" if start is None:
            return "No round that counts holds the requester's data, so none was replayed."
        case "retrain":
            return (
                "Everything from before the requester's first round was replayed "
                f"without it: {_counted(count, 'round')}, {_beginning(start)}."
            )
        case "calibrate":
            return (
                f"The requester's contribution was estimated from stored updates and "
                f"{_taken_out(facts)}"
            )


def _limits(facts: Facts) -> Iterator[str]:
    yield from _not_claimed(facts)
    first, start = facts.first_round, facts.first_replayed_round
    # a model that is solved from sums begins with no earlier one
    trained = facts.answer != "subtract"
    if trained and first is not None and start is not None and first < start:
        yield (
            f"Every round from {round_number(first)} to {start}, before the first replayed one, "
            "still includes the requester, and so do the models that the replay began with."
        )
    yield (
        "The requester's mark stays in the ledger, with its request and the answer: "
        "only its name and salt together make it again."
    )
    if facts.sealed_record_kept:
        yield (
            "A sealed record is kept in the ledger, which only the requester's name and "
            "salt together open: it finds the requester's rounds again, so that a "
            "stronger answer can still be given. Such an answer destroys it."
        )
    if facts.measured.value is None:
        yield (
            "No attack on the requester's data was measured before and after the "
            f"answer: {_reason(facts.measured.reason)}."
        )
    else:
        yield (
            "One attack on the requester's data was measured before and after the answer. "
            "Another attack may do better."
        )
    if facts.guarantee.value is None:
        yield f"No differential privacy is guaranteed: {facts.guarantee.reason}."
    else:
        yield (
            "Differential privacy is guaranteed only as stated with its mechanism, its "
            "neighbouring relation and its adversary."
        )
    yield (
        "Not covered: PostgreSQL's write-ahead log and backups, Flower's own database, "
        "and copies elsewhere, of models and pages, that covey has no record of."
    )
    yield "Whether this answer meets a legal duty is for a lawyer to say."


def _not_claimed(facts: Facts) -> Iterator[str]:
    match facts.answer:
        case "deny":
            yield (
                "This is not an erasure: what the model learnt, it still holds. It is "
                "not equivalent to retraining without the requester."
            )
        case "stop":
            yield (
                "This is not an erasure: what the model learnt, it still holds, and every state, "
                "update, page and copy stays."
            )
        case "roll_back" if facts.replayed == "anew":
            yield (
                "This is not an erasure, and not equivalent to retraining without the "
                "requester: the replay began with a model that may include it."
            )
        case "roll_back":
            yield (
                "This is not an erasure, and not equivalent to retraining without the requester: "
                "in the replay the others kept the clusters that they chose in its presence."
            )
        case "subtract" | "retrain" if facts.first_replayed_round is None:
            pass
        case "subtract":
            yield from _subtracted(facts)
        case "retrain":
            seeded = (
                "The replay equals a run without the requester bit for bit only on the same "
                "engine and with the same version of covey."
            )
            drawn_anew = (
                "The replay drew new secrets: it is a run without the requester, but nobody "
                "can repeat it bit for bit."
            )
            yield seeded if facts.secrets == "seeded" else drawn_anew
            yield (
                "The same parameters can come from different data: this document records what "
                "was done, and the parameters alone cannot confirm it."
            )
        case "calibrate":
            yield (
                "This is approximate. It is not an erasure, and not equivalent to retraining "
                "without the requester; how far it is from that is not bounded."
            )
    yield "Nothing is claimed about membership inference against the model."
    yield "Nothing here says that the requester took no part in the run."


def _subtracted(facts: Facts) -> Iterator[str]:
    yield (
        "This is not equivalent to retraining without the requester: the clusters that "
        "the others chose, risks and prices that were measured before, and pooling and "
        "regularisation where these chose them, were found in its presence."
    )
    if (earlier := facts.earlier_heads) is not None:
        yield (
            f"Whoever kept the heads that were released with the requester, "
            f"{earlier.heads} in all, can tell whether one of its records was there, and "
            f"is right with a chance of {earlier.bound:.3f} at most (0.5 is a guess), by "
            f"the noise of these heads and the weight {earlier.weight:.3f} of its records."
        )
    yield (
        "The rounds before stand in the ledger as they were, with the requester; their "
        "models and states were deleted from the run's folder, and hashes of them stay."
    )
    if facts.secrets == "seeded":
        yield (
            "The heads equal those of a run in which the requester's sums never came, and "
            "the others chose as recorded, bit for bit only on the same kind of machine "
            "and with the same version of covey; the sums themselves are exact."
        )


def _refuters(facts: Facts) -> Iterator[str]:
    yield _representative(facts)
    yield (
        "Who could refute it: whoever holds the server's logs, the seed or the noise, "
        "backups, or raw updates, and the other clients, each of which knows its own."
    )
    if facts.answer == "deny":
        yield (
            "The denial is false as soon as anybody has recorded which update stood for "
            "a set, or the seed or the noise that it was drawn with."
        )
    if facts.answer == "subtract":
        yield (
            "Whoever kept a cluster's sums from before the answer finds, by subtracting "
            "those after it, the sums of the requester alone, or of those who left with "
            "it, and from the sums of few records the features of these records. "
            f"{_KEPT if facts.own_sums_kept else _NOT_KEPT}"
        )
        yield (
            "Whoever holds the records of everybody else in a cluster can test a guess of "
            "the requester's records against the hash of the sums before."
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
    if facts.min_anonymity is None:
        return
    if facts.refutation.value is None:
        yield (
            "How often who holds the candidates' updates would tell the right one is "
            f"not known: {_reason(facts.refutation.reason)}."
        )
    else:
        yield (
            "Who holds the updates of two candidates tells the right one with "
            f"probability {_percent(facts.refutation.value)}."
        )


def _representative(facts: Facts) -> str:
    whose = (
        "The requester's"
        if facts.answer in ("deny", "stop")
        else "Before the answer, the requester's"
    )
    if facts.min_anonymity is None and facts.first_round is None:
        return "No round is recorded in which the requester's data were used."
    if facts.answer == "subtract":
        return (
            "Before the answer, the requester's records were in its cluster's sums as "
            "they were: nothing hid them."
        )
    if facts.min_anonymity is None:
        return f"{whose} updates were used as they were: no anonymity set hid them."
    may = f"{whose} update may have been the one that was used."
    chance = facts.representative_probability
    if chance.value is None:
        return f"{may} How probable that is, is not known: {_reason(chance.reason)}."
    return (
        f"{may} Rounds in which an anonymity set held it: {len(facts.rounds)}. Probability that it "
        f"was used in at least one of them: {_percent(chance.value)}."
    )


def _left_to_do(facts: Facts) -> Iterator[str]:
    if facts.raw_updates_deleted.value is False and facts.answer != "stop":
        yield (
            "Raw updates are still stored, and they identify which update stood for "
            "its set. Delete them."
        )
    if left := len(_elsewhere(facts)):
        yield (
            f"{_copies(left)} of earlier models and pages on record outside the run's "
            f"folder, where covey deletes nothing, to be deleted by whoever answered."
        )
    if owed := sum(each.notify for each in facts.copies):
        yield (
            f"{_copies(owed)} of a superseded model went to recipients on record, who "
            f"are to be notified (GDPR Art. 19)."
        )


def _copies(count: int) -> str:
    return f"{count} {'copy' if count == 1 else 'copies'}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _were(count: int) -> str:
    return f"{_counted(count, 'round')} {'was' if count == 1 else 'were'}"


def _beginning(start: int | None) -> str:
    """Return where a replay began, in words."""
    if start is None:
        return "from nowhere"
    name = f"round {round_number(start)}" if start else "the first round"
    return f"from just before {name}"


def _percent(probability: float) -> str:
    """Return three digits; what is not certain is never rounded to certainty."""
    if 0.9995 <= probability < 1:
        return "more than 99.9%"
    return f"{100 * probability:.3g}%"
