"""One client's card: its risk, its exposure, its sets, and what its leaving costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.errors import CoveyError
from covey.history import History
from covey.ledger import Ledger
from covey.report.attacks import final_risk, final_risks
from covey.report.run_summary import client_groups
from covey.runtime.client_record import ClientRecord, read_client
from covey.types import ClientName, Handle
from covey.unlearning.afterwards import AFTERWARDS
from covey.web.followed_run import FollowedRun, Snapshot

__all__ = ["client_page", "clients_page", "handle_of"]

PAGE = 100
"""Clients on one page of the list."""


def names_of(run: FollowedRun) -> Mapping[Handle, ClientName]:
    """Return the names that are still known."""
    try:
        with Ledger.read(run.folder.ledger) as ledger:
            return ledger.names()
    except CoveyError:
        return {}


def handle_of(run: FollowedRun, name: ClientName) -> Handle | None:
    """Return the handle of a client's name, or of itself; None: nobody has it."""
    names = names_of(run)
    found = next((handle for handle, each in names.items() if each == name), None)
    return found or (name if name in _known(run.look().history, names) else None)


def clients_page(run: FollowedRun, page: int, asked: str) -> dict[str, Any]:
    """Return one page of the list of clients, by name; those that left come last."""
    snapshot, names = run.look(), names_of(run)
    handles = sorted(
        _known(snapshot.history, names), key=lambda h: (h not in names, names.get(h, h))
    )
    last = max(0, (len(handles) - 1) // PAGE)
    page = min(max(0, page), last)
    shown = handles[page * PAGE : (page + 1) * PAGE]
    return {
        "run": run,
        "snapshot": snapshot,
        "rows": [_row(snapshot.history, names, handle) for handle in shown],
        "page": page,
        "last": last,
        "count": len(handles),
        "asked": asked,
    }


def client_page(run: FollowedRun, handle: Handle) -> dict[str, Any] | None:
    """Return a client's card; None: there is no such client."""
    snapshot, names = run.look(), names_of(run)
    history = snapshot.history
    if handle not in _known(history, names):
        return None
    record = run.made_later(f"client {handle}", lambda now: _record(run, now, handle))
    exposed = next((e for e in final_risks(history) if e.handle == handle), None)
    attack = final_risk(history, exposed) if exposed else None
    return {
        "run": run,
        "snapshot": snapshot,
        **_row(history, names, handle),
        "figure": _figure(history, handle),
        "played": len(history.rounds),
        "exposed": exposed,
        "attack": attack.attack if attack else "",
        "moves": history.moves.get(handle, ()),
        "diverged": history.diverged,
        "record": record,
        "answer": next((e.answer for e in history.left if e.handle == handle), ""),
    }


def _record(run: FollowedRun, snapshot: Snapshot, handle: Handle) -> dict[str, Any]:
    del snapshot  # the ledger is read again, for this client alone
    try:
        found = read_client(run.folder, handle)
    except (CoveyError, OSError) as error:
        return {"problem": str(error)}
    held = found.participation
    left = frozenset(held.left)
    trained = held.trained.get(handle, {})
    sets = [
        {
            "round": each.round_index,
            "cluster": each.cluster,
            "members": len(each.members),
            "others": each.plausible_members(handle, left),
        }
        for each in held.sets_of(handle)
    ]
    return {
        "problem": "",
        "rounds": sorted(trained),
        "clusters": sorted(set(trained.values())),
        "sets": sets,
        "least": min((each["others"] for each in sets), default=None),
        "options": _options(found),
        "chosen": found.chosen.answer if found.chosen else "",
        "why": found.unanswerable,
    }


def _options(found: ClientRecord) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "answer": option.answer,
            "possible": option.possible,
            "rounds": option.rounds_replayed,
            "seconds": cost.seconds,
            "bytes": cost.bytes_deleted,
            "then": AFTERWARDS[option.answer] if option.possible else option.reason,
        }
        for option, cost in found.options
    ]


def _row(
    history: History, names: Mapping[Handle, ClientName], handle: Handle
) -> dict[str, Any]:
    taus = history.started.risk_thresholds if history.started else {}
    cluster = history.assignment.get(handle)
    figure = _figure(history, handle)
    accepts = taus.get(handle)
    known = figure is not None and accepts is not None
    return {
        "handle": handle,
        "name": names.get(handle, ""),
        "group": client_groups_of(history).get(handle, ""),
        "cluster": cluster,
        "accepts": accepts,
        "risk": figure.risk if figure else None,
        "above": figure.risk > accepts if known and figure and accepts else None,
        "left": handle not in names,
    }


def client_groups_of(history: History) -> Mapping[Handle, str]:
    """Return each client's group, where it is known."""
    return client_groups(history)


def _figure(history: History, handle: Handle) -> Any:  # noqa: ANN401
    cluster = history.assignment.get(handle)
    return None if cluster is None else history.figures.get(cluster)


def _known(history: History, names: Mapping[Handle, ClientName]) -> set[Handle]:
    began = history.started.groups if history.started else {}
    return {*began, *names, *history.assignment, *(e.handle for e in history.left)}
