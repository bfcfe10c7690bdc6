"""A user's own algorithm: what it returns is checked, and who takes part is on record.

An algorithm is handed the clients of a round, and may train, evaluate, count or sum them in
any way. What it says of them in its events is not what a proof may rest on. So the run
itself records everybody that it was handed (`ClientsHandedOut`), sees who trained, and
refuses a round whose own events deny it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from covey.aggregation.base import ClientUpdate
from covey.algorithms.algorithm import Algorithm, Subtractable
from covey.algorithms.clients import Clients, Observer, Setup
from covey.algorithms.own_steps import models_problem
from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base.errors import ConfigError
from covey.base.events import (
    AnswerRefused,
    ClientsAssigned,
    ClientsHandedOut,
    Event,
    ModelsMerged,
    ModelsPooled,
)
from covey.base.names import Handle
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.base.user_code import read_only, user_function
from covey.data.examples import Client


def checked_result(
    algorithm: str,
    where: str,
    before: ServerState,
    result: Any,  # noqa: ANN401 - a user's
) -> RoundResult:
    """Return what a user's function returned, if covey can go on with it.

    Args:
        algorithm: as messages call it.
        where: the function of it, for messages.
        before: the state that it received.
        result: what it returned.

    Raises:
        ConfigError: naming the part that does not fit.
    """
    if not isinstance(result, RoundResult):
        rule = f"`{where}` must return a covey.RoundResult"
        raise mistaken(algorithm, rule, result)
    state: Any = result.state
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
    facts = _events(algorithm, where, result.events)
    for choice in (state.assignment, *(each.clusters for each in choices_in(facts))):
        placed: Mapping[Handle, Any] = choice
        for handle, j in placed.items():
            if not isinstance(j, int) or not 0 <= j < len(state.clusters):
                raise ConfigError(
                    f"Your {algorithm} in `{where}` must put every client into one of the "
                    f"clusters 0 to {len(state.clusters) - 1}, found {j!r} for {handle!r}. "
                    f"Correct it."
                )
    state = replace(state, clusters=tuple(state.clusters))
    return result._replace(state=state, events=facts)


def choices_in(facts: Collection[Event]) -> Iterator[ClientsAssigned]:
    """Yield what the events say of who trains what."""
    return (fact for fact in facts if isinstance(fact, ClientsAssigned))


def mistaken(part: str, rule: str, returned: object) -> ConfigError:
    """Return an error about a value of a wrong type."""
    what = "None" if returned is None else f"a {type(returned).__name__}"
    return ConfigError(f"Your {part}: {rule}, found {what}. Correct it.")


def _events(algorithm: str, where: str, returned: object) -> tuple[Event, ...]:
    if not isinstance(returned, (tuple, list)):
        rule = f"`{where}` must return a tuple of events"
        raise mistaken(algorithm, rule, returned)
    facts = tuple(cast("Collection[Any]", returned))
    for fact in facts:
        if not isinstance(fact, Event):
            rule = f"`{where}` must return covey.base.events alone as its events"
            raise mistaken(algorithm, rule, fact)
    return facts


def _handles(cohort: Cohort) -> frozenset[Handle]:
    return frozenset(client.handle for client in cohort)


def _without_data(client: Client) -> Client:
    """Return a client as a start may know it: nothing of its data is in a first model."""
    return replace(client, train=client.train.first(0), holdout=client.holdout.first(0))


@dataclass(slots=True)
class _Watch(Observer):
    """Whom a round was handed, and who trained in it: by client, the model's cluster."""

    owner: "OwnAlgorithm"
    handed_out: set[Handle]
    clusters: dict[Handle, int] = field(default_factory=dict[Handle, int])

    @classmethod
    def on(cls, owner: "OwnAlgorithm", clients: Clients) -> tuple["_Watch", Clients]:
        """Return a watch, and the clients that are under it."""
        setup = owner.visible(clients.setup)
        seen = setup.population if setup is clients.setup else ()
        watch = cls(owner, {*_handles(seen), *_handles(clients.cohort)})
        return watch, replace(clients.observed_by(watch), setup=setup)

    def requested(self, cohort: Cohort) -> None:
        """Note which clients get requests; refuse clients that are not in the run (any more)."""
        handles = _handles(cohort)
        if strangers := handles - self.owner.known - self.handed_out:
            raise ConfigError(
                f"Your {self.owner.part} must ask the clients of its round, but "
                f"it asked {_some(strangers)}, which this run does not have (any more). "
                f"Keep no clients from one round to the next."
            )
        self.handed_out |= handles

    def trained(self, update: ClientUpdate) -> None:
        """Note who trained which model."""
        self.clusters[update.handle] = update.cluster


@dataclass(frozen=True, slots=True)
class OwnAlgorithm:
    """A user's own algorithm: it is called by covey as `Algorithm` is, and checked.

    Attributes:
        algorithm: the user's.
        known: the clients of the run.
    """

    algorithm: Algorithm
    known: frozenset[Handle]

    @classmethod
    def of(cls, algorithm: Algorithm, setup: Setup) -> "OwnAlgorithm":
        """Return what checks this algorithm in a run.

        Raises:
            ConfigError: it has no rounds.
        """
        own = cls(algorithm, _handles(setup.population))
        if type(algorithm).round is Algorithm.round:
            raise ConfigError(
                f"Your {own.part} must say what happens in a round, but it has no `round`. Write "
                f"`def round(self, state, clients, streams)`, which returns a "
                f"covey.RoundResult."
            )
        if algorithm.subtracts and not isinstance(algorithm, Subtractable):
            raise ConfigError(
                f"An algorithm that `subtracts` must be a covey.Subtractable, found your "
                f"{own.part}. Derive it from that class, and give it `without` and `solve`."
            )
        return own

    @property
    def part(self) -> str:
        """What it is called in messages."""
        return f"algorithm {self.algorithm.name}"

    def visible(self, setup: Setup) -> Setup:
        """Return what it may know of the run: of clients no data, unless it says it reads them.

        Then everybody is handed out in every round.
        """
        if self.algorithm.reads_population:
            return setup
        return replace(setup, population=tuple(map(_without_data, setup.population)))

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        """Return its start, whose models are those of the run."""
        nothing = replace(setup, population=tuple(map(_without_data, setup.population)))
        state: Any = user_function(self.part, self.algorithm.init)(nothing, streams)
        if not isinstance(state, ServerState):
            raise mistaken(self.part, "`init` must return a covey.ServerState", state)
        fresh = setup.draw_model(streams.at("initial model", 0))
        before = (fresh,) * len(state.clusters)
        if problem := models_problem(before, state.clusters, strict=False):
            raise ConfigError(f"Your {self.part} in `init` {problem}")
        return state

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Return a round of it, with everybody who was handed out on record."""
        watch, watched = _Watch.on(self, clients)
        played = lambda: self.algorithm.round(state, watched, streams)  # noqa: E731
        return self._recorded(state, clients, watch, self._called("round", state, played))

    def without(self, state: ServerState, leavers: Clients) -> ServerState:
        """Return the state in which the sums lack what these clients added."""
        without = cast("Subtractable", self.algorithm).without
        return user_function(self.part, without)(state, leavers)

    def solve(
        self, state: ServerState, chosen: ClientsAssigned, clients: Clients, streams: Streams
    ) -> RoundResult:
        """Return models that it solves anew, which is a round like any other."""
        watch, watched = _Watch.on(self, clients)
        solve = cast("Subtractable", self.algorithm).solve
        solved = lambda: solve(state, chosen, watched, streams)  # noqa: E731
        return self._recorded(state, clients, watch, self._called("solve", state, solved))

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Return its last choices, after which the models are those before it."""
        seen = replace(clients, setup=self.visible(clients.setup))
        concluded = lambda: self.algorithm.finalize(state, seen, streams)  # noqa: E731
        result = self._called("finalize", state, concluded)
        if model_hash(result.state.clusters) != model_hash(state.clusters):
            raise ConfigError(
                f"Your {self.part} must leave the models as they are in `finalize`, "
                f"found others: who takes part there is in no round. Change models in "
                f"`round`."
            )
        if any(fact.by != "final" for fact in choices_in(result.events)):
            raise ConfigError(
                f"Your {self.part} must return the last choices as "
                f"ClientsAssigned(..., 'final') in `finalize`, found another word than "
                f"'final'. Correct it."
            )
        return result

    def _called(
        self, where: str, state: ServerState, function: Callable[[], RoundResult]
    ) -> RoundResult:
        with read_only(self.part, {"state": state}):
            result = user_function(self.part, function)()
        return checked_result(self.part, where, state, result)

    def _recorded(
        self, before: ServerState, clients: Clients, watch: _Watch, result: RoundResult
    ) -> RoundResult:
        """Return a round with everybody who was handed out on record.

        Raises:
            ConfigError: the round's own events contradict what the run saw.
        """
        state, facts = result.state, result.events
        placed = state.assignment.keys() - (before.assignment.keys() if before.round_index else ())
        handed_out = watch.handed_out | placed
        choices = [*choices_in(facts)]
        named = {handle for fact in choices for handle in fact.clusters}
        if strangers := (named | placed) - self.known - watch.handed_out:
            raise self._contradiction(f"name {_some(strangers)}, which this round does not have")
        if choices or not watch.clusters:
            self._check_named(choices, watch, clients, facts)
        else:
            fact = ClientsAssigned(dict(watch.clusters), "algorithm")
            facts = (*facts, fact)
            assignment = {**state.assignment, **watch.clusters}
            state = replace(state, assignment=assignment)
        facts = _with_models(facts, state, watch.clusters)
        fact = ClientsHandedOut(tuple(sorted(handed_out)))
        return result._replace(state=state, events=(fact, *facts))

    def _check_named(
        self,
        choices: list[ClientsAssigned],
        watch: _Watch,
        clients: Clients,
        facts: Collection[Event],
    ) -> None:
        cluster_of = [pair for fact in choices for pair in fact.clusters.items()]
        named = {handle for handle, _ in cluster_of}
        if any(fact.by == "final" for fact in choices):
            raise self._contradiction("name last choices ('final') in a round")
        refused = {fact.handle for fact in facts if isinstance(fact, AnswerRefused)}
        if unnamed := watch.clusters.keys() - named - refused:
            raise self._contradiction(f"do not name {_some(unnamed)}, which trained")
        if not watch.clusters or clients.federation.is_apart:
            return
        kept = {handle for handle, j in cluster_of if j in clients.frozen}
        if untrained := named - watch.clusters.keys() - kept:
            raise self._contradiction(f"say that {_some(untrained)} trained, which did not")

    def _contradiction(self, what: str) -> ConfigError:
        return ConfigError(
            f"Your {self.part} must name in ClientsAssigned who trained in a round, and "
            f"nobody else, but its events {what}. Return the events of "
            f"`clients.train_and_aggregate`, or none: then the run names who trained."
        )


def _with_models(
    facts: tuple[Event, ...], state: ServerState, trained: Mapping[Handle, int]
) -> tuple[Event, ...]:
    """Return the events, of which the last one on models has the hash of the round's.

    An algorithm may change models after they were aggregated, as server momentum does.
    """
    digest, events = model_hash(state.clusters), list(facts)
    for i in reversed(range(len(events))):
        fact = events[i]
        if isinstance(fact, ModelsMerged | ModelsPooled):
            events[i] = replace(fact, model_hash=digest)
            return tuple(events)
    counts = Counter(trained.values())
    each = tuple(counts[j] for j in range(len(state.clusters)))
    return (*facts, ModelsMerged(digest, each))


def _some(handles: Collection[Handle]) -> str:
    """Return handles in words, three of them at most."""
    shown = sorted(handles)[:3]
    more = f" and {len(handles) - 3} more" if len(handles) > 3 else ""
    return f"client {', '.join(shown)}{more}"
