"""Adding, correcting and closing requests, and exporting them for a regulator."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from covey import ConfigError, CoveyError, Run
from covey.base.files import delete_whole
from covey.base.names import do_you_mean
from covey.leaving.copies import masked
from covey.leaving.handover import SALT_BYTES
from covey_desk.answering import Load
from covey_desk.register import (
    ERASED,
    PACKS,
    REQUESTER,
    Register,
    overwrite_traces,
    read_register,
    register_at,
)
from covey_desk.request import LANGUAGES, REQUEST_BASES, RegisterEntry, Request, due_date
from covey_desk.search import Holdings, search_runs, searched

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
    salts: Sequence[str] = (),
) -> Request:
    """Take a request in, and search the runs for its names.

    Args:
        folder: the register's; it is made if it is not there.
        roots: folders that runs lie below, and URLs of ledgers.
        names: as the runs know the clients.
        basis: what it rests on, one of `REQUEST_BASES`.
        received: when it came; None: today.
        reference: the office's own.
        language: of the statement, one of `LANGUAGES`.
        salts: of a client that left already, as in `covey.ReturningClient`.

    Raises:
        ConfigError: something cannot be; nothing was written.
    """
    texts = {"names": names, "reference": reference, "salts": tuple(salts)}
    values = {"basis": basis, "received": received or date.today(), "language": language}
    checked = _checked({**texts, **values})
    holdings = search_runs(roots, names, salts)
    with register_at(folder) as held:
        number = held.add(RegisterEntry(**checked))
        return _note_runs(held, number, holdings)


def correct_request(
    folder: Path, roots: Sequence[str | Path], number: str, changed: Mapping[str, Any]
) -> Request:
    """Correct what the register says of a request.

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
    with read_register(folder) as held:
        entry = replace(held.request(number).entry, **checked)
    holdings = search_runs(roots, entry.names, entry.salts)
    with register_at(folder) as held:
        request = held.request(number)
        if not request.is_open or (request.wanted and {"names", "basis"} & {*changed}):
            raise ConfigError(
                f"Request {number} must be open to be corrected, and without answers to change its "
                f"names or basis, found {request.state}: add a new one."
            )
        entry = replace(request.entry, **checked)
        received = date.fromisoformat(entry.received)
        last = due_date(received)
        if bool(entry.extended) != bool(entry.reason) or (
            entry.extended and not received <= date.fromisoformat(entry.extended) <= last
        ):
            raise ConfigError(
                f"--extended must be the day, from receipt ({received}) to one month later "
                f"({last}), when the requester heard the --reason of the delay, found "
                f"{entry.extended or 'no day'} and {'a' if entry.reason else 'no'} reason: give "
                f"both, or answer as soon as you can."
            )
        held.correct(number, entry)
        return _note_runs(held, number, holdings)


def _note_runs(held: Register, number: str, holdings: Holdings) -> Request:
    for entry in searched(held.requests(), number, holdings, look_up=False):
        held.note(entry)
    request = held.request(number)
    near = {name: do_you_mean(name, holdings.names) for name in request.entry.names}
    return replace(request, nearest=near)


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an entry, as they are kept.

    Raises:
        ConfigError: one cannot be.
    """
    for what, known in (("basis", REQUEST_BASES), ("language", LANGUAGES)):
        if values.get(what, known[0]) not in known:
            raise ConfigError(
                f"--{what} must be one of {', '.join(known)}, found {values[what]!r}: choose one."
            )
    for what in ("received", "extended"):
        if values.get(what) and values[what] > date.today():
            raise ConfigError(
                f"--{what} must be today at the latest, found {values[what]}: correct it."
            )
    names: Sequence[str] = tuple(dict.fromkeys(values.get("names", ("-",))))
    if not names:
        raise ConfigError("A request must have one name at least, found none: give it.")
    lines = [*(("NAME", name) for name in names)]
    lines += [(f"--{e}", values[e]) for e in ("reference", "reason") if values.get(e)]
    for what, text in lines:
        if not text.strip() or len(text) > MOST_LETTERS or not text.isprintable():
            raise ConfigError(
                f"{what} must be one line of 1 to {MOST_LETTERS} printable characters, found "
                f"{len(text)}: correct it."
            )
    digits = 2 * SALT_BYTES
    if not all(re.fullmatch(f"[0-9a-f]{{{digits}}}", salt) for salt in values.get("salts", ())):
        raise ConfigError(f"--salt must be {digits} hexadecimal digits: copy it from annex.json.")
    if values.get("salts") and (len(names) != 1 or values.get("basis") == "access"):
        raise ConfigError(
            f"--salt must be of one client that left and asks for more than access, found "
            f"{len(names)} names, {values.get('basis') or 'no basis'}: add a request of its own."
        )
    days = {e: values[e].isoformat() for e in ("received", "extended") if values.get(e)}
    return {**values, **days, **({"names": names} if "names" in values else {})}


def done_by_hand(
    folder: Path, number: str, items: Sequence[int], day: date | None = None
) -> Request:
    """Note on which day (None: today) a person did these items of `by_hand`, from 1.

    Raises:
        ConfigError: there is no such item, the day has not come, or the request is closed.
    """
    with register_at(folder) as held:
        request, day = held.request(number), day or date.today()
        last = date.today() if request.is_open else date.min
        listed = dict(enumerate(request.by_hand, 1))
        if (
            not {*items} <= {*listed}
            or not date.fromisoformat(request.entry.received) <= day <= last
        ):
            raise ConfigError(
                f"Work must be items 1 to {len(listed)} of an open request, from receipt to today, "
                f"found {items}, {day}, {request.state}: see `covey requests list {number}`."
            )
        held.note_done(number, [listed[item] for item in items], day.isoformat())
        return held.request(number)


def close_request(
    folder: Path,
    roots: Sequence[str | Path],
    number: str,
    reason: str = "",
    load: Load = Run,
    *,
    delete_salts: bool = False,
) -> Request:
    """Close a request whose packs were handed over; again after a kill, from where it was.

    Salts are acknowledged, packs deleted and names erased, in this order.

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
    with read_register(folder) as held:
        request = held.request(number)
    if request.state == "closed":
        return request
    if request.is_open:
        left = dict.fromkeys(_left_to_do(request, roots, reason, delete_salts=delete_salts))
        if left:
            raise ConfigError(
                f"Request {number} must have nothing left to do, found: {'; '.join(left)}."
            )
        with register_at(folder) as held:
            held.begin_closing(number, reason)
    for outcome in request.runs:
        try:
            run = load(Path(outcome.run))
        except CoveyError:  # a run that is gone keeps no salt
            continue
        if outcome.run_request in {delivery.request for delivery in run.unacknowledged}:
            run.acknowledge(outcome.run_request)
    for path in sorted((folder / PACKS).glob(f"request-{number}-*")):
        delete_whole(path)
    with register_at(folder) as held:
        held.erase(number)
    overwrite_traces(folder)
    with register_at(folder) as held:
        held.end_closing(number)
        return held.request(number)


def _left_to_do(
    request: Request, roots: Sequence[str | Path], reason: str, *, delete_salts: bool
) -> list[str]:
    number, left = request.request, list[str]()
    if dates := [str(i) for i, item in enumerate(request.by_hand, 1) if item.waits]:
        left.append(
            f"work by hand has no date: do it, then covey requests done {number} {' '.join(dates)}"
        )
    persons = range(1, len(request.entry.names) + 1)
    missing = [index for index in persons if not request.has_pack(index)]
    if not reason:
        left += [f"{run.run} has not answered" for run in request.unanswered]
        left += [
            f"{run.run} holds, or may hold, what it learnt from data that are to be erased: give "
            f"a reason, or covey requests correct {number} --salt SALT"
            for run in request.denied
        ]
        if not request.wanted:
            left.append(f"nothing is answered: covey requests answer {number}")
        elif missing and not request.waiting:
            left.append(f"its answers are not written: covey requests answer {number}")
        if request.entry.basis != "access":
            holdings = search_runs(roots, request.entry.names)
            done = {(run.person, run.run) for run in request.runs}
            left += [
                f"{place} has the name, and has no request"
                for name in request.entry.names
                for place in holdings.runs_of(name)
                if (name, place) not in done
            ]
    if not delete_salts:
        remedy = "or say --delete-salts"
        left += [
            f"{run.run} has the request and has not answered: answer first, {remedy}"
            for run in request.unanswered
            if run.run_request
        ]
        left += [
            f"the salt of {run.run} stands in no pack: covey requests answer {number}, {remedy}"
            for run in request.runs
            if run.answer and run.index in missing
        ]
    return left


def export_requests(held: Register, since: date, until: date) -> list[Request]:
    """Return the requests that came in a period, for a regulator; no requester is named."""
    requests = held.requests().values()
    names = {name for request in requests for name in request.entry.names} - {ERASED}
    return [
        _without_names(request, names)
        for request in requests
        if since <= date.fromisoformat(request.entry.received) <= until
    ]


def _without_names(request: Request, names: Collection[str]) -> Request:
    """Return a request with `REQUESTER` in the place of every name."""

    def hidden(text: str) -> str:
        return masked(text, names, REQUESTER)

    def one(name: str) -> str:
        return REQUESTER if name in names else name

    entry = request.entry
    return replace(
        request,
        entry=replace(
            entry,
            names=tuple(map(one, entry.names)),
            reference=hidden(entry.reference),
            reason=hidden(entry.reason),
        ),
        runs=[
            replace(e, person=one(e.person), run=hidden(e.run), proof=hidden(e.proof))
            for e in request.runs
        ],
        by_hand=[
            replace(e, where=hidden(e.where), what=hidden(e.what), how=hidden(e.how))
            for e in request.by_hand
        ],
        packs=[hidden(pack) for pack in request.packs],
        closed_because=hidden(request.closed_because),
    )
