"""What could be answered to clients that ask to leave, read from what is recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from covey.build import (
    algorithm_of,
    anonymity_of,
    depends_on_population,
    sums_of,
)
from covey.checkpoints import checkpointed_rounds
from covey.config import Config
from covey.errors import RunError
from covey.events import Event
from covey.runtime.folder import RunFolder
from covey.runtime.session import Session
from covey.runtime.updates import stored_rounds
from covey.types import Handle
from covey.unlearning.jointly import AnswerChoice, WantedAnswer
from covey.unlearning.participation import Participation
from covey.unlearning.plan import AnswerRules, Option, options

__all__ = [
    "UnlearningPlan",
    "answer_rules",
    "next_round",
    "plan_for",
    "plan_jointly",
    "read_plan",
]


@dataclass(frozen=True, slots=True)
class UnlearningPlan:
    """All that could be answered to one client, now."""

    events: Sequence[tuple[int | None, Event]]
    participation: Participation
    options: tuple[Option, ...]


def plan_for(session: Session, handle: Handle, x: int | None = None) -> UnlearningPlan:
    """Return every answer that this client could be given, without giving any.

    `x` instead of the run's own deniability threshold asks what another one would mean.

    Raises:
        RunError: nobody can leave this run.
    """
    plan, rules = read_plan(session, x)
    _check_somebody_remains(session, [handle])
    return replace(plan, options=options(plan.participation, handle, rules))


def plan_jointly(
    session: Session, wanted_answers: Sequence[WantedAnswer]
) -> tuple[AnswerChoice, ...]:
    """Return what these clients are answered if all of them leave at once.

    Raises:
        RunError: they cannot all leave this run.
    """
    rules = read_plan(session)[1]
    _check_somebody_remains(session, [each.handle for each in wanted_answers])
    return session.record().answers(wanted_answers, rules)


def read_plan(
    session: Session, x: int | None = None
) -> tuple[UnlearningPlan, AnswerRules]:
    """Return what was recorded, and what the run allows."""
    record, last = session.record(), session.ledger.last_round()
    coming = next_round(last, session.rounds)
    rules = answer_rules(session.run.config, session.folder, coming, x)
    return UnlearningPlan(record.events, record.participation, ()), rules


def next_round(last_round: int | None, rounds: int) -> int:
    """Return the first round that is not recorded, of so many; its end is none."""
    return 0 if last_round is None else min(last_round + 1, rounds)


def answer_rules(
    config: Config, folder: RunFolder, next_round: int, x: int | None = None
) -> AnswerRules:
    """Return what a run allows that has recorded the rounds before `next_round`.

    Raises:
        RunError: nobody can leave this run.
    """
    if algorithm_of(config).one_client_each:
        raise RunError(
            "Clients leave a model that they share, but with method.name = "
            f"{config.method.name!r} each has its own. Delete that client's model "
            f"instead."
        )
    terms = anonymity_of(config)
    return AnswerRules(
        deniability_threshold=(x or terms.deniability_threshold) if terms else None,
        stored_updates=bool(stored_rounds(folder.updates)),
        restorable=(0, *(t + 1 for t in checkpointed_rounds(folder.checkpoints))),
        next_round=next_round,
        prefix_independent=not depends_on_population(config),
        min_organisations=terms.min_organisations if terms else 1,
        sums=sums_of(config),
    )


def _check_somebody_remains(session: Session, leaving: Sequence[Handle]) -> None:
    if {c.handle for c in session.run.population.clients} <= set(leaving):
        reason = (
            "this client is the last one" if len(leaving) == 1 else "all would leave"
        )
        raise RunError(
            f"A run needs somebody to go on with, but {reason}. Delete the run's folder "
            f"instead."
        )
