"""Clients that stop taking part once their own budgets are spent, and the run that ends with it.

What a client has spent follows from the rounds that it is recorded in, rolled back ones
included. Remote clients keep account by themselves, and say when they are done.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from covey.aggregation.mean import count_of_numbers
from covey.algorithms.state import ServerState
from covey.base.events import BudgetSpent, ClientsAssigned, Event, RunEndedEarly
from covey.base.history import History, of_kinds
from covey.base.names import Handle
from covey.settings.privacy import budget_weight
from covey.settings.run import BuiltRun


def has_budgets(run: BuiltRun) -> bool:
    """Say whether a client may have a budget: else nothing recorded has to be looked at."""
    return run.client_backend is not None or bool(run.config.population.epsilon_limits)


def recorded_as_spent(facts: Iterable[Event]) -> set[Handle]:
    """Return the clients that take part no more."""
    return {handle for fact in of_kinds(facts, BudgetSpent) for handle in fact.clients}


def spent(run: BuiltRun, state: ServerState, facts: Sequence[Event]) -> tuple[Handle, ...]:
    """Return the clients whose budgets allow no further round, that are not recorded so.

    Args:
        run: with its clients and settings.
        state: of the models whose updates would be sent.
        facts: all that happened.
    """
    if not run.config.population.epsilon_limits:
        return ()
    limits = {c.handle: c.preference.epsilon_limit for c in run.population.clients}
    plan, size = run.config.privacy_plan, count_of_numbers(state.clusters[0]) - 1
    if plan.sums_gradients or not plan.noise:
        return ()
    from covey.dp.budget import fits, released

    rounds = Counter(
        h for f in of_kinds(facts, ClientsAssigned) if f.by != "final" for h in f.clusters
    )
    known = recorded_as_spent(facts)

    def is_spent(handle: Handle, limit: float) -> bool:
        weight = budget_weight(plan, size, limit)
        if not weight:
            return True
        return not fits(released(plan, size, rounds[handle] + 1, weight), limit, plan.delta)

    left = ((h, limit) for h, limit in limits.items() if limit and h not in known)
    return tuple(handle for handle, limit in left if is_spent(handle, limit))


def ended_by_budgets(run: BuiltRun, history: History) -> RunEndedEarly | None:
    """Return that the run ends, as too few clients have any budget left."""
    if not has_budgets(run):
        return None
    config = run.config
    gone, played = recorded_as_spent(history.all_events), len(history.rounds)
    left = sum(client.handle not in gone for client in run.population.clients)
    needed = max(config.min_clients, run.config.privacy_plan.min_cohort)
    if not gone or left >= needed or played >= config.rounds:
        return None
    return RunEndedEarly(played, config.rounds, "budgets", 0.0, 0, 0, 0.0, left)
