"""What a ledger records of an answer, and what must stand in it afterwards.

What must stand in a ledger after an answer, since a signer may record it and go on.

    every round that is said to be played again is recorded, once
    no event after the answer holds the requester, nor does the table of names
    after a retraining or a calibration no round that counts holds it
    sums lost those who left, and nobody else

That rounds were trained as they are recorded, no event shows.

What a ledger records of an answer: what its proof must say, found from the events.

It shares no code with what writes proofs, but for the folds over events: an error there
would be found here.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any, cast

from covey.aggregation.base import AnonymityTerms
from covey.base.errors import RunError
from covey.base.events import (
    AnswerRefused,
    AnswersMissing,
    ClientLeft,
    ClientsAssigned,
    CohortSampled,
    Event,
    HeadsSolved,
    LeaveRequested,
    MovesWaited,
    RecordsChanged,
    RoundMeasured,
    SumGivenUp,
)
from covey.base.history import History, history_of
from covey.base.names import ClientName, Handle
from covey.base.risk import DIVERGED
from covey.build.aggregators import anonymity_of
from covey.build.algorithms import depends_on_population
from covey.build.training import algorithm_of
from covey.components.registry import is_built_in
from covey.config.settings import Config
from covey.dp.current_guarantee import guarantee_status, head_bounds
from covey.ledger.chain import Record, current_records, entries_of, root_of, superseded
from covey.ledger.store import Ledger
from covey.runtime.ledger_record import (
    AnswerEvents,
    LedgerRecord,
    answer_events,
    by_entry,
    event_of,
)
from covey.runtime.session import settings_hash
from covey.unlearning.participation import (
    latest_models,
    latest_sums,
    participation_of,
    representative_probability,
)
from covey.unlearning.plan import (
    AnswerRules,
    Option,
    check_basis,
    influences_on,
    options,
    sizes_left,
)
from covey.unlearning.proof import refutation_success
from covey.unlearning.signature import instant
from covey.unlearning.verifying import LedgerAnswer

OF_REQUESTS = (LeaveRequested.__name__, ClientLeft.__name__)
PLAYED = (CohortSampled, RoundMeasured)
"""What a run records of every round, whatever its algorithm is."""

Story = Sequence[tuple[int | None, Event]]


def problems_after(
    answer: AnswerEvents,
    records: Sequence[Record],
    position: int,
    names: Mapping[Handle, ClientName],
) -> Iterator[str]:
    """Say what the ledger holds, or lacks, that contradicts an answer.

    Args:
        answer: as it was recorded.
        records: all of the ledger's, those after the proof was signed too.
        position: of the event that the proof was signed at.
        names: that the ledger knows.
    """
    yield from _held_afterwards(answer, records, names)
    entries = by_entry(current_records(records[:position]))
    now = [(t, event) for t, events in entries for event in events]
    yield from _replays(answer, now)
    yield from _counted_rounds(answer, now)
    if answer.given.answer == "subtract" and answer.rewind:
        yield from _sums(answer, now)


def _held_afterwards(
    answer: AnswerEvents, records: Sequence[Record], names: Mapping[Handle, ClientName]
) -> Iterator[str]:
    """Look for the requester in what came later, whether that counts or not."""
    handle = answer.given.handle
    if handle in names:
        yield "names: the table still names the requester"
    later = enumerate(records[answer.end :], answer.end + 1)
    held = (at for at, r in later if r.kind not in OF_REQUESTS and _holds(r.body, handle))
    if (at := next(held, None)) is not None:
        yield f"later events: event {at}, after the answer, holds the requester"
    left = {r.body["handle"] for r in records if r.kind == ClientLeft.__name__}
    for record in records[answer.end :]:
        if record.kind == CohortSampled.__name__:
            unknown = set(record.body["handles"]) - names.keys() - left
            if unknown:
                yield (
                    f"names: in round {record.round_index} somebody takes part whom the "
                    f"table does not name, and who has not left"
                )
                return


def _replays(answer: AnswerEvents, now: Story) -> Iterator[str]:
    rewind = answer.rewind
    if rewind is None:
        return
    rounds = [t for t, _ in answer.before if t is not None]
    until = min(max(rounds, default=-1) + 1, answer.began.rounds)
    if rewind.until != until:
        yield f"replays: {until} rounds had been played, not {rewind.until}"
    counted = Counter((t, type(event)) for t, event in now)
    for t in range(rewind.round_index, rewind.until):
        if any(counted[t, kind] != 1 for kind in PLAYED):
            yield f"replays: round {t} is said to be played again, and is not recorded"
            return


def _counted_rounds(answer: AnswerEvents, now: Story) -> Iterator[str]:
    handle, given = answer.given.handle, answer.given.answer
    held = participation_of(now).first_round(handle)
    if given in ("retrain", "calibrate") and held is not None:
        yield f"rounds that count: round {held} holds the requester"
    if given == "calibrate" and not answer.began.updates_stored:
        yield "answer: a calibration takes stored updates, and the run stored none"
    first = participation_of(answer.before).first_trace(handle)
    if given == "subtract" and first is not None and answer.rewind is None:
        yield "replays: the requester's records were in sums, and none were changed"


def _sums(answer: AnswerEvents, now: Story) -> Iterator[str]:
    """Compare who left with what the sums lost, cluster by cluster."""
    t, gone = answer.began.rounds - 1, {each.handle for each in answer.batch}
    if answer.rewind is not None:
        t = answer.rewind.round_index
    again = [event for at, event in now if at == t]
    before = latest_sums(answer.before)
    after = next((each for each in again if isinstance(each, HeadsSolved)), None)
    if before is None or after is None or len(before.sums) != len(after.sums):
        yield f"replays: no heads are recorded as solved again in round {t}"
        return
    lacking = _lacking(chain(answer.facts, again)) - gone
    old, new = _chosen(answer.before, t), _chosen(now, t)
    stay = {h: j for h, j in old.items() if h not in gone | lacking}
    if stay != {h: j for h, j in new.items() if h not in lacking}:
        yield f"subtracted: in round {t} others are not in the clusters that are recorded"
    yield from _lost(answer, (before, after), gone, lacking)


def _lost(
    answer: AnswerEvents,
    solved: tuple[HeadsSolved, HeadsSolved],
    gone: Collection[Handle],
    lacking: Collection[Handle],
) -> Iterator[str]:
    before, after = solved
    places = _counted(answer.before)
    inside = Counter(places.values())
    for j in range(len(before.sums)):
        if inside[j] != before.clients[j]:
            yield (
                f"subtracted: {before.clients[j]} clients are said to be in cluster {j}, "
                f"and {inside[j]} chose it"
            )
            return
        left = {h for h in gone if places.get(h) == j}
        least, most = len(left), len(left) + sum(places.get(h) == j for h in lacking)
        lost = before.clients[j] - after.clients[j]
        if not least <= lost <= most:
            yield f"subtracted: {least} left cluster {j}, and its sums lost {lost}"
        if left and before.sums[j] == after.sums[j]:
            yield f"subtracted: {least} left cluster {j}, and its sums did not change"


def _lacking(events: Iterator[Event]) -> set[Handle]:
    """Return those who stay and gave no sums when these were made anew."""
    found: set[Handle] = set()
    for event in events:
        match event:
            case AnswersMissing(handles=some):
                found |= {*some}
            case SumGivenUp(clients=some) | MovesWaited(clients=some):
                found |= {*some}
            case AnswerRefused(handle=str(one)):
                found.add(one)
            case _:
                pass
    return found


def _chosen(story: Story, t: int) -> dict[Handle, int]:
    return {
        handle: j
        for at, event in story
        if at == t and isinstance(event, ClientsAssigned)
        for handle, j in event.clusters.items()
    }


def _counted(story: Story) -> dict[Handle, int]:
    """Return in which cluster's sums each client is."""
    places: dict[Handle, int] = {}
    for _, event in story:
        match event:
            case ClientsAssigned(clusters, by) if by != "final":
                places |= clusters
            case RecordsChanged(handle=handle, cluster=j):
                places[handle] = j
            case ClientLeft(handle=handle):
                places.pop(handle, None)
            case _:
                pass
    return places


def _holds(value: object, handle: Handle) -> bool:
    """Say whether a handle stands anywhere in an event's body."""
    inside: Iterable[object] = ()
    match value:
        case Mapping():
            inside = chain.from_iterable(cast("Mapping[str, object]", value).items())
        case list() | tuple():
            inside = cast("Iterable[object]", value)
        case _:
            return value == handle
    return any(_holds(each, handle) for each in inside)


Told = Mapping[str, Any]
"""A proof's document, which its own checks have not judged yet."""

NONE_STORED = "this run stored no raw updates, so there were none to delete"
NOT_HIDDEN = "updates were not hidden in anonymity sets: every one of them was used"
NO_DISTANCES = "the partition tells no distances"
TOO_FEW = "the requester holds too few examples to attack"
NOT_AT_HAND = "the requester's data were not at hand"
GONE = "the answer was interrupted, and the data are gone since"
DELETED = {"of report, figures, metrics, audit and baseline", "states", "updates"}
UNMEASURED = (TOO_FEW, NOT_AT_HAND, GONE)
DIVERGED_AT = tuple(f"{when} the answer the model {DIVERGED}: " for when in ("before", "after"))
FIGURES = {"cluster", "mia_accuracy", "low", "high"}
WORD = (
    "that rounds were trained as they are recorded",
    "that the hashes are those of the models in use",
    "whose handle it was",
    "measured",
    "copies",
    "superseded_deleted",
    "raw_updates_deleted",
    "covey_version",
)
"""What no event tells."""


def recorded_answer(
    ledger: Ledger, record: LedgerRecord, config: Config, told: Told
) -> LedgerAnswer:
    """Return what the ledger says of the answer that a proof speaks of.

    Args:
        ledger: verified; the proof was made at one of its events.
        record: what was read of it.
        config: the run's settings; they are compared with the ledger's hash of them.
        told: the proof.
    """
    records, times = record.records, ledger.times()
    requests = {each.id: each for each in ledger.requests()}
    request = requests.get(str(told.get("request")))
    if request is None:
        return _refused("request: nobody asked under this number in this ledger")
    answer = answer_events(records[: _position(told)], times, request)
    if answer is None:
        return _refused(
            "answer: the ledger records no answer to this request, or no request, before "
            "the event at which the proof was made"
        )
    if answer.began.config_hash != settings_hash(config):
        return _refused("config.toml: not the settings that began the run")
    expected, open_ = _expected(answer, config)
    if answer.given.answer == "subtract" and answer.rewind:
        expected |= {"subtracted": _subtracted(answer, records[: _position(told)])}
    root = root_of(entries_of(record.hashes[: _position(told)]))
    expected |= {"run": record.hashes[0][:16], "tree_root": root.hex()}
    history = _history(records[: _position(told)])
    expected |= {"guarantee": _guarantee(history)}
    bound = head_bounds(history.told).get(answer.given.handle)
    if answer.given.answer == "subtract" and bound:
        expected |= {"earlier_heads": asdict(bound)}
    names = ledger.names()
    problems = (
        *problems_after(answer, records, _position(told), names),
        *_problems(answer, config, told, times),
    )
    return LedgerAnswer(
        expected=json.loads(json.dumps(expected)),
        problems=problems,
        not_compared=(*WORD, *open_),
        handle=answer.given.handle,
        sealed=request.sealed,
        subject=answer.given.subject,
        names=frozenset(names.values()),
    )


def _refused(problem: str) -> LedgerAnswer:
    return LedgerAnswer({}, (problem,), ("all facts",))


def _position(told: Told) -> int:
    at = told.get("ledger_events")
    return at if isinstance(at, int) and at > 0 else 0


def _expected(answer: AnswerEvents, config: Config) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the proof must say, and the fields of which that is not known."""
    handle = answer.given.handle
    found, rewind = answer.participation(), answer.rewind
    held = sizes_left(found, handle)
    sizes = [len(each.members) for each, _ in held]
    expected: dict[str, Any] = {
        "answer": answer.given.answer,
        "asked": answer.request.asked_at,
        "basis": answer.asked.basis,
        "rounds": [
            {
                "round_index": each.round_index,
                "cluster": each.cluster,
                "size_left": left,
                "diameter": _value_or_reason(each.diameter, NO_DISTANCES),
            }
            for each, left in held
        ],
        "deniability_threshold": answer.x,
        "first_round": found.first_round(handle),
        "first_replayed_round": rewind.round_index if rewind else None,
        "rounds_replayed": rewind.until - rewind.round_index if rewind else 0,
        "replayed": rewind.how if rewind else None,
        "representative_probability": _value_or_reason(
            None if answer.x is None else representative_probability(sizes), NOT_HIDDEN
        ),
        "secrets": answer.began.secrets,
        "sealed_record_kept": answer.given.answer != "retrain",
        "touched": [asdict(each) for each in influences_on(answer.before, handle)],
    }
    if answer.given.subject:
        expected["subject"] = answer.given.subject
    if (model := latest_models(answer.before)) is not None:
        expected["model_before"] = model
    if not answer.began.updates_stored:
        expected["raw_updates_deleted"] = _value_or_reason(None, NONE_STORED)
    known, open_ = _of_settings(answer, config, [each.diameter for each, _ in held])
    return expected | known, open_


def _subtracted(answer: AnswerEvents, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return every cluster's sums before the answer, and when its proof was signed."""
    now = by_entry(current_records(records))
    before = latest_sums(answer.before)
    after = latest_sums((t, event) for t, events in now for event in events)
    if before is None or after is None or len(before.sums) != len(after.sums):
        return []
    return [
        {
            "cluster": j,
            "before": before.sums[j],
            "after": after.sums[j],
            "clients_before": before.clients[j],
            "clients_after": after.clients[j],
        }
        for j in range(len(before.sums))
    ]


def _of_settings(
    answer: AnswerEvents, config: Config, diameters: Sequence[float | None]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what follows from settings; of a user's own components nothing does here.

    To ask them would be to run their code.
    """
    expected: dict[str, Any] = {}
    open_: tuple[str, ...] = ()
    if is_built_in("aggregation", config.merge.name):
        terms = anonymity_of(config)
        expected["min_anonymity"] = terms.min_anonymity if terms else None
        expected["max_distance"] = (terms.max_distance or None) if terms else None
        expected["refutation"] = _refutation(terms, diameters)
    else:
        open_ += ("min_anonymity", "max_distance", "refutation")
    if is_built_in("risk_estimator", config.redteam.source):
        option = _option(answer, prefix_independent=not depends_on_population(config))
        expected["first_affected_round"] = option.first_affected_round
    else:
        open_ += ("first_affected_round",)
    return expected, open_


def _option(answer: AnswerEvents, *, prefix_independent: bool) -> Option:
    """Return the answer as it could be given when it was."""
    start = answer.rewind.round_index if answer.rewind else 0
    rules = AnswerRules(
        deniability_threshold=answer.x,
        stored_updates=answer.given.answer == "calibrate",
        restorable=tuple({0, start}),
        next_round=answer.rewind.until if answer.rewind else 0,
        prefix_independent=prefix_independent,
        sums="exact" if answer.given.answer == "subtract" else "none",
    )
    before = answer.participation(until_own=True)
    found = options(before, answer.given.handle, rules)
    return next(each for each in found if each.answer == answer.given.answer)


def _refutation(terms: AnonymityTerms | None, diameters: Sequence[float | None]) -> dict[str, Any]:
    known = [d for d in diameters if d is not None]
    if terms is None or not diameters:
        return _value_or_reason(None, "no anonymity set held the requester")
    if terms.noise == 0:
        return _value_or_reason(1.0, "")
    if terms.noise is None or len(known) < len(diameters):
        return _value_or_reason(None, "how far the noise reaches is not recorded")
    return _value_or_reason(refutation_success(max(known), terms.noise), "")


def _value_or_reason(value: object, reason: str) -> dict[str, Any]:
    return {"value": value, "reason": reason if value is None else ""}


def _history(records: Sequence[Record]) -> History:
    return history_of(
        by_entry(current_records(records)),
        superseded=[event_of(each) for each in superseded(records)],
    )


def _guarantee(history: History) -> dict[str, Any]:
    """Return what the run guaranteed when the proof was signed."""
    found = guarantee_status(history)
    return _value_or_reason(asdict(found.holds) if found.holds else None, found.reason)


def _problems(
    answer: AnswerEvents, config: Config, told: Told, times: Mapping[int, str]
) -> Iterator[str]:
    given = answer.given
    yield from _asked(answer)
    if given.answer == "deny" and is_built_in("risk_estimator", config.redteam.source):
        option = _option(answer, prefix_independent=True)
        if not option.possible:
            yield f"answer: it could not be denied. {option.reason}"
    if given.answer == "subtract":
        yield from _subtraction(answer, config, told)
    if given.answer != "deny" and answer.rewind:
        affected = told.get("first_affected_round")
        if not isinstance(affected, int) or affected > answer.rewind.until:
            yield "first_affected_round: no round that had been played"
    yield from _moments(answer, told, times)
    yield from _figures(answer, told)


def _asked(answer: AnswerEvents) -> Iterator[str]:
    """Compare the request in the table, the request in the chain, and the answer."""
    request, asked, given = answer.request, answer.asked, answer.given
    if asked.wanted not in ("auto", given.answer):
        yield f"answer: {asked.wanted} was asked for, and {given.answer} was given"
    for name in ("handle", "wanted", "basis"):
        if getattr(request, name) != getattr(asked, name):
            yield f"{name}: the table of requests has another one than the chain"
    if (asked.handle, asked.subject or given.subject) != (given.handle, given.subject):
        yield "subject: who asked is not who is said to have left"
    try:
        check_basis(answer.given.answer, answer.asked.basis)
    except RunError as error:
        yield f"basis: {error}"


def _subtraction(answer: AnswerEvents, config: Config, told: Told) -> Iterator[str]:
    """Look whether the method subtracts at all, and whether the last round was solved."""
    rewind, name = answer.rewind, config.method.name
    known = algorithm_of(config) if is_built_in("algorithm", name) else None
    if known and not known.subtracts:
        yield f"answer: nothing can be subtracted with method.name = {name!r}"
    if known and bool(told.get("own_sums_kept")) != known.keeps_own_sums:
        yield "own_sums_kept: not what the settings that began the run say"
    if rewind and rewind.round_index != rewind.until - 1:
        yield "first_replayed_round: a subtraction solves the last round again"


def _moments(answer: AnswerEvents, told: Told, times: Mapping[int, str]) -> Iterator[str]:
    """Compare when it was answered with when the ledger was written before and after."""
    at = _position(told)
    later = [when for position, when in times.items() if position > at]
    earlier = [when for position, when in times.items() if position <= at]
    closed = answer.request.answered_at
    after = [*later[:1], *([closed] if closed else [])]
    moment = instant(str(told.get("answered")))
    if moment is None:
        return  # its own check says so
    if any(moment < then for then in map(instant, earlier[-1:]) if then):
        yield "answered: before the ledger was written as the proof saw it"
    if any(moment > then for then in map(instant, after) if then):
        yield "answered: after the ledger went on, or the request was closed"


def _figures(answer: AnswerEvents, told: Told) -> Iterator[str]:
    """Look at what no event tells: it may not hold what covey never writes there."""
    kinds = told.get("superseded_deleted")
    if isinstance(kinds, Mapping):
        rewind = answer.rewind
        most = rewind.until - rewind.round_index + 1 if rewind else 0
        if rewind and answer.given.answer == "subtract":
            most = rewind.until  # no state of any round may stay
        if set(kinds) - DELETED:
            yield "superseded_deleted: of kinds that covey does not have"
        elif any(kinds.get(kind, 0) > most for kind in ("states", "updates")):
            yield "superseded_deleted: more than the replayed rounds had"
    measured = told.get("measured")
    if isinstance(measured, Mapping) and not _is_measurement(measured):
        yield "measured: not a measurement, nor a reason that covey gives for none"


def _is_measurement(measured: Mapping[str, Any]) -> bool:
    match measured:
        case {"value": None, "reason": str(reason)}:
            return reason in UNMEASURED or reason.startswith(DIVERGED_AT)
        case {"value": {"before": before, "after": after, **rest}, "reason": ""}:
            return not rest and all(map(_is_figure, (before, after)))
        case _:
            return False


def _is_figure(found: object) -> bool:
    if found is None:
        return True
    if not isinstance(found, Mapping) or set(found) != FIGURES:
        return False
    return all(isinstance(value, float | int) for value in found.values()) and (
        0 <= found["mia_accuracy"] <= 1 and found["low"] <= found["high"]
    )
