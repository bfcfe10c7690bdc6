"""What `covey forget` is asked for: by options, or in a dialogue that shows the plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import typer

from covey import runtime
from covey.errors import ConfigError
from covey.types import BASES, Basis
from covey.unlearning import ANSWERS, check_basis

__all__ = ["Asked", "asked_by", "check_said", "chosen_in_dialogue", "is_a_dialogue"]

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

    clients: Sequence[str | runtime.Returning]
    answer: str = "auto"
    basis: Basis = "none"


def asked_by(
    clients: Sequence[str], answer: str | None, basis: str | None, salt: str | None
) -> Asked:
    """Return what the options ask for.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """
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
        raise ConfigError(
            f"--basis takes {', '.join(BASES)}, found {rests_on!r}. Choose one."
        )
    check_basis(wanted, known)
    if salt is None:
        return Asked(clients, wanted, known)
    if len(clients) != 1:
        raise ConfigError(
            f"--salt is of one client that comes back, found {len(clients)} names. Ask "
            f"for each of them alone."
        )
    return Asked([runtime.Returning(clients[0], salt)], wanted, known)


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


def chosen_in_dialogue(found: Sequence[runtime.ClientPlan]) -> str | None:
    """Ask which answer it shall be, the same for all; None: nothing shall be done."""
    possible = [
        name
        for name in ANSWERS
        if all(
            option.possible
            for each in found
            for option, _ in each.options
            if option.answer == name
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


def _question(found: Sequence[runtime.ClientPlan], answer: str) -> str:
    given = {
        each.client: each.chosen.answer if answer == "auto" and each.chosen else answer
        for each in found
    }
    told = ", ".join(f"{client}: {what}" for client, what in given.items())
    nothing = f" {NOT_DENIED}" if "deny" in given.values() else ""
    return f"{told}.{nothing} The name goes from the run. Go ahead?"
