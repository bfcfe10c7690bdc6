"""Taking requests in, correcting and closing them, and writing them down for a regulator."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

from covey.base.errors import ConfigError, CoveyError
from covey.base.files import delete_whole
from covey.desk.answering import Load
from covey.desk.register import (
    LANGUAGES,
    PACKS,
    REQUEST_BASES,
    Corrected,
    Entry,
    Register,
    Registered,
    Request,
    RequestClosed,
    RequestClosing,
    RequestView,
    due_date,
    register_at,
    text_handle,
    without_names,
)
from covey.desk.search import Holdings, search_runs, searched
from covey.runs.run import Run

MOST_LETTERS = 500
"""Characters of a name or a text."""


def add_request(
    folder: Path,
    roots: Sequence[str | Path],
    names: Sequence[str],
    basis: str,
    received: date | None = None,
    reference: str = "",
    language: str = "en",
) -> RequestView:
    """Take a request in, and search the runs for its names.

    Args:
        folder: the register's; it is made if it is not there.
        roots: folders that runs lie below, and URLs of ledgers.
        names: as the runs know the clients.
        basis: what it rests on, one of `REQUEST_BASES`.
        received: when it came; None: today.
        reference: the office's own.
        language: of the statement, one of `LANGUAGES`.

    Raises:
        ConfigError: something cannot be; nothing was written.
    """
    texts = {"names": names, "reference": reference}
    values = {"basis": basis, "received": received or date.today(), "language": language}
    checked = _checked({**texts, **values})
    holdings = search_runs(roots, names)
    with register_at(folder) as held:
        entry, new = _stored(held, checked, None)
        there = held.requests()
        number = next(each for each in map(str, count(len(there) + 1)) if each not in there)
        held.record([Registered(request=number, entry=entry)], new)
        _put_down(held, number, holdings)
        return held.view(number)


def correct_request(
    folder: Path, roots: Sequence[str | Path], number: str, changed: Mapping[str, Any]
) -> RequestView:
    """Correct what the register says of a request; what it said before stays on record.

    Args:
        folder: the register's.
        roots: folders that runs lie below.
        number: the request's.
        changed: arguments of `add_request`, and `extended` with `reason`: the day on which
            the requester heard, and why, that the answer takes two months longer.

    Raises:
        ConfigError: something cannot be, or comes too late; nothing was written.
    """
    checked = _checked(changed)
    with register_at(folder) as held:
        request = held.request(number)
        if request.closing is not None or (request.wanted and {"names", "basis"} & {*changed}):
            raise ConfigError(
                f"A request can be corrected until it is closed, and its names and basis until "
                f"runs answer, found request {number} {request.state}. Add a new one."
            )
        entry, new = _stored(held, checked, request.entry)
        received = date.fromisoformat(entry.received)
        last = due_date(received)
        if bool(entry.extended) != bool(entry.reason) or (
            entry.extended and not received <= date.fromisoformat(entry.extended) <= last
        ):
            raise ConfigError(
                f"The requester hears that the answer takes longer, with the reason, between "
                f"receipt ({received}) and one month later ({last}), found "
                f"{entry.extended or 'no day'}{'' if entry.reason else ' and no reason'}. Give "
                f"--extended and --reason, or answer as soon as you can."
            )
        today = date.today().isoformat()
        held.record([Corrected(request=number, entry=entry, day=today)], new)
        names = [held.texts()[each] for each in entry.names]
    holdings = search_runs(roots, names)
    with register_at(folder) as held:
        _put_down(held, number, holdings)
        return held.view(number)


def _put_down(held: Register, number: str, holdings: Holdings) -> None:
    facts, new = searched(held, held.request(number), holdings, look_up=False)
    if facts:
        held.record(facts, new)


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an entry, as they are kept.

    Raises:
        ConfigError: one cannot be.
    """
    for what, known in (("basis", REQUEST_BASES), ("language", LANGUAGES)):
        if values.get(what, known[0]) not in known:
            raise ConfigError(
                f"--{what} takes {', '.join(known)}, found {values[what]!r}. Choose one."
            )
    for what in ("received", "extended"):
        if values.get(what) and values[what] > date.today():
            raise ConfigError(
                f"--{what} takes a day that has come, today at the latest, found "
                f"{values[what].isoformat()}. Correct it."
            )
    names: Sequence[str] = tuple(dict.fromkeys(values.get("names", ("-",))))
    if not names:
        raise ConfigError("A request is about one name at least, found none. Give it.")
    lines = [*(("NAME", each) for each in names)]
    lines += [(f"--{e}", values[e]) for e in ("reference", "reason") if values.get(e)]
    for what, text in lines:
        if not text.strip() or len(text) > MOST_LETTERS or not text.isprintable():
            raise ConfigError(
                f"{what} takes one line of 1 to {MOST_LETTERS} characters that can be "
                f"printed, found {len(text)} characters. Correct it."
            )
    days = {e: values[e].isoformat() for e in ("received", "extended") if values.get(e)}
    return {**values, **days, **({"names": names} if "names" in values else {})}


def _stored(
    held: Register, values: Mapping[str, Any], before: Entry | None
) -> tuple[Entry, dict[str, str]]:
    """Return an entry in handles, and the texts that they stand for."""
    texts, new = held.texts(), dict[str, str]()
    content = dict(values)
    if "names" in content:
        known = {text: handle for handle, text in texts.items() if handle.startswith("p-")}
        made = {name: known.get(name) or f"p-{secrets.token_hex(8)}" for name in content["names"]}
        handles = {handle: name for name, handle in made.items()}
        new |= handles
        content["names"] = tuple(handles)
    for what in ("reference", "reason"):
        if content.get(what):
            handle = text_handle()
            new[handle], content[what] = content[what], handle
    return (replace(before, **content) if before else Entry(**content)), new


def close_request(
    folder: Path,
    roots: Sequence[str | Path],
    number: str,
    reason: str = "",
    load: Load = Run,
    *,
    delete_salts: bool = False,
) -> RequestView:
    """Close a request whose packs were handed over; again after a kill, from where it was.

    Salts are acknowledged, packs deleted and names erased, in this order; a name stays while
    another request that is open is about it.

    Args:
        folder: the register's.
        roots: folders that runs lie below, and URLs of ledgers.
        number: the request's.
        reason: why it is closed although not every run answered.
        load: how a run is loaded.
        delete_salts: delete salts that no pack holds, and give up runs that have the
            request and have not answered.

    Raises:
        ConfigError: something is left to do; nothing was done.
    """
    _checked({"reason": reason})
    with register_at(folder) as held:
        request, texts = held.request(number), held.texts()
    if request.closing is None:
        names = [texts[each] for each in request.entry.names]
        left = _left_to_do(request, texts, roots, reason, names, delete_salts=delete_salts)
        if left:
            raise ConfigError(
                f"A request is closed when nothing is left to do, but of request {number}: "
                f"{'; '.join(dict.fromkeys(left))}."
            )
        text = text_handle() if reason else ""
        closing = RequestClosing(request=number, day=date.today().isoformat(), reason=text)
        with register_at(folder) as held:
            held.record([closing], {text: reason} if text else {})
    for outcome in request.noted.values():
        try:
            run = load(Path(texts[outcome.run]))
        except CoveyError:  # a run that is gone keeps no salt
            continue
        if outcome.run_request in {each.request for each in run.unacknowledged}:
            run.acknowledge(outcome.run_request)
    for path in sorted((folder / PACKS).glob(f"request-{number}-*")):
        delete_whole(path)
    with register_at(folder) as held:
        if not held.request(number).is_closed:
            held.replace_texts(_without_names(held, request), [RequestClosed(request=number)])
            held.overwrite_traces()
        return held.view(number)


def _left_to_do(
    request: Request,
    texts: Mapping[str, str],
    roots: Sequence[str | Path],
    reason: str,
    names: Sequence[str],
    *,
    delete_salts: bool,
) -> list[str]:
    number, left = request.number, list[str]()
    missing = [each for each in request.entry.names if each not in request.packs]
    if not reason:
        left += [f"{texts[run]} has not answered" for _, run in request.waiting]
        if not request.wanted:
            left.append(f"nothing is answered: covey requests answer {number}")
        elif missing and not request.waiting:
            left.append(f"its answers are not written: covey requests answer {number}")
        if request.entry.basis != "access":
            holdings = search_runs(roots, names)
            done = {(texts[p], texts[r]) for p, r in request.runs}
            left += [
                f"{place} has the name, and has no request"
                for name in names
                for place in holdings.runs_of(name)
                if (name, place) not in done
            ]
    if not delete_salts:
        remedy = "or say --delete-salts"
        left += [
            f"{texts[run]} has the request and has not answered: answer first, {remedy}"
            for (person, run), outcome in request.runs.items()
            if outcome.run_request and (person, run) in request.waiting
        ]
        left += [
            f"the salt of {texts[run]} stands in no pack: covey requests answer {number}, {remedy}"
            for (person, run), outcome in request.runs.items()
            if outcome.answer and person in missing
        ]
    return left


def _without_names(held: Register, request: Request) -> Mapping[str, str | None]:
    """Return the texts that change: names and what runs held go, and stand in no other text."""
    texts = held.texts()
    others = [each for each in held.requests().values() if each.number != request.number]
    needed = {each for other in others if not other.is_closed for each in other.entry.names}
    shared = {
        h
        for other in others
        if not other.is_closed
        for r in other.noted.values()
        for h in (r.held, r.left)
    }
    entries = (request.entry, *(entry for entry, _ in request.before))
    persons = {each for entry in entries for each in entry.names} - needed
    held_texts = {h for each in request.noted.values() for h in (each.held, each.left)}
    gone = {*persons, *(held_texts - shared)} & texts.keys()
    masked = without_names(texts, persons & texts.keys())
    changed: dict[str, str | None] = {h: t for h, t in masked.items() if t != texts[h]}
    return {**changed, **dict.fromkeys(gone)}


def export_requests(held: Register, since: date, until: date) -> list[RequestView]:
    """Return the requests that came in a period, for a regulator; no requester is named."""
    views = held.views(masked=True)
    return [each for each in views if since <= date.fromisoformat(each.entry.received) <= until]
