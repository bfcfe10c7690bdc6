"""What a round of a user's own algorithm returns, held to what covey does with it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from covey.algorithms import RoundResult, ServerState
from covey.build.owned import models_problem
from covey.errors import ConfigError
from covey.events import ClientsAssigned, Event

__all__ = ["checked_result", "choices_in", "mistaken"]


def checked_result(
    part: tuple[str, str],
    before: ServerState,
    found: Any,  # noqa: ANN401 - a user's
) -> RoundResult:
    """Return what a user's function returned, if covey can go on with it.

    Args:
        part: the algorithm, and the function of its, for messages.
        before: the state that it was given.
        found: what it returned.

    Raises:
        ConfigError: naming the part that does not fit.
    """
    algorithm, where = part
    if not isinstance(found, RoundResult):
        rule = f"`{where}` must return a covey.RoundResult"
        raise mistaken(algorithm, rule, found)
    state: Any = found.state
    if not isinstance(state, ServerState):
        rule = f"`{where}` must return the next covey.ServerState in its RoundResult"
        raise mistaken(algorithm, rule, state)
    if problem := models_problem(before.clusters, state.clusters, strict=False):
        raise ConfigError(f"Your {algorithm} in `{where}` {problem}")
    expected = before.round_index + (where != "finalize")
    if state.round_index != expected:
        raise ConfigError(
            f"Your {algorithm} in `{where}` must return the state before round "
            f"{expected}, found the one before round {state.round_index}. Return "
            f"`state.with_models(models)`, once a round."
        )
    facts = _events(algorithm, where, found.events)
    for choice in (state.assignment, *(each.clusters for each in choices_in(facts))):
        if problem := _misplaced(choice, len(state.clusters)):
            raise ConfigError(f"Your {algorithm} in `{where}` {problem}")
    state = replace(state, clusters=tuple(state.clusters))
    return found._replace(state=state, events=facts)


def choices_in(facts: Collection[Event]) -> Iterator[ClientsAssigned]:
    """Yield what the events say of who trains what."""
    return (fact for fact in facts if isinstance(fact, ClientsAssigned))


def mistaken(part: str, rule: str, found: object) -> ConfigError:
    """Return an error about a value of a wrong type."""
    what = "None" if found is None else f"a {type(found).__name__}"
    return ConfigError(f"Your {part}: {rule}, found {what}. Correct it.")


def _events(algorithm: str, where: str, found: object) -> tuple[Event, ...]:
    if not isinstance(found, (tuple, list)):
        rule = f"`{where}` must return a tuple of events"
        raise mistaken(algorithm, rule, found)
    facts = tuple(cast("Collection[Any]", found))
    for fact in facts:
        if not isinstance(fact, Event):
            rule = f"`{where}` must return covey.events alone as its events"
            raise mistaken(algorithm, rule, fact)
    return facts


def _misplaced(choice: Mapping[str, Any], clusters: int) -> str:
    """Return what is wrong with the clusters of clients; "" if nothing is."""
    for handle, j in choice.items():
        if not isinstance(j, int) or not 0 <= j < clusters:
            return (
                f"must put every client into one of the clusters 0 to {clusters - 1}, "
                f"found {j!r} for {handle!r}. Correct it."
            )
    return ""
