"""`covey forget`, `covey explain`, `covey join` and `covey update`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.base.errors import ConfigError, LedgerLocked, RunError
from covey.base.names import BASES, Basis
from covey.cli.answer import JsonOption, short, tabled
from covey.cli.app import app, errors, stated, stoppable
from covey.cli.runs import shown
from covey.unlearning.plan import AFTERWARDS, ANSWERS, check_basis

if TYPE_CHECKING:
    from covey.runtime.answers import AnsweredRequest
    from covey.runtime.changing import ChangedRecords
    from covey.runtime.folder import RunFolder
    from covey.runtime.leaving import ClientPlan, ForgetResult
    from covey.runtime.receipts import Receipt, Returning


def places_text(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of `explained`'s places, and of what was not searched."""
    heads = {
        "covey deletes it with forget": "covey deletes or replaces when the client leaves",
        "you": "you have to act on",
    }
    for actor, head in heads.items():
        yield f"{head}:"
        mine = [each for each in told["places"] if each["who_must_act"] == actor]
        for each in mine:
            yield f"  {each['path']}\n    {each['what']}. {each['how']}"
        if not mine:
            yield "  nothing that was found"
    yield "not searched:"
    yield from (f"  {sentence}" for sentence in told["not_searched"])


NOTHING = "nothing"

BY_NAME: Mapping[str, Basis] = {each: each for each in BASES}

NOT_DENIED = (
    "A denial removes nothing from the model: it says only that nobody can tell the "
    "client's updates from those of others by the record of the run."
)


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks for what.

    Attributes:
        clients: their names, and the salt of who comes back.
    """

    clients: Sequence[str | Returning]
    answer: str = "auto"
    basis: Basis = "none"


def asked_by(
    clients: Sequence[str], answer: str | None, basis: str | None, salt: str | None
) -> Asked:
    """Return what the options ask for.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """
    from covey.runtime.receipts import Returning

    if not clients:
        raise ConfigError(
            "Somebody has to leave, but no client is named. Name one, or look at the salts "
            "of earlier requests with --again."
        )
    wanted, rests_on = answer or "auto", basis or "none"
    if wanted not in ("auto", *ANSWERS):
        raise ConfigError(
            f"--answer takes auto, {', '.join(ANSWERS)}, found {wanted!r}. Choose one."
        )
    known = BY_NAME.get(rests_on)
    if known is None:
        raise ConfigError(f"--basis takes {', '.join(BASES)}, found {rests_on!r}. Choose one.")
    check_basis(wanted, known)
    if salt is None:
        return Asked(clients, wanted, known)
    if len(clients) != 1:
        raise ConfigError(
            f"--salt is of one client that comes back, found {len(clients)} names. Ask "
            f"for each of them alone."
        )
    return Asked([Returning(clients[0], salt)], wanted, known)


def check_said(answer: str | None, basis: str | None, *, as_json: bool) -> None:
    """Refuse to choose an answer where there is no terminal to ask.

    Raises:
        ConfigError: neither option is given, and this is no dialogue.
    """
    if answer is None and basis is None and (as_json or not is_a_dialogue()):
        raise ConfigError(
            "A client is answered once it is said what is asked for, but neither "
            "--answer nor --basis is given, and there is no terminal to ask on. Give "
            f"--basis ({', '.join(BASES)}) or --answer (auto, {', '.join(ANSWERS)}); "
            "--plan shows every answer and does nothing."
        )


def is_a_dialogue() -> bool:
    """Say whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def chosen_in_dialogue(found: Sequence[ClientPlan]) -> str | None:
    """Ask which answer it shall be, the same for all; None: nothing shall be done."""
    possible = [
        name
        for name in ANSWERS
        if all(
            option.possible for each in found for option, _ in each.options if option.answer == name
        )
    ]
    automatic = ["auto"] if all(each.chosen for each in found) else []
    offered = [*possible, *automatic, NOTHING]
    print(
        f"\nOnly a retraining takes a client out of the model from its first round on. "
        f"{NOT_DENIED}\n"
    )
    answer = ""
    while answer not in offered:
        answer = typer.prompt(f"Which answer ({', '.join(offered)})", default=NOTHING)
    if answer == NOTHING or not typer.confirm(_question(found, answer)):
        return None
    return answer


def _question(found: Sequence[ClientPlan], answer: str) -> str:
    given = {
        each.client: each.chosen.answer if answer == "auto" and each.chosen else answer
        for each in found
    }
    told = ", ".join(f"{client}: {what}" for client, what in given.items())
    nothing = f" {NOT_DENIED}" if "deny" in given.values() else ""
    return f"{told}.{nothing} The name goes from the run. Go ahead?"


RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.")]


@app.command("forget")
def leave(
    run: RunArgument,
    clients: Annotated[list[str] | None, typer.Argument(help="Names of clients.")] = None,
    answer: Annotated[
        str | None, typer.Option(help="auto (the cheapest honest one), " + ", ".join(ANSWERS))
    ] = None,
    basis: Annotated[
        str | None,
        typer.Option(
            help=f"What it rests on: {', '.join(BASES)}. Erasure and objection are never denied."
        ),
    ] = None,
    salt: Annotated[
        str | None, typer.Option(help="Of a client that left and asks for a stronger answer.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show every answer and its cost; do nothing.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Show the salts that nobody acknowledged.")
    ] = False,
    received: Annotated[
        list[str] | None,
        typer.Option(metavar="REQUEST", help="Its requester has the salt: delete it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer clients that ask to leave a run, and prove what was answered."""
    from covey.runtime.folder import RunFolder
    from covey.runtime.inputs import FederationMetadata

    if again or received:
        _hand_over(run, received or (), as_json=as_json)
        return
    asked = asked_by(clients or (), answer, basis, salt)
    folder = RunFolder.existing(run)
    held = covey.load(run)
    if plan:
        found = held.plan([*asked.clients], asked.answer, asked.basis)
        _show(folder, found, as_json=as_json)
        return
    check_said(answer, basis, as_json=as_json)
    try:  # all are known, before anybody leaves
        found = held.plan([*asked.clients], asked.answer, asked.basis)
    except LedgerLocked:
        # no word could be left of an erased name, nor of a wish that nobody stated
        if salt is not None or (answer is None and basis is None):
            raise
        found = None
    if found is not None and answer is None and basis is None:
        _show(folder, found, as_json=False)
        chosen = chosen_in_dialogue(found)
        if chosen is None:
            stated({}, "Nothing was done.", as_json=False)
            raise typer.Exit(1)
        asked = replace(asked, answer=chosen)
        found = held.plan([*asked.clients], asked.answer, asked.basis)
    if found is None or (FederationMetadata.of(folder) and any(map(_replays, found))):
        _leave_word(folder, asked, as_json=as_json)
        return
    _let_go(held, asked, as_json=as_json)


def _show(folder: RunFolder, found: Sequence[ClientPlan], *, as_json: bool) -> None:
    told: dict[str, Any] = {
        "run": str(folder.path),
        "plans": [_plan_json(each) for each in found],
        "together": _together(found),
    }
    text = "\n\n".join(map(_plan_text, found))
    shared = told["together"]["rounds_replayed"]
    if len(found) > 1 and shared:
        text += f"\n\nOne replay of {shared} rounds serves all of them."
    stated(told, text, as_json=as_json)


def _together(found: Sequence[ClientPlan]) -> dict[str, Any]:
    """Return the one replay that all these answers share."""
    again = [each.chosen for each in found if each.chosen and _replays(each)]
    return {
        "first_replayed_round": again[0].first_replayed_round if again else None,
        "rounds_replayed": again[0].rounds_replayed if again else 0,
    }


def _replays(found: ClientPlan) -> bool:
    return found.chosen is not None and found.chosen.first_replayed_round is not None


def _leave_word(folder: RunFolder, asked: Asked, *, as_json: bool) -> None:
    """Queue the request for the process that runs the rounds, now or next."""
    from covey.runtime.inputs import rebuilt_run
    from covey.runtime.leaving import enqueue_requests
    from covey.runtime.receipts import Returning

    clients = list(dict.fromkeys(map(_name, asked.clients)))
    if any(isinstance(each, Returning) for each in asked.clients):
        run = rebuilt_run(folder)
        enqueue_requests(run, folder, asked.clients, asked.answer, asked.basis)
    else:
        known = covey.load(folder.path).names
        if unknown := [client for client in clients if client not in known]:
            raise RunError(f"{folder.path} has no client {unknown[0]!r}. Correct the name.")
        for client in clients:
            folder.queue_request(client, asked.answer, asked.basis)
    told = [{"client": client, "answer": "pending"} for client in clients]
    text = (
        f"{', '.join(clients)}: put down. It is answered between two rounds by whoever "
        f"plays the run, now or with `covey resume {folder.path}`; see {folder.proofs}."
    )
    stated({"run": str(folder.path), "answers": told}, text, as_json=as_json)


def _let_go(run: covey.Run, asked: Asked, *, as_json: bool) -> None:
    """Answer all at once, and tell each answer: first the salts, which exist once."""
    from covey.report.summary import budget_of

    with stoppable(run.folder), shown(run.folder.name) as observe:
        signed: list[AnsweredRequest] = []
        try:
            done = run.forget(
                [*asked.clients], asked.answer, asked.basis, observe, signed.append, _tell_receipt
            )
        except BaseException:  # what was signed is told, whatever stops the others
            for each in signed:
                errors.print(each.message, soft_wrap=True)
            raise
    answers = [_answer_json(each) for each in done]
    told = {"run": str(run.folder), "answers": answers, **budget_of(run.history)}
    stated(told, "\n".join(_answer_text(run.folder, each) for each in answers), as_json=as_json)
    run.report()
    answered = {each.client for each in done}
    if late := [c for c in map(_name, asked.clients) if c not in answered]:
        raise RunError(
            f"Requests from before were answered first, and then {', '.join(late)} could "
            f"not be given this answer any more. Look again with --plan."
        )


def _hand_over(run: Path, received: Sequence[str], *, as_json: bool) -> None:
    """Delete the salts that arrived, and show the others."""
    held = covey.load(run)
    for each in received:
        held.acknowledge(each)
    left = [asdict(each) for each in held.unacknowledged]
    lines = [
        f"request {each['request']}: {each['answer'] or 'not answered yet'}, "
        f"{each['proof'] or 'no proof yet'}, salt for the requester: {each['salt']}"
        for each in left
    ]
    text = "\n".join(lines) or "Every salt was acknowledged."
    stated({"run": str(run), "unacknowledged": left}, text, as_json=as_json)


def _tell_receipt(client: str, receipt: Receipt) -> None:
    """Tell what the requester needs before anything is done that could fail."""
    errors.print(
        f"{client}: asked, receipt {receipt.path}, salt for the requester: {receipt.salt}",
        soft_wrap=True,
    )


def _name(client: str | Returning) -> str:
    from covey.runtime.receipts import Returning

    return client.client if isinstance(client, Returning) else client


def _answer_json(done: ForgetResult) -> dict[str, Any]:
    given = done.answered
    return {
        "client": done.client,
        "answer": given.option.answer,
        "first_affected_round": given.option.first_affected_round,
        "first_replayed_round": given.option.first_replayed_round,
        "rounds_replayed": given.option.rounds_replayed,
        "seconds": round(done.seconds, 3),
        "model_changed": given.model_changed,
        "model_hash": given.model_hash,
        "proof": str(given.proof),
        "salt": given.salt,
        "copies": [each.describe() for each in given.copies],
        "basis": given.basis,
        "sealed_record_kept": given.sealed_record_kept,
        "request": given.request,
        "receipt": str(done.receipt.path) if done.receipt else None,
    }


@app.command()
def explain(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="The client's name.")],
    page: Annotated[
        Path | None, typer.Option("--page", help="Write it as an HTML page to print, too.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is held on a client, and where, before anything is erased."""
    from covey.report.page import write_explanation
    from covey.runs.pages import on_record

    told = covey.load(run).explain(client)
    if page is not None:
        with on_record([run], "explanation", page, subject=told["handle"]):
            write_explanation(told, run.name, page)
    lines = [
        f"{key.replace('_', ' ')}: {_brief(value)}"
        for key, value in told.items()
        if key not in ("places", "not_searched")
    ]
    more = {"page": str(page)} if page is not None else {}
    text = "\n".join([*lines, *places_text(told), *more.values()])
    stated({**told, **more}, text, as_json=as_json)


def _plan_json(found: ClientPlan) -> dict[str, Any]:
    return {
        "client": found.client,
        "answer": found.chosen.answer if found.chosen else None,
        "reason": found.reason,
        "basis": found.basis,
        "options": [
            {
                **asdict(option),
                "possible": option.possible,
                "seconds": cost.seconds,
                "bytes_deleted": cost.bytes_deleted,
                "afterwards": AFTERWARDS[option.answer],
            }
            for option, cost in found.options
        ],
    }


def _plan_text(found: ClientPlan) -> str:
    heads = ("answer", "possible", "rounds to replay", "seconds", "bytes deleted", "then")
    rows = [
        (
            option.answer,
            "yes" if option.possible else "no",
            str(option.rounds_replayed),
            short(cost.seconds),
            f"{cost.bytes_deleted:,}",
            AFTERWARDS[option.answer] if option.possible else option.reason,
        )
        for option, cost in found.options
    ]
    told = found.chosen.answer if found.chosen else found.reason
    return f"{found.client}: {told}\n{tabled(heads, rows)}"


def _answer_text(run: Path, told: dict[str, Any]) -> str:
    from covey.runtime.copies import outcome_lines

    changed = "changed" if told["model_changed"] else "unchanged"
    if told["answer"] == "deny":
        changed += ": nothing was removed from it"
    back = "; with it a stronger answer can be asked for later, see docs/leaving.md"
    lines = (
        f"{told['client']}: {told['answer']}, {told['rounds_replayed']} rounds played "
        f"again in {told['seconds']:.1f} s, the model is {changed}",
        f"proof: {told['proof']}",
        f"receipt: {told['receipt']}",
        f"salt for the requester: {told['salt']}{back if told['sealed_record_kept'] else ''}",
        f"kept sealed until you say that it arrived: covey forget {run} --received "
        f"{told['request']}",
        *outcome_lines(told["copies"]),
    )
    return "\n".join(lines)


def _brief(value: object) -> str:
    if isinstance(value, list):
        items = [str(each) for each in value]
        more = f" and {len(items) - 12} more" if len(items) > 12 else ""
        return (", ".join(items[:12]) or "none") + more
    return str(value)


DataOption = Annotated[Path, typer.Option(help="Its records: an .npz file with arrays x and y.")]


@app.command()
def join(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="A name that nobody has or had.")],
    data: DataOption,
    threshold: Annotated[
        float | None, typer.Option(help="The risk that it accepts, from 0 to 1.")
    ] = None,
    risk_weight: Annotated[
        float | None, typer.Option(help="How much a risk weighs in its choice, from 0 to 1.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a client join a run whose models are solved from sums over clients."""
    held = covey.load(run)
    with stoppable(run), shown(run.name) as observe:
        done = held.join(client, data, threshold, risk_weight, observe)
    _tell(held, done, "joined", as_json=as_json)


@app.command()
def update(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="The client's name.")],
    data: DataOption,
    add: Annotated[bool, typer.Option("--add", help="Add to the records that it has.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Replace a client's records, or add to them, and solve the models again."""
    held = covey.load(run)
    with stoppable(run), shown(run.name) as observe:
        done = held.update(client, data, add=add, observe=observe)
    _tell(held, done, "updated", as_json=as_json)


def _tell(run: covey.Run, done: ChangedRecords, what: str, *, as_json: bool) -> None:
    told = {**asdict(done), "seconds": round(done.seconds, 3)}
    lines = (
        f"{done.client}: {what}, {done.examples} records in cluster {done.cluster}, "
        f"whose sums are now {done.sums_after}",
        f"models solved again in {done.seconds:.1f} s: {done.model_hash}",
        *(f"exported with what was there before: {each}" for each in done.exported),
    )
    stated({"run": str(run.folder), **told}, "\n".join(lines), as_json=as_json)
    run.report()
