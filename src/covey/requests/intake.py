"""Taking requests in, and noting what people say and do about them."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from covey.errors import ConfigError
from covey.requests.beginning import with_runs
from covey.requests.case import ITEM_KINDS, Case
from covey.requests.dates import due_date
from covey.requests.facts import (
    DeadlineExtended,
    ItemAdded,
    ItemSigned,
    RequestReceived,
)
from covey.requests.holdings import search_runs
from covey.requests.register import Register, handle_of, text_handle
from covey.types import BASES

__all__ = ["add_case", "add_item", "extend_case", "line_of", "sign_items"]

NUMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
MOST_LETTERS = 500
"""Characters of a name or a text."""


def add_case(  # noqa: PLR0913, PLR0917 - the last three have defaults
    register: Register,
    roots: Sequence[str | Path],
    name: str,
    received: date,
    basis: str,
    number: str = "",
    owner: str = "",
    today: date | None = None,
) -> Case:
    """Take a request in, and search the runs for the name.

    Args:
        register: open to be written.
        roots: folders that runs lie below, and URLs of ledgers.
        name: as the runs know the client.
        received: when the request came.
        basis: what it rests on, one of `BASES`.
        number: of the case; "": the next one.
        owner: who is responsible; "": nobody is named.
        today: which day it is; None: today.

    Raises:
        ConfigError: something given cannot be; nothing was written.
    """
    now = today or date.today()
    if basis not in BASES:
        raise ConfigError(
            f"--basis takes {', '.join(BASES)}, found {basis!r}. Choose one."
        )
    if received > now:
        raise ConfigError(
            f"--received takes the day on which the request came, today at the latest, "
            f"found {received.isoformat()}. Correct it."
        )
    cases, texts = register.cases(), register.texts()
    number = _number(number, cases)
    person = handle_of("p", line_of(name, "NAME"), texts)
    officer = handle_of("o", line_of(owner, "--owner"), texts) if owner else ""
    begun = RequestReceived(
        case=number,
        person=person,
        received=received.isoformat(),
        basis=basis,
        owner=officer,
    )
    case = Case(number=number, person=person, received=received, basis=basis)
    searched, new = with_runs(register, case, search_runs(roots, [name]).runs_of(name))
    new |= {person: name, **({officer: owner} if officer else {})}
    register.record([begun, searched], new)
    return register.case(number)


def extend_case(
    register: Register, number: str, reason: str, told: date | None = None
) -> Case:
    """Note that the requester was told that the answer takes two further months.

    Raises:
        ConfigError: that was too late, or done before.
    """
    case = _alive(register, number)
    told = told or date.today()
    last = due_date(case.received)
    if case.extended is not None or not case.received <= told <= last:
        found = "it was done before" if case.extended else f"found {told.isoformat()}"
        raise ConfigError(
            f"The requester is told once, with the reasons, that it takes longer, between "
            f"receipt ({case.received.isoformat()}) and one month later "
            f"({last.isoformat()}), {found}. Answer as soon as you can, and ask a lawyer."
        )
    text = text_handle()
    fact = DeadlineExtended(case=number, told=told.isoformat(), reason=text)
    register.record([fact], {text: line_of(reason, "--reason")})
    return register.case(number)


def add_item(register: Register, number: str, kind: str, text: str) -> Case:
    """Add something that has to be done by hand.

    Raises:
        ConfigError: there is no such kind.
    """
    case = _alive(register, number)
    if kind not in ITEM_KINDS:
        raise ConfigError(
            f"--kind takes {', '.join(ITEM_KINDS)}, found {kind!r}. Choose one."
        )
    handle = text_handle()
    item = ItemAdded(case=number, item=len(case.items) + 1, kind=kind, text=handle)
    register.record([item], {handle: line_of(text, "TEXT")})
    return register.case(number)


def sign_items(  # noqa: PLR0913, PLR0917 - the last three have defaults
    register: Register,
    number: str,
    items: Sequence[int],
    by: str,
    day: date | None = None,
    note: str = "",
    kept: str = "",
) -> Case:
    """Note who says that things were done, and when; all that are open if none is named.

    Args:
        register: open to be written.
        number: the case's.
        items: their numbers.
        by: who says so.
        day: when they were done; None: today.
        note: what was done; it stays in the register.
        kept: why something of them is kept, as the letter tells it; "": nothing is.

    Raises:
        ConfigError: there is no such item, or it was signed off.
    """
    case = _alive(register, number)
    there = {each.number for each in case.open_items}
    wanted = set(items) or there
    if not wanted <= there:
        raise ConfigError(
            f"Items are signed off once, by their numbers, found "
            f"{sorted(wanted - there)}, and those of case {number} that are open are "
            f"{sorted(there) or 'none'}. `covey requests show {number}` lists them."
        )
    if not wanted:
        return case
    officer = handle_of("o", line_of(by, "--by"), register.texts())
    on = (day or date.today()).isoformat()
    told, why = (text_handle() if text else "" for text in (note, kept))
    texts = {officer: by}
    texts |= {told: line_of(note, "--note")} if note else {}
    texts |= {why: line_of(kept, "--kept")} if kept else {}
    signed = [
        ItemSigned(case=number, item=each, by=officer, day=on, note=told, kept=why)
        for each in sorted(wanted)
    ]
    register.record(signed, texts)
    return register.case(number)


def _alive(register: Register, number: str) -> Case:
    case = register.case(number)
    if case.closing is not None:
        raise ConfigError(
            f"Something can be done about a case until it is closed, found case {number} "
            f"{case.state}. Add a new one."
        )
    return case


def _number(number: str, cases: Mapping[str, Case]) -> str:
    if not number:
        count = len(cases) + 1
        while str(count) in cases:
            count += 1
        return str(count)
    if number in cases or not NUMBER.fullmatch(number):
        found = "which is there already" if number in cases else "which cannot be one"
        raise ConfigError(
            f"--case takes a number that no case has, of up to 40 letters, digits, '.', "
            f"'_' and '-', found {number!r}, {found}. Leave it out to get the next one."
        )
    return number


def line_of(text: str, what: str) -> str:
    """Return a text as it is kept.

    Raises:
        ConfigError: it is no line of text.
    """
    if not text.strip() or len(text) > MOST_LETTERS or not text.isprintable():
        raise ConfigError(
            f"{what} takes one line of 1 to {MOST_LETTERS} characters that can be "
            f"printed, found {len(text)} characters. Correct it."
        )
    return text
