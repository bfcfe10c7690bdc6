"""What could be answered to clients that ask to leave, read from what is recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from covey.build import anonymity_of, depends_on_population
from covey.checkpoints import checkpointed_rounds
from covey.errors import RunError
from covey.events import Event
from covey.runtime.session import Desk, read_events
from covey.runtime.updates import stored_rounds
from covey.types import Handle
from covey.unlearning.jointly import Choice, Wish, jointly
from covey.unlearning.participation import Participation, participation_of
from covey.unlearning.plan import Option, Rules, options

__all__ = ["Plan", "planned", "planned_jointly", "read_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that could be answered to one client, now."""

    story: Sequence[tuple[int | None, Event]]
    participation: Participation
    options: tuple[Option, ...]


def planned(desk: Desk, handle: Handle, x: int | None = None) -> Plan:
    """Return every answer that this client could be given, without giving any.

    `x` instead of the run's own deniability threshold asks what another one would mean.

    Raises:
        RunError: nobody can leave this run.
    """
    plan, rules = read_plan(desk, x)
    _check_who_stays(desk, [handle])
    return replace(plan, options=options(plan.participation, handle, rules))


def planned_jointly(desk: Desk, wishes: Sequence[Wish]) -> tuple[Choice, ...]:
    """Return what these clients are answered if all of them leave at once.

    Raises:
        RunError: they cannot all leave this run.
    """
    plan, rules = read_plan(desk)
    _check_who_stays(desk, [wish.handle for wish in wishes])
    return jointly(plan.participation, wishes, rules)


def read_plan(desk: Desk, x: int | None = None) -> tuple[Plan, Rules]:
    """Return what was recorded, and what the run allows."""
    run, folder = desk.run, desk.folder
    if run.config.method.name == "local":
        raise RunError(
            "Clients leave a model that they share, but with method.name = 'local' each "
            "has its own. Delete that client's model instead."
        )
    story = [(t, e) for t, events in read_events(desk.ledger) for e in events]
    last, terms = desk.ledger.last_round(), anonymity_of(run.config)
    rules = Rules(
        deniability_threshold=(x or terms.deniability_threshold) if terms else None,
        stored_updates=bool(stored_rounds(folder.updates)),
        restorable=(0, *(t + 1 for t in checkpointed_rounds(folder.checkpoints))),
        next_round=0 if last is None else min(last + 1, run.config.rounds),
        alike_from_the_start=not depends_on_population(run.config),
    )
    return Plan(story, participation_of(story), ()), rules


def _check_who_stays(desk: Desk, leaving: Sequence[Handle]) -> None:
    if {c.handle for c in desk.run.population.clients} <= set(leaving):
        who = "this client is the last one" if len(leaving) == 1 else "all would leave"
        raise RunError(
            f"A run needs somebody to go on with, but {who}. Delete the run's folder "
            f"instead."
        )
