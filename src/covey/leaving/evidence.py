"""The facts of an answer, from what stands in a ledger before and after its request.

One pure function finds them, for who signs a proof and for who checks one against the
ledger. A user's own code is not called where that is refused: such facts are
`unknown_facts`, and rest on the signer's word.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from covey.aggregation.base import AnonymityTerms
from covey.base.errors import RunError
from covey.base.events import ClientLeft, Event, LeaveRequested, RunRolledBack, RunStarted
from covey.base.guarantee import Guaranteed, NoGuarantee, Term
from covey.base.history import History, of_kinds
from covey.base.names import Handle
from covey.base.own_code import UNKNOWN_SOURCE
from covey.dp.status import Guarantee, guarantee_status
from covey.leaving.deniability import refutation_success, representative_probability
from covey.leaving.facts import (
    WORD,
    Facts,
    HeldRound,
    OwnPart,
    SubtractedSums,
    ValueOrReason,
    Word,
    known,
)
from covey.leaving.plan import AnswerRules, Option, influences_on, option_for, sizes_left
from covey.ledger.participation import Participation, latest_models, latest_sums, participation_of
from covey.ledger.requests import LeaveRequest
from covey.ledger.tree import entries_of, inclusion_proof, root_of
from covey.runs.ledger_record import LedgerRecord
from covey.runs.ledger_terms import own_parts
from covey.settings.aggregation import anonymity_of
from covey.settings.algorithm import depends_on_population
from covey.settings.load import Config

Events = Sequence[tuple[int | None, Event]]


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One answer, as it stands in a ledger up to where its proof is signed.

    Attributes:
        request: as the table has it.
        requested: the request as the chain has it.
        requested_at: the position of that event.
        event: the answer.
        began: how the run began; None: it was answered before that.
        before: the current events that it was judged by.
        together: what was written at once with it, in order.
        end: the position of the last of these.
        at: the position at which the proof is signed.
        now: the events that count there.
        history: folded from all events up to there.
    """

    request: LeaveRequest
    requested: LeaveRequested
    requested_at: int
    event: ClientLeft
    began: RunStarted | None
    before: Events
    together: Sequence[Event]
    end: int
    at: int
    now: Events
    history: History

    @property
    def leavers(self) -> list[Handle]:
        """All who were answered at once, in order."""
        return [event.handle for event in self.together if isinstance(event, ClientLeft)]

    @property
    def rewind(self) -> RunRolledBack | None:
        """How rounds were played again; None: none was."""
        return next((e for e in self.together if isinstance(e, RunRolledBack)), None)

    @property
    def subtracted(self) -> bool:
        """Whether sums were subtracted, and the last round solved again."""
        return self.event.answer == "subtract" and self.rewind is not None

    def participation(self, *, until_own: bool = False) -> Participation:
        """Return who took part in what, with all of the leavers, or those before, gone."""
        before, gone = participation_of(self.before), self.leavers
        if until_own:
            gone = gone[: gone.index(self.event.handle)]
        return replace(before, left=tuple(dict.fromkeys((*before.left, *gone))))

    def option(self, *, prefix_independent: bool) -> Option:
        """Return the answer as it was possible at that moment."""
        start, until = (self.rewind.round_index, self.rewind.until) if self.rewind else (0, 0)
        rules = AnswerRules(
            deniability_threshold=self.began.deniability_threshold if self.began else None,
            stored_updates=self.event.answer == "calibrate",
            restorable=tuple({0, start}),
            next_round=until,
            prefix_independent=prefix_independent,
            subtracts=self.event.answer == "subtract",
        )
        before = self.participation(until_own=True)
        return option_for(self.event.answer, before, self.event.handle, rules)


def find_answer(
    record: LedgerRecord, times: Mapping[int, str], request: LeaveRequest, at: int
) -> RecordedAnswer | None:
    """Return the answer to a request; None: the chain does not hold both, each once, in order.

    Args:
        record: of the ledger, also beyond `at`.
        times: when each entry was written, by the position of its last event.
        request: as the table has it.
        at: the position at which the proof is signed.
    """
    until = record.until(at)
    about = [
        (position, fact)
        for position, (_, fact) in enumerate(record.facts, 1)
        if isinstance(fact, LeaveRequested | ClientLeft) and fact.request == request.id
    ]
    match about:
        case [(position, LeaveRequested() as requested), (own, ClientLeft() as event)] if own <= at:
            pass
        case _:
            return None
    start = max((position for position in times if position < own), default=0)
    end = min((position for position in times if position >= own), default=own)
    before = record.until(start)
    started = of_kinds((fact for _, fact in record.facts), RunStarted)
    return RecordedAnswer(
        request=request,
        requested=requested,
        requested_at=position,
        event=event,
        began=before.history.started or next(started, None),  # who left before the first round
        before=before.events,
        together=[fact for _, fact in until.facts[start:end]],
        end=end,
        at=at,
        now=until.events,
        history=until.history,
    )


def unknown_facts(answer: RecordedAnswer, config: Config) -> tuple[str, ...]:
    """Return the facts that no event states, or that rest on a user's own components.

    To ask these is to run them. Where no start of the run is recorded, the ledger has no hash
    of the settings either: what follows from them is not known.
    """
    kinds = (
        (config.aggregation, ("min_anonymity", "max_distance", "distance", "refutation")),
        (config.risk, ("first_affected_round",)),
    )
    unsealed = answer.began is None
    models = (("model_before", answer.before), ("model_after", answer.now))
    return (
        *(name for name, known in models if latest_models(known) is None),
        *(() if answer.event.subject else ("subject",)),
        *(("deniability_threshold", "secrets") if unsealed else ()),
        *(name for component, names in kinds if unsealed or component.is_own for name in names),
    )


def facts(
    answer: RecordedAnswer,
    record: LedgerRecord,
    config: Config,
    word: Word,
    unknown: Collection[str] = (),
) -> Facts:
    """Return the facts of an answer.

    Args:
        answer: as the ledger records it.
        record: of the ledger.
        config: the run's settings, which the ledger has a hash of.
        word: what holds where no event says it.
        unknown: facts that are taken from `word`, which has them.
    """
    handle, kind, began = answer.event.handle, answer.event.answer, answer.began
    participation, rewind, history = answer.participation(), answer.rewind, answer.history
    held = sizes_left(participation, handle)
    terms = None if "refutation" in unknown else anonymity_of(config)
    x = terms.deniability_threshold if terms else None
    x = began.deniability_threshold if began else getattr(word, "deniability_threshold", x)
    stored = began.updates_stored if began else bool(config.leaving.store_updates)
    guarantee = guarantee_status(history)
    hashes = record.hashes[: answer.at]
    leaves = entries_of(hashes)
    derived: dict[str, Any] = {
        "subject": answer.event.subject or word.subject,
        "model_before": latest_models(answer.before) or word.model_before,
        "model_after": latest_models(answer.now) or word.model_after,
        "request": answer.request.id,
        "run": hashes[0][:16],
        "requested": answer.request.requested_at,
        "basis": answer.requested.basis,
        "answer": kind,
        "ledger_head": hashes[-1],
        "ledger_events": answer.at,
        "tree_root": root_of(leaves).hex(),
        "inclusion": tuple(sibling.hex() for sibling in inclusion_proof(leaves, answer.at - 1)),
        "rounds": tuple(
            HeldRound(
                hidden.round_index, hidden.cluster, left, known(hidden.diameter, "no-distances")
            )
            for hidden, left in held
        ),
        "deniability_threshold": x,
        "min_anonymity": terms and terms.min_anonymity,
        "max_distance": (terms and terms.max_distance) or None,
        "distance": terms.distance if terms and terms.max_distance else None,
        "first_round": participation.first_round(handle),
        "first_replayed_round": rewind.round_index if rewind else None,
        "rounds_replayed": rewind.until - rewind.round_index if rewind else 0,
        "replayed": rewind.how if rewind else None,
        "representative_probability": known(
            None if x is None else representative_probability([len(s.members) for s, _ in held]),
            "not-hidden",
        ),
        "refutation": _refutation(terms, [hidden.diameter for hidden, _ in held]),
        "touched": tuple(influences_on(answer.before, handle)),
        "secrets": began.secrets if began else config.secrets.source,
        "guarantee": known(_guaranteed(guarantee.guarantee), _name(guarantee.reason_code or "")),
        "sealed_record_kept": kind != "retrain",
        "subtracted": tuple(_subtracted(answer)) if answer.subtracted else (),
        "own_parts": tuple(_own_parts(config, history)),
    }
    if "first_affected_round" not in unknown:
        option = answer.option(prefix_independent=not depends_on_population(config))
        derived["first_affected_round"] = option.first_affected_round
    if not stored:
        derived["raw_updates_deleted"] = ValueOrReason(None, "none-stored")
    said = {name: getattr(word, name) for name in (*WORD, *unknown)}
    return Facts(**{**said, **derived, **{name: said[name] for name in unknown}})


def _guaranteed(guarantee: Guarantee | None) -> Guaranteed | None:
    """Return a guarantee that holds, in codes."""
    if guarantee is None:
        return None
    values: dict[str, Any] = {
        field.name: getattr(guarantee, field.name) for field in fields(Guaranteed)
    }
    return Guaranteed(**{name: _name(value) for name, value in values.items()})


def _name(value: object) -> Any:  # noqa: ANN401 - as it came
    """Return the code of a term, or of several; another value as it is."""
    if isinstance(value, tuple):
        return tuple(map(_name, value))
    return value.name if isinstance(value, Term | NoGuarantee) else value


def _refutation(
    terms: AnonymityTerms | None, diameters: Sequence[float | None]
) -> ValueOrReason[float, str]:
    """Say how well the holder of two candidates' updates sees which one was used."""
    recorded = [d for d in diameters if d is not None]
    if terms is None or not diameters:
        return ValueOrReason(None, "no-set")
    if terms.noise == 0:
        return ValueOrReason(1.0, "")
    if terms.noise is None or len(recorded) < len(diameters):
        return ValueOrReason(None, "noise-unknown")
    return ValueOrReason(refutation_success(max(recorded), terms.noise), "")


def _own_parts(config: Config, history: History) -> Iterator[OwnPart]:
    """Yield the parts of a run that are not covey's code: what they carry no event shows."""
    used = history.components.components if history.components else {}
    recorded = {setting: str(part["name"]) for setting, part in used.items() if part.get("source")}
    for setting, name in sorted({**recorded, **own_parts(config)}.items()):
        source = used.get(setting, {}).get("source") or UNKNOWN_SOURCE
        yield OwnPart(
            setting=setting, name=name, source=None if source == UNKNOWN_SOURCE else source
        )


def _subtracted(answer: RecordedAnswer) -> list[SubtractedSums]:
    """Return every cluster's sums before the answer, and when its proof is signed.

    Raises:
        RunError: the ledger does not hold both.
    """
    before, after = latest_sums(answer.before), latest_sums(answer.now)
    if before is None or after is None or len(before.sums) != len(after.sums):
        raise RunError(
            "A proof of a subtraction must name the sums before and after it, found no "
            "HeadsSolved: record it every round in an algorithm that `subtracts`."
        )
    rows = zip(before.sums, after.sums, before.clients, after.clients, strict=True)
    return [
        SubtractedSums(cluster=j, before=old, after=new, clients_before=many, clients_after=fewer)
        for j, (old, new, many, fewer) in enumerate(rows)
    ]
