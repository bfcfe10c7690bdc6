"""`covey forget` and `covey explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey import report, runs, runtime
from covey.cli.app import JsonOption, app, stated
from covey.cli.asking import Asked, asked_by, check_said, chosen_in_dialogue
from covey.cli.consoles import errors
from covey.cli.places import places_text
from covey.cli.progress import shown
from covey.cli.stopping import stoppable
from covey.cli.tables import short, tabled
from covey.errors import LedgerLocked, RunError
from covey.types import BASES
from covey.unlearning import ANSWERS
from covey.unlearning.afterwards import AFTERWARDS

if TYPE_CHECKING:
    from covey.runtime.receipts import Receipt

__all__ = ["explain", "leave"]

RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.")]


@app.command("forget")
def leave(
    run: RunArgument,
    clients: Annotated[
        list[str] | None, typer.Argument(help="Names of clients.")
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(help="auto (the cheapest honest one), " + ", ".join(ANSWERS)),
    ] = None,
    basis: Annotated[
        str | None,
        typer.Option(
            help=f"What it rests on: {', '.join(BASES)}. "
            "Erasure and objection are never denied."
        ),
    ] = None,
    salt: Annotated[
        str | None,
        typer.Option(help="Of a client that left and asks for a stronger answer."),
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
    if again or received:
        _hand_over(run, received or (), as_json=as_json)
        return
    asked = asked_by(clients or (), answer, basis, salt)
    folder = runtime.RunFolder.existing(run)
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
    if found is None or (
        runtime.FederationMetadata.of(folder) and any(map(_replays, found))
    ):
        _leave_word(folder, asked, as_json=as_json)
        return
    _let_go(held, asked, as_json=as_json)


def _show(
    folder: runtime.RunFolder, found: Sequence[runtime.ClientPlan], *, as_json: bool
) -> None:
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


def _together(found: Sequence[runtime.ClientPlan]) -> dict[str, Any]:
    """Return the one replay that all these answers share."""
    again = [each.chosen for each in found if each.chosen and _replays(each)]
    return {
        "first_replayed_round": again[0].first_replayed_round if again else None,
        "rounds_replayed": again[0].rounds_replayed if again else 0,
    }


def _replays(found: runtime.ClientPlan) -> bool:
    return found.chosen is not None and found.chosen.first_replayed_round is not None


def _leave_word(folder: runtime.RunFolder, asked: Asked, *, as_json: bool) -> None:
    """Queue the request for the process that runs the rounds, now or next."""
    clients = list(dict.fromkeys(map(_name, asked.clients)))
    if any(isinstance(each, runtime.Returning) for each in asked.clients):
        run = runtime.rebuilt_run(folder)
        runtime.enqueue_requests(run, folder, asked.clients, asked.answer, asked.basis)
    else:
        known = covey.load(folder.path).names
        if unknown := [client for client in clients if client not in known]:
            raise RunError(
                f"{folder.path} has no client {unknown[0]!r}. Correct the name."
            )
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
    with stoppable(run.folder), shown(run.folder.name) as observe:
        signed: list[runtime.AnsweredRequest] = []
        try:
            done = run.forget(
                [*asked.clients],
                asked.answer,
                asked.basis,
                observe,
                signed.append,
                _tell_receipt,
            )
        except BaseException:  # what was signed is told, whatever stops the others
            for each in signed:
                errors.print(each.message, soft_wrap=True)
            raise
    answers = [_answer_json(each) for each in done]
    told = {"run": str(run.folder), "answers": answers, **report.budget_of(run.history)}
    stated(
        told,
        "\n".join(_answer_text(run.folder, each) for each in answers),
        as_json=as_json,
    )
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


def _name(client: str | runtime.Returning) -> str:
    return client.client if isinstance(client, runtime.Returning) else client


def _answer_json(done: runtime.ForgetResult) -> dict[str, Any]:
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
        Path | None,
        typer.Option("--page", help="Write it as an HTML page to print, too."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is held on a client, and where, before anything is erased."""
    told = covey.load(run).explain(client)
    if page is not None:
        with runs.on_record([run], "explanation", page, subject=told["handle"]):
            report.write_explanation(told, run.name, page)
    lines = [
        f"{key.replace('_', ' ')}: {_brief(value)}"
        for key, value in told.items()
        if key not in ("places", "not_searched")
    ]
    more = {"page": str(page)} if page is not None else {}
    text = "\n".join([*lines, *places_text(told), *more.values()])
    stated({**told, **more}, text, as_json=as_json)


def _plan_json(found: runtime.ClientPlan) -> dict[str, Any]:
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


def _plan_text(found: runtime.ClientPlan) -> str:
    heads = (
        "answer",
        "possible",
        "rounds to replay",
        "seconds",
        "bytes deleted",
        "then",
    )
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
    from covey.runtime.settling import outcome_lines

    changed = "changed" if told["model_changed"] else "unchanged"
    if told["answer"] == "deny":
        changed += ": nothing was removed from it"
    back = "; with it a stronger answer can be asked for later, see docs/leaving.md"
    lines = (
        f"{told['client']}: {told['answer']}, {told['rounds_replayed']} rounds played "
        f"again in {told['seconds']:.1f} s, the model is {changed}",
        f"proof: {told['proof']}",
        f"receipt: {told['receipt']}",
        f"salt for the requester: {told['salt']}"
        f"{back if told['sealed_record_kept'] else ''}",
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
