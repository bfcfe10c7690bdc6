"""What could be answered to clients that ask to leave, read from what is recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from covey.build import (
    algorithm_of,
    anonymity_of,
    depends_on_population,
    sum_noise_of,
)
from covey.checkpoints import checkpointed_rounds
from covey.errors import RunError
from covey.events import Event
from covey.runtime.session import Session
from covey.runtime.updates import stored_rounds
from covey.types import Handle
from covey.unlearning.jointly import AnswerChoice, WantedAnswer
from covey.unlearning.participation import Participation
from covey.unlearning.plan import AnswerRules, Option, options

__all__ = ["UnlearningPlan", "plan_for", "plan_jointly", "read_plan"]


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
    run, folder = session.run, session.folder
    algorithm = algorithm_of(run.config)
    if algorithm.one_client_each:
        raise RunError(
            "Clients leave a model that they share, but with method.name = "
            f"{run.config.method.name!r} each has its own. Delete that client's model "
            f"instead."
        )
    record = session.record()
    last, terms = session.ledger.last_round(), anonymity_of(run.config)
    rules = AnswerRules(
        deniability_threshold=(x or terms.deniability_threshold) if terms else None,
        stored_updates=bool(stored_rounds(folder.updates)),
        restorable=(0, *(t + 1 for t in checkpointed_rounds(folder.checkpoints))),
        next_round=0 if last is None else min(last + 1, run.config.rounds),
        prefix_independent=not depends_on_population(run.config),
        min_organisations=terms.min_organisations if terms else 1,
        subtracts=algorithm.subtracts,
        noisy_sums=sum_noise_of(run.config) is not None,
    )
    return UnlearningPlan(record.events, record.participation, ()), rules


def _check_somebody_remains(session: Session, leaving: Sequence[Handle]) -> None:
    if {c.handle for c in session.run.population.clients} <= set(leaving):
        reason = (
            "this client is the last one" if len(leaving) == 1 else "all would leave"
        )
        raise RunError(
            f"A run needs somebody to go on with, but {reason}. Delete the run's folder "
            f"instead."
        )
