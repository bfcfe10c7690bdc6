"""`covey forget`, `covey explain` and `covey verify`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from covey import api
from covey.api import Run, load
from covey.cli.app import JsonOption, app, stated
from covey.cli.progress import shown
from covey.cli.tables import short, tabled
from covey.errors import ConfigError, LedgerLocked, RunError
from covey.report import budget_of
from covey.simulation import Forgotten, Planned, Roster, RunFolder
from covey.simulation.settling import copies_told
from covey.unlearning import ANSWERS, Check

__all__ = ["explain", "leave", "verify"]

RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.")]


@app.command("forget")
def leave(
    run: RunArgument,
    clients: Annotated[list[str], typer.Argument(help="Names of clients.")],
    answer: Annotated[
        str,
        typer.Option(help="auto (the cheapest honest one), " + ", ".join(ANSWERS)),
    ] = "auto",
    plan: Annotated[
        bool, typer.Option("--plan", help="Show every answer and its cost; do nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Answer clients that ask to leave a run, and prove what was answered."""
    if answer not in ("auto", *ANSWERS):
        raise ConfigError(
            f"--answer takes auto, {', '.join(ANSWERS)}, found {answer!r}. Choose one."
        )
    folder = RunFolder.existing(run)
    asked = load(run)
    if plan:
        found = asked.plan(clients, answer)
        told = {"run": str(run), "plans": [_plan_json(each) for each in found]}
        stated(told, "\n\n".join(map(_plan_text, found)), as_json=as_json)
        return
    try:  # all are known, before anybody leaves
        found = asked.plan(clients, answer)
    except LedgerLocked:
        found = None
    if found is None or (Roster.of(folder) and any(map(_replays, found))):
        _leave_word(folder, clients, answer, as_json=as_json)
        return
    _let_go(asked, clients, answer, as_json=as_json)


def _replays(found: Planned) -> bool:
    return found.chosen is not None and found.chosen.first_replayed_round is not None


def _leave_word(
    folder: RunFolder, clients: list[str], answer: str, *, as_json: bool
) -> None:
    """Leave it to whoever plays the run, now or next: it looks between two rounds."""
    known = load(folder.path).names
    if unknown := [client for client in clients if client not in known]:
        raise RunError(f"{folder.path} has no client {unknown[0]!r}. Correct the name.")
    for client in clients:
        folder.leave_word(client, answer)
    told = [{"client": client, "answer": "pending"} for client in clients]
    text = (
        f"{', '.join(clients)}: put down. It is answered between two rounds by whoever "
        f"plays the run, now or with `covey resume {folder.path}`; see {folder.proofs}."
    )
    stated({"run": str(folder.path), "answers": told}, text, as_json=as_json)


def _let_go(run: Run, clients: list[str], answer: str, *, as_json: bool) -> None:
    """Answer all at once, and tell each answer: first the salts, which exist once."""
    with shown(run.folder.name) as observe:
        done = run.forget(clients, answer, observe=observe)
    answers = [_answer_json(each) for each in done]
    told = {"run": str(run.folder), "answers": answers, **budget_of(run.history)}
    stated(told, "\n".join(map(_answer_text, answers)), as_json=as_json)
    run.report()


def _answer_json(done: Forgotten) -> dict[str, Any]:
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
        "copies": [each.told() for each in given.copies],
    }


@app.command()
def explain(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="The client's name.")],
    as_json: JsonOption = False,
) -> None:
    """Show what is held on a client, before anything is erased."""
    told = load(run).explain(client)
    lines = [f"{key.replace('_', ' ')}: {_brief(value)}" for key, value in told.items()]
    stated(told, "\n".join(lines), as_json=as_json)


@app.command()
def verify(
    proof: Annotated[Path, typer.Argument(help="A proof, as JSON.")],
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The folder of the run it is of.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="The signer's public keys, from elsewhere, as PEM."),
    ] = None,
    mine: Annotated[
        tuple[str, str] | None,
        typer.Option("--mine", metavar="NAME SALT", help="Is the proof about you?"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a proof offline; exit code 1 if a check fails."""
    checks = api.verify(proof, ledger, key, mine)
    valid = all(check.ok is not False for check in checks)
    told = {"valid": valid, "checks": [asdict(check) for check in checks]}
    stated(told, "\n".join(map(_check_text, checks)), as_json=as_json)
    if not valid:
        raise typer.Exit(1)


def _check_text(check: Check) -> str:
    mark = {True: "ok", False: "FAILED", None: "open"}[check.ok]
    return f"{mark:7} {check.name}: {check.detail}"


def _plan_json(found: Planned) -> dict[str, Any]:
    return {
        "client": found.client,
        "answer": found.chosen.answer if found.chosen else None,
        "reason": found.reason,
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


AFTERWARDS = {
    "deny": "the model is unchanged; the client's update may have been the one used in "
    "any round, and each set that held it keeps at least x members",
    "roll_back": "the model is as if the client had left before the first replayed "
    "round; the rounds before it still include the client",
    "retrain": "the model is the one of a run that never met the client",
    "calibrate": "the model is an approximation of one without the client",
}


def _plan_text(found: Planned) -> str:
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


def _answer_text(told: dict[str, Any]) -> str:
    changed = "changed" if told["model_changed"] else "unchanged"
    lines = (
        f"{told['client']}: {told['answer']}, {told['rounds_replayed']} rounds played "
        f"again in {told['seconds']:.1f} s, the model is {changed}",
        f"proof: {told['proof']}",
        f"salt for the requester, shown once: {told['salt']}",
        *copies_told(told["copies"]),
    )
    return "\n".join(lines)


def _brief(value: object) -> str:
    if isinstance(value, list):
        items = [str(each) for each in value]
        more = f" and {len(items) - 12} more" if len(items) > 12 else ""
        return (", ".join(items[:12]) or "none") + more
    return str(value)
