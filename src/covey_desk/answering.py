"""Planning and answering requests in every run that has the names.

The register is written in short transactions, and is free while a run replays. Killed anywhere,
the same command goes on from there: a run finishes the requests in its ledger, and its answer
is recognised by the receipt's mark, which only the requester's name and salt make.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from covey import CoveyError, LedgerLocked, ReturningClient, Run, RunError
from covey.api.parts import wanted_answer
from covey.base.files import read_bounded
from covey.base.names import Basis, ClientName
from covey.leaving.forgetting import finish_requests
from covey.leaving.handover import Handover, subject_mark
from covey.leaving.planning import ClientPlan
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.receipts import Receipt
from covey.runs.session import Observer
from covey_desk.register import Register, read_register, register_at
from covey_desk.request import EXACT, Ending, Request, RunOfRequest, proof_path
from covey_desk.search import Holdings, by_hand, salt_of, search_runs, searched

Load = Callable[[Path], Run]
"""How a run is loaded: a program passes the model and the clients that it began with."""

PLAYED = (
    "a process is playing it: the request is left with that process, and answered between "
    "two rounds"
)


@dataclass(frozen=True, slots=True)
class _Requester:
    """One name of one request."""

    number: str
    index: int
    name: ClientName
    basis: Basis
    wanted: str
    salts: tuple[str, ...]

    def is_served_by(self, answer: str) -> bool:
        """Say whether an earlier answer is what this request asks for."""
        if self.wanted != "auto":
            return answer == self.wanted
        return self.basis != "erasure" or answer in EXACT


@dataclass(frozen=True, slots=True)
class NamePlan:
    """What one run would answer to one name.

    Attributes:
        answer: "": none would be true; `reason` says why.
        afterwards: what is then true of the run's models.
        seconds: predicted, of leaving alone; None: not known.
    """

    request: str
    name: ClientName
    answer: str
    reason: str
    afterwards: str
    rounds_replayed: int
    seconds: float | None

    @classmethod
    def of(cls, number: str, plan: ClientPlan) -> "NamePlan":
        """Return a plan in short."""
        chosen = plan.chosen
        if chosen is None:
            return cls(number, plan.client, "", plan.reason, "", 0, None)
        seconds = next(option.seconds for option in plan.options if option.answer == chosen.answer)
        then, replayed = chosen.afterwards, chosen.rounds_replayed
        return cls(number, plan.client, chosen.answer, "", then, replayed, seconds)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What one run would answer to all names; problem: why that cannot be said, or ""."""

    run: str
    names: tuple[NamePlan, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """What would be done about some requests in all runs.

    Attributes:
        unreadable: runs of which it is unclear whether they have the names, and why.
        unknown: names that no run has, by the request's number.
    """

    runs: tuple[RunPlan, ...]
    unreadable: Mapping[str, str]
    unknown: Mapping[str, tuple[str, ...]]


def open_requests(held: Register, numbers: Sequence[str]) -> tuple[Request, ...]:
    """Return these requests, or all, that are not being closed, by date of receipt.

    Raises:
        ConfigError: there is no such request.
    """
    requests = [held.request(number) for number in dict.fromkeys(numbers)]
    open_ones = [request for request in requests or held.requests().values() if request.is_open]
    return tuple(sorted(open_ones, key=lambda request: (request.entry.received, request.request)))


def _search(roots: Sequence[str | Path], requests: Iterable[Request]) -> Holdings:
    entries = [request.entry for request in requests]
    names = [name for entry in entries for name in entry.names]
    return search_runs(roots, names, [salt for entry in entries for salt in entry.salts])


def _requesters(requests: Iterable[Request], wanted: str) -> list[_Requester]:
    return [
        _Requester(
            e.request, index, name, e.entry.basis, wanted or e.wanted or "auto", e.entry.salts
        )
        for e in requests
        if e.entry.basis != "access"
        for index, name in enumerate(e.entry.names, 1)
    ]


def _batches(requesters: Sequence[_Requester]) -> Iterator[list[_Requester]]:
    """Yield who can be answered at once: of one basis and one answer, each name once."""
    rest = list(requesters)
    while rest:
        first, batch = rest[0], dict[ClientName, _Requester]()
        for requester in rest:
            if (requester.basis, requester.wanted) == (first.basis, first.wanted):
                batch.setdefault(requester.name, requester)
        yield list(batch.values())
        rest = [requester for requester in rest if requester not in batch.values()]


def plan_answers(
    folder: Path,
    roots: Sequence[str | Path],
    numbers: Sequence[str] = (),
    wanted: str = "",
    load: Load = Run,
) -> AnswerPlan:
    """Return what would be answered; nothing is done.

    Args:
        folder: the register's.
        roots: folders that runs lie below, and URLs of ledgers.
        numbers: of requests; none: all that are open.
        wanted: the answer of every run; "": what each request was begun with.
        load: how a run is loaded.

    Raises:
        ConfigError: there is no such answer or request.
    """
    wanted_answer(wanted or "auto", None)
    with read_register(folder) as held:
        requests = open_requests(held, numbers)
    requesters = _requesters(requests, wanted)
    holdings = _search(roots, requests)
    done = {(r.request, r.index, r.run) for request in requests for r in request.runs if r.answer}
    runs: list[RunPlan] = []
    for place, known in holdings.known.items():
        here = [
            requester
            for requester in requesters
            if (requester.name in known or holdings.left.get(place, {}).get(requester.name) == "")
            and (requester.number, requester.index, place) not in done
            and not (requester.name in holdings.stopped[place] and requester.is_served_by("stop"))
        ]
        planned, problem, run = list[NamePlan](), "", None
        try:
            for batch in _batches(here):
                run = run or load(Path(place))
                leavers = _as_they_come(run, batch)
                plans = run.plan([*leavers.values()], batch[0].wanted, batch[0].basis)
                planned += [NamePlan.of(e.number, p) for e, p in zip(leavers, plans, strict=True)]
        except CoveyError as error:
            problem = str(error)
        if here:
            runs.append(RunPlan(place, tuple(planned), problem))
    unknown = {
        request.request: tuple(
            name
            for name in request.entry.names
            if not holdings.runs_of(name)
            and not any(r.answer for r in request.runs if r.person == name)
        )
        for request in requests
    }
    lacking = {number: names for number, names in unknown.items() if names}
    return AnswerPlan(tuple(runs), holdings.unreadable, lacking)


def answer_requests(
    folder: Path,
    roots: Sequence[str | Path],
    numbers: Sequence[str] = (),
    wanted: str = "",
    load: Load = Run,
    observe: Observer = lambda _: None,
) -> tuple[RunOfRequest, ...]:
    """Answer these requests in every run that has their names; clients that leave together share.

    A run that cannot answer now keeps no other one waiting: its outcome says why. Called
    again, it goes on with what is left. The report of each run that answered anew is written,
    as answers delete it.

    Args:
        folder: the register's.
        roots: folders that runs lie below, and URLs of ledgers.
        numbers: of requests; none: all that are open.
        wanted: the answer of every run from now on; "": "auto", or what was begun.
        load: how a run is loaded.
        observe: called after every round that is played again.

    Raises:
        ConfigError: there is no such answer or request; nothing was done.
    """
    with read_register(folder) as held:
        requests = open_requests(held, numbers)
    wanted_answer(wanted or "auto", None)
    holdings = _search(roots, requests)
    changing = [request.request for request in requests if request.entry.basis != "access"]
    for number in changing:
        _begin(folder, number, holdings, wanted)
    with read_register(folder) as held:
        begun = [held.request(number) for number in changing]
    requesters = _requesters(begun, "")
    places = [run.run for request in begun for run in request.unanswered]
    outcomes: list[RunOfRequest] = []
    for place in dict.fromkeys(places):
        here = _InRun(folder, place, load, observe)
        answered = here.answer(requesters)
        if any(outcome.answer for outcome in answered):
            load(Path(place)).report()
        outcomes += answered
    if access := [request.request for request in requests if request.request not in changing]:
        holdings = _search(roots, requests)  # what is true once the others are answered
        for number in access:
            _begin(folder, number, holdings, wanted)
    return tuple(outcomes)


def _begin(folder: Path, number: str, holdings: Holdings, wanted: str) -> None:
    """Note what runs hold on the names, while these still lead to it."""
    with read_register(folder) as held:
        requests = held.requests()
    new, known = searched(requests, number, holdings, look_up=True), requests[number].wanted
    if new or not known or wanted not in ("", known):
        with register_at(folder) as held:
            for requester in new:
                held.note(requester)
            held.begin(number, wanted or known or "auto")


@dataclass(frozen=True, slots=True)
class _InRun:
    """One run that answers requests."""

    folder: Path
    place: str
    load: Load
    observe: Observer

    def answer(self, requesters: Sequence[_Requester]) -> list[RunOfRequest]:
        """Let the run answer whom it owes an answer, and say what came of it."""
        waiting, reason, refused = self._waiting(requesters), "", dict[_Requester, str]()
        path = Path(self.place)
        if not RunFolder(path).config_path.is_file():
            self._end(waiting, "gone")
            return []
        try:
            run = self.load(path)
            if _owes_answers(path) or _lacks_its_end(run):  # a kill may have left it half-done
                with run.open(self.observe, plays=False) as session:
                    finish_requests(session)
            for batch in _batches(waiting):
                self._note_signed(run, batch)
                refused |= self._forget(run, self._waiting(batch))
            if not _owes_answers(path):
                with Ledger.read(RunFolder(path).ledger) as ledger:
                    names, stopped = {*ledger.names().values()}, ledger.roster().stopped
                rest = self._waiting(waiting)
                self._end(
                    [requester for requester in rest if requester.name not in names], "elsewhere"
                )
                served = [e for e in rest if e.name in stopped and e.is_served_by("stop")]
                self._end(served, "before")
        except LedgerLocked:
            reason = PLAYED
            self._leave_word(waiting)
        except CoveyError as error:
            reason = str(error)
        return [self._outcome(requester, refused.get(requester) or reason) for requester in waiting]

    def _waiting(self, requesters: Sequence[_Requester]) -> list[_Requester]:
        with read_register(self.folder) as held:
            requests = held.requests()
        return [
            requester
            for requester in requesters
            if any(
                (run.index, run.run) == (requester.index, self.place)
                for run in requests[requester.number].unanswered
            )
        ]

    def _of(self, requester: _Requester, **values: Any) -> RunOfRequest:  # noqa: ANN401
        return RunOfRequest(
            request=requester.number,
            person=requester.name,
            run=self.place,
            index=requester.index,
            **values,
        )

    def _write(self, outcomes: Iterable[RunOfRequest]) -> None:
        with register_at(self.folder) as held:
            for outcome in outcomes:
                held.note(outcome)

    def _end(self, requesters: Sequence[_Requester], why: Ending) -> None:
        if requesters:
            self._write(self._of(requester, ended=why) for requester in requesters)

    def _note_signed(self, run: Run, requesters: Sequence[_Requester]) -> None:
        """Note answers that are signed: of an earlier request, or of one that a kill cut off."""
        with read_register(self.folder) as held:
            noted = [run for request in held.requests().values() for run in request.runs]
        for requester in requesters:
            here = requester.name, self.place
            known = [r.run_request for r in noted if (r.person, r.run) == here and r.run_request]
            known += [e.request for e in run.unacknowledged if _is_about(run, e, requester.name)]
            for request in dict.fromkeys(known):
                path = proof_path(run.folder, request)
                if path.is_file() and requester.is_served_by(proof_of(path)[1]["answer"]):
                    self._note(requester, request)
                    break

    def _note(self, requester: _Requester, request: str) -> None:
        """Note what a signed proof says, and what it leaves to be done by hand."""
        written, proof = proof_of(proof_path(Path(self.place), request))
        holds = json.loads(self._noted(requester).held or "{}")
        outcome = self._of(
            requester,
            run_request=request,
            answer=proof["answer"],
            answered=proof["answered"],
            model_changed=proof["model_before"] != proof["model_after"],
            proof_sha256=hashlib.sha256(written).hexdigest(),
            left=by_hand(self.place, holds, proof),
        )
        self._write([outcome])

    def _forget(self, run: Run, requesters: Sequence[_Requester]) -> dict[_Requester, str]:
        """Let the run forget the names that it has, and say why some cannot be answered."""
        leavers = _as_they_come(run, requesters)
        if not leavers:
            return {}
        by_name = {requester.name: requester for requester in leavers}
        answer, basis = requesters[0].wanted, requesters[0].basis
        plans = run.plan([*leavers.values()], answer, basis)
        refused = {by_name[plan.client]: plan.reason for plan in plans if plan.chosen is None}
        leaving = [client for requester, client in leavers.items() if requester not in refused]

        def on_receipt(name: str, receipt: Receipt) -> None:
            self._write([self._of(by_name[name], run_request=receipt.request)])

        if leaving:
            results = run.forget(leaving, answer, basis, self.observe, on_receipt=on_receipt)
            for result in results:
                self._note(by_name[result.client], result.answered.request)
        return refused

    def _leave_word(self, requesters: Sequence[_Requester]) -> None:
        """Leave the requests with the process that plays the run."""
        folder = RunFolder(Path(self.place))
        queued = {request.client for request in folder.queued_requests()}
        with Ledger.read(folder.ledger) as ledger:
            waiting = {r.handle for r in ledger.requests() if r.is_open}
            present = {name for handle, name in ledger.names().items() if handle not in waiting}
        for requester in requesters:
            if requester.name in present - queued:
                folder.queue_request(requester.name, requester.wanted, requester.basis)

    def _noted(self, requester: _Requester) -> RunOfRequest:
        with read_register(self.folder) as held:
            runs = held.request(requester.number).runs
        here = requester.index, self.place
        return next(run for run in runs if (run.index, run.run) == here)

    def _outcome(self, requester: _Requester, reason: str) -> RunOfRequest:
        outcome = self._noted(requester)
        return outcome if outcome.answer or outcome.ended else replace(outcome, reason=reason)


def _as_they_come(
    run: Run, requesters: Sequence[_Requester]
) -> dict[_Requester, ClientName | ReturningClient]:
    """Return the clients of a run, and those that left it and come back with a salt."""
    leavers = {e: e.name for e in requesters if e.name in run.names}
    salts = [delivery.salt for delivery in run.unacknowledged if delivery.answer]
    with Ledger.read(RunFolder(run.folder).ledger) as ledger:
        salts_of = {
            e: salt_of(ledger, e.name, (*e.salts, *salts)) for e in requesters if e not in leavers
        }
    return leavers | {e: ReturningClient(e.name, salt) for e, salt in salts_of.items() if salt}


def proof_of(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Return a proof's file, and what it says.

    Raises:
        RunError: it cannot be read.
    """
    try:
        written = read_bounded(path)
        return written, json.loads(written)
    except (OSError, ValueError) as error:
        raise RunError(
            f"{path} must be a proof, found {type(error).__name__}: restore the requester's copy."
        ) from error


def _is_about(run: Run, handover: Handover, name: ClientName) -> bool:
    """Say whether the proof that a salt goes with is about this name."""
    path = proof_path(run.folder, handover.request)
    if not path.is_file():
        return False
    mark = str(proof_of(path)[1].get("subject"))
    return hmac.compare_digest(mark, subject_mark(name, bytes.fromhex(handover.salt)))


def _lacks_its_end(run: Run) -> bool:
    """Say whether all rounds are played, and the end is not recorded: an answer took it back."""
    history = run.history
    planned = history.ended_early or history.started
    is_played = planned is not None and len(history.rounds) >= planned.rounds
    return is_played and history.finished is None


def _owes_answers(path: Path) -> bool:
    """Say whether requests wait in a run's ledger, or with the process that plays it."""
    folder = RunFolder(path)
    with Ledger.read(folder.ledger) as ledger:
        waits = any(request.is_open for request in ledger.requests())
    return waits or any(folder.queued_requests())
