"""`covey forget` and `covey verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

import covey
from covey.base.as_json import HIDDEN, INLINE
from covey.base.errors import ConfigError, LedgerLocked, RunError
from covey.base.names import ANSWERS, BASES, Basis
from covey.cli.answer import BAD, CommandResult, Line, Text, fail_if, table_of, text_of, wants_json
from covey.cli.commands import PATH, argument, command, trust_code_option
from covey.cli.console import errors, stoppable

if TYPE_CHECKING:
    from covey.leaving.forgetting import ForgetResult
    from covey.leaving.handover import Handover
    from covey.leaving.plan import Option
    from covey.leaving.planning import ClientPlan, ReturningClient
    from covey.leaving.signing import AnsweredRequest
    from covey.leaving.verification import Verification
    from covey.report.summary import Deniability
    from covey.runs.folder import RunFolder
    from covey.runs.receipts import Receipt

FOLLOWS, WORD = "follows from the ledger", "the operator's word"
NOTHING = "nothing"

NOT_DENIED = (
    "A denial removes nothing from the model: it says only that the record of the "
    "run cannot distinguish the client's updates from those of others."
)


@dataclass(frozen=True, slots=True)
class Plans(CommandResult):
    """What would be answered to clients that leave together; nothing was done."""

    run: Path
    plans: Sequence[ClientPlan]

    def lines(self) -> Iterator[Line]:
        """Yield of every client what it would be answered, and a row per answer."""
        for plan in self.plans:
            yield f"{plan.client}: {plan.chosen.answer if plan.chosen else plan.reason}"
            yield table_of(list(map(_row, plan.options)))
            yield ""
        rounds = [plan.chosen.rounds_replayed for plan in self.plans if plan.chosen]
        if len(rounds) > 1 and any(rounds):
            yield f"One replay of {max(rounds)} rounds serves all of them."


def _row(option: Option) -> Mapping[str, object]:
    return {
        "answer": option.answer,
        "possible": option.possible,
        "rounds to replay": option.rounds_replayed,
        "seconds": option.seconds,
        "bytes deleted": option.bytes_deleted,
        "then": option.afterwards,
    }


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """A request that waits for the process that plays the run.

    Attributes:
        answer: `pending`.
    """

    client: str
    answer: str = "pending"


@dataclass(frozen=True, slots=True)
class Queued(CommandResult):
    """Requests that were recorded, where another process plays the run."""

    run: Path
    answers: Sequence[PendingAnswer]
    proofs: Path = field(metadata=HIDDEN)

    def lines(self) -> Iterator[Line]:
        """Yield when they are answered."""
        names = ", ".join(answer.client for answer in self.answers)
        yield (
            f"{names}: request recorded. It is answered between two rounds by the process that "
            f"plays the run, now or with `covey resume {self.run}`; see {self.proofs}."
        )


@dataclass(frozen=True, slots=True)
class Forgotten(CommandResult):
    """Clients that left."""

    run: Path
    answers: Sequence[ForgetResult]
    deniability: Deniability = field(metadata=INLINE)

    def lines(self) -> Iterator[Line]:
        """Yield each answer, and what is still to be done."""
        from covey.leaving.copies import outcome_lines

        back = "; with it a stronger answer can be asked for: covey forget RUN CLIENT --salt SALT"
        for answer in self.answers:
            done = answer.answered
            changed = "changed" if done.model_changed else "unchanged"
            if done.option.answer == "deny":
                changed += ": nothing was removed from it"
            yield (
                f"{answer.client}: {done.option.answer}, {done.option.rounds_replayed} rounds "
                f"played again in {answer.seconds:.1f} s, the model is {changed}"
            )
            yield f"proof: {done.proof}"
            yield f"receipt: {answer.receipt.path if answer.receipt else None}"
            yield f"salt for the requester: {done.salt}{back if done.sealed_record_kept else ''}"
            yield (
                f"kept sealed until you say that it arrived: covey forget {self.run} --received "
                f"{done.request}"
            )
            yield from outcome_lines(done.copies)


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """The salts that are still kept for requesters."""

    run: Path
    unacknowledged: Sequence[Handover]


def _chosen_in_dialogue(plans: Sequence[ClientPlan]) -> str:
    """Ask which answer it shall be, the same for all; end the command where it is none."""
    offered = [
        name
        for name in ANSWERS
        if all(o.possible for plan in plans for o in plan.options if o.answer == name)
    ]
    if all(plan.chosen for plan in plans):
        offered.append("auto")
    offered.append(NOTHING)
    print(
        f"Only a retraining takes a client out of the model from its first round on. {NOT_DENIED}\n"
    )
    answer = ""
    while answer not in offered:
        answer = click.prompt(f"Which answer ({', '.join(offered)})", default=NOTHING)
    answers = {
        plan.client: plan.chosen.answer if answer == "auto" and plan.chosen else answer
        for plan in plans
    }
    all_answers = ", ".join(f"{client}: {one}" for client, one in answers.items())
    denied = f" {NOT_DENIED}" if "deny" in answers.values() else ""
    gone = "" if {*answers.values()} == {"stop"} else " The name goes from the run."
    question = f"{all_answers}.{denied}{gone} Go ahead?"
    if answer == NOTHING or not click.confirm(question):
        print("Nothing was done.")
        raise click.exceptions.Exit(1)
    return answer


@command()
@argument("run", type=PATH, help="The folder of a run.")
@argument("clients", nargs=-1, help="Names of clients.")
@click.option(
    "--answer",
    help="auto (the cheapest honest one), deny, subtract, roll_back, retrain, calibrate or stop.",
)
@click.option(
    "--basis",
    help="What it rests on: erasure, withdrawal, objection, restriction or none. Erasure and "
    "objection are never denied; a restriction is answered by a stop alone.",
)
@click.option("--salt", help="Of a client that left and asks for a stronger answer.")
@click.option("--plan", is_flag=True, help="Show every answer and its cost; do nothing.")
@click.option("--again", is_flag=True, help="Show the salts that were not acknowledged.")
@click.option(
    "--received", metavar="REQUEST", multiple=True, help="Its requester has the salt: delete it."
)
@trust_code_option
def forget(
    run: Path,
    clients: Sequence[str],
    answer: str | None,
    basis: str | None,
    salt: str | None,
    plan: bool,
    again: bool,
    received: Sequence[str],
    trust_code: bool,
) -> Iterator[Forgotten | Queued | Plans | Unacknowledged]:
    """Answer clients that ask to leave a run, and prove what was answered."""
    from covey.api.parts import wanted_answer
    from covey.leaving.forgetting import record_requests
    from covey.leaving.plan import check_basis
    from covey.leaving.planning import ReturningClient
    from covey.runs.folder import FederationMetadata, RunFolder
    from covey.runs.reading import unknown_client

    if again or received:
        held = covey.load(run)
        for request in received:
            held.acknowledge(request)
        yield Unacknowledged(run, held.unacknowledged)
        return
    names = list(dict.fromkeys(clients))
    if not names:
        raise ConfigError(
            "CLIENT must be named, found none: name one, or --again shows earlier requests' salts."
        )
    wanted, known_basis = wanted_answer(answer or "auto", basis)
    check_basis(wanted, known_basis)
    if salt is not None and len(names) != 1:
        raise ConfigError(
            f"--salt must be one returning client's, found {len(names)} names: ask for each alone."
        )
    leavers: list[str | ReturningClient] = (
        [*names] if salt is None else [ReturningClient(names[0], salt)]
    )
    folder = RunFolder.existing(run)
    held = covey.load(run, trust_code=trust_code)
    _name_own_parts(folder)
    if plan:
        yield Plans(run, held.plan(leavers, wanted, known_basis))
        return
    is_open = answer is None and basis is None
    if is_open and (wants_json.get() or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise ConfigError(
            f"--answer or --basis must say what a client wants, found neither, and no terminal to "
            f"ask on: give --basis ({', '.join(BASES)}) or --answer (auto, {', '.join(ANSWERS)}); "
            f"--plan shows every answer and does nothing."
        )
    if is_open:
        plans = held.plan(leavers, wanted, known_basis)
        yield Plans(run, plans)
        wanted = _chosen_in_dialogue(plans)
    is_remote = FederationMetadata.of(folder) is not None
    plans = held.plan(leavers, wanted, known_basis) if is_remote else ()
    replays = (
        planned.chosen and planned.chosen.first_replayed_round is not None for planned in plans
    )
    try:
        if not any(replays):
            yield from _forget(held, names, leavers, wanted, known_basis)
            return
        if salt is not None:
            with held.open(plays=False) as session:
                record_requests(session, leavers, wanted, known_basis)
    except LedgerLocked:
        if salt is not None:  # no request could be queued for an erased name
            raise
    if salt is None:  # for the process that runs the rounds, now or next
        if unknown := [name for name in names if name not in held.names]:
            raise unknown_client(folder, unknown[0], held.names)
        for name in names:
            folder.queue_request(name, wanted, known_basis)
    yield Queued(run, list(map(PendingAnswer, names)), folder.proofs)


def _name_own_parts(folder: RunFolder) -> None:
    """Say before an answer which parts of the run are not covey's code."""
    from covey.runs.ledger_terms import own_parts

    for setting, name in own_parts(folder.config()).items():
        errors.print(
            f"{setting} = {name!r} is not covey's code: that it carries nothing of a client over "
            f"is your word, and the proof names it.",
            soft_wrap=True,
        )


def _forget(
    run: covey.Run,
    names: Sequence[str],
    leavers: list[str | ReturningClient],
    wanted: str,
    basis: Basis,
) -> Iterator[Forgotten]:
    from covey.cli.console import shown
    from covey.report.summary import deniability

    def on_receipt(client: str, receipt: Receipt) -> None:  # before anything that could fail
        errors.print(
            f"{client}: request recorded, receipt {receipt.path}, "
            f"salt for the requester: {receipt.salt}",
            soft_wrap=True,
        )

    with stoppable(run.folder), shown(run.folder.name) as observe:
        signed: list[AnsweredRequest] = []
        try:
            done = run.forget(leavers, wanted, basis, observe, signed.append, on_receipt)
        except BaseException:  # what was signed is said, whatever stops the others
            for signature in signed:
                errors.print(signature.message, soft_wrap=True)
            raise
    # printed before anything else is done: salts exist once
    yield Forgotten(run.folder, done, deniability(run.history))
    run.report()
    answered = {answer.client for answer in done}
    if late := [name for name in names if name not in answered]:
        raise RunError(
            f"Earlier requests were answered first, and {', '.join(late)} cannot get this answer "
            f"any more: look again with --plan."
        )


@text_of("covey.leaving.verification.Verification")
def lines_of_verification(verification: Verification) -> Iterator[Line]:
    """Yield a line per check, then what is anchored, and what is the operator's word."""
    from covey.leaving.verification import OPERATOR

    for check in verification.checks:
        mark = {True: "ok", False: "FAILED", None: "open"}[check.ok]
        line = Text(f"{mark:7} {check.name}: {check.detail}")
        line.stylize(BAD if check.ok is False else "", 0, len(mark))
        yield line
    for anchor in verification.anchored:
        events = f"events 1 to {anchor.events}"
        yield f"anchored: {events} by the receipt of {anchor.signer}, {anchor.when}"
    for statement in verification.statements:
        yield f"{FOLLOWS if statement.follows else WORD}: {statement.text}"
    if verification.operator:
        words = "; ".join(OPERATOR.get(statement, statement) for statement in verification.operator)
        yield f"the operator's word alone: {words}"


@command()
@argument("proof", type=PATH, help="A proof, as JSON.")
@click.option("--ledger", type=PATH, help="The folder of the run it is of.")
@click.option("--key", type=PATH, help="The signer's public keys, from elsewhere, as PEM.")
@click.option("--mine", type=(str, str), metavar="NAME SALT", help="Is the proof about you?")
@click.option("--receipt", type=PATH, help="What you received for your request.")
def verify(
    proof: Path,
    ledger: Path | None,
    key: Path | None,
    mine: tuple[str, str] | None,
    receipt: Path | None,
) -> Iterator[Verification]:
    """Check a proof offline; exit code 1 if a check fails."""
    from covey.leaving.verification import verify as check_proof

    verification = check_proof(proof, ledger, key, mine, receipt)
    yield verification
    fail_if(not verification.valid)
