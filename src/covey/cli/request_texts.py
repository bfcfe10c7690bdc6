"""What `covey requests` says of cases and plans, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Any

from covey import requests
from covey.cli.tables import short, tabled

if TYPE_CHECKING:
    from covey.requests import Case, Plan, RunOutcome, RunPlan

__all__ = ["case_json", "case_text", "list_text", "outcomes_text", "plan_text"]


def case_json(case: Case, texts: Mapping[str, str], today: date) -> dict[str, Any]:
    """Return a case with its texts, as far as they are not erased."""

    def text(handle: str) -> str:
        return texts.get(handle, requests.ERASED) if handle else ""

    return {
        "case": case.number,
        "name": text(case.person),
        "state": case.state,
        "received": case.received.isoformat(),
        "due": case.due.isoformat(),
        "days_left": (case.due - today).days,
        "extended": text(case.extended.reason) if case.extended else "",
        "basis": case.basis,
        "owner": text(case.owner),
        "wanted": case.wanted,
        "runs": [
            {
                "run": text(each),
                "request": case.asked.get(each, ""),
                "answer": asdict(case.answered[each])["answer"]
                if each in case.answered
                else "",
            }
            for each in dict.fromkeys((*case.known, *case.asked))
        ],
        "by_hand": [
            {
                "item": each.number,
                "kind": each.kind,
                "text": text(each.text),
                "signed_by": text(each.signed_by),
                "signed_on": each.signed_on,
                "note": text(each.note),
                "kept": text(each.kept),
            }
            for each in case.items
        ],
        "letters": dict(case.letters),
        "closed_by": text(case.closing.by) if case.closing else "",
    }


def list_text(told: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of cases."""
    heads = ("case", "name", "basis", "received", "due", "state", "runs", "by hand")
    rows = [
        (
            each["case"],
            each["name"],
            each["basis"],
            each["received"],
            _due(each),
            each["state"],
            f"{sum(bool(r['answer']) for r in each['runs'])}/{len(each['runs'])} answered",
            f"{_signed(each)}/{len(each['by_hand'])} signed off",
        )
        for each in told
    ]
    return tabled(heads, rows) if rows else "no case is open"


def case_text(told: Mapping[str, Any]) -> str:
    """Return one case for a person."""
    lines = [
        f"case {told['case']}: {told['name']}, {told['basis']}, received "
        f"{told['received']}, due {_due(told)}, {told['state']}",
    ]
    if told["owner"]:
        lines.append(f"responsible: {told['owner']}")
    if told["extended"]:
        lines.append(f"extended: {told['extended']}")
    lines += [
        f"run {each['run']}: {each['answer'] or 'not answered'}"
        for each in told["runs"]
    ] or ["no run knows the name"]
    lines += map(_item, told["by_hand"])
    lines += [f"letter {name}: {digest}" for name, digest in told["letters"].items()]
    return "\n".join(lines)


def plan_text(found: Plan) -> str:
    """Return one plan over all runs for a person."""
    parts = [_run_text(each) for each in found.runs]
    parts += [
        f"{place} could not be looked at: {reason}"
        for place, reason in found.unreadable.items()
    ]
    parts += [f"case {each}: no run knows the name" for each in found.unknown]
    for case, items in found.by_hand.items():
        lines = (f"  {each.kind}: {each.text}" for each in items)
        if items:
            parts.append("\n".join([f"case {case}, by hand:", *lines]))
    seconds = [each.seconds for run in found.runs for each in run.cases]
    known = [each for each in seconds if each is not None]
    if found.runs:
        least = "" if len(known) == len(seconds) else "at least "
        parts.append(
            f"{len(found.runs)} runs, {least}{sum(_per_run(found)):.1f} seconds in all. "
            f"Answer with covey requests answer."
        )
    return "\n\n".join(parts) or "no case is open"


def outcomes_text(done: Sequence[RunOutcome]) -> str:
    """Return what came of cases in runs for a person."""
    lines = [
        f"case {each.case}, {each.run}: {each.answer}, the model is "
        f"{'changed' if each.model_changed else 'unchanged'}, proof {each.proof}"
        if each.answer
        else f"case {each.case}, {each.run}: NOT ANSWERED: {each.reason}"
        for each in done
    ]
    return "\n".join(lines) or "no run is left to be answered"


def _per_run(found: Plan) -> Iterator[float]:
    """Yield how long each run takes: those who leave it together share its replay."""
    for run in found.runs:
        yield max((each.seconds or 0.0 for each in run.cases), default=0.0)


def _run_text(run: RunPlan) -> str:
    heads = ("case", "answer", "rounds to replay", "seconds", "bytes deleted", "then")
    rows = [
        (
            each.case,
            each.answer or "none",
            str(each.rounds_replayed),
            short(each.seconds),
            f"{each.bytes_deleted:,}",
            each.afterwards or each.reason,
        )
        for each in run.cases
    ]
    lines = [f"run {run.run}"]
    if rows:
        lines.append(tabled(heads, rows))
    if run.problem:
        lines.append(f"  {run.problem}")
    return "\n".join(lines)


def _due(told: Mapping[str, Any]) -> str:
    left = told["days_left"]
    if told["state"] == "closed":
        return told["due"]
    words = f"{left} days left" if left >= 0 else f"OVERDUE by {-left} days"
    return f"{told['due']} ({words})"


def _item(each: Mapping[str, Any]) -> str:
    signed = (
        f"done {each['signed_on']}, {each['signed_by']}"
        if each["signed_by"]
        else "OPEN"
    )
    note = f" ({each['note']})" if each["note"] else ""
    kept = f", kept: {each['kept']}" if each["kept"] else ""
    told = f"{signed}{note}{kept}"
    return f"by hand {each['item']} [{each['kind']}] {told}: {each['text']}"


def _signed(told: Mapping[str, Any]) -> int:
    return sum(bool(each["signed_by"]) for each in told["by_hand"])
