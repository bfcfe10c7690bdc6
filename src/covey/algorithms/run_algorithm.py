"""An algorithm in its run: risk is measured before it, and a user's own is checked.

A user's own is handed the clients of a round, and may train, evaluate, count or sum them in
any way. What it says of them in its events is not what a proof may rest on. So the run
itself records everybody that it was handed (`ClientsHandedOut`), sees who trained, and
refuses a round whose own events deny it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from jaxtyping import Float64
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.server import Models
from covey.algorithms.algorithm import Algorithm
from covey.algorithms.clients import Clients, Comparison, Federation, Setup, SumsAnswer
from covey.algorithms.own_steps import mistaken, models_problem
from covey.algorithms.redteam import RiskMeasurement
from covey.algorithms.ridge import Ridge
from covey.algorithms.selection import Losses, SelectionConfig, SelectionResult
from covey.algorithms.state import NO_INPUTS, Cohort, ObjectiveInputs, RoundResult, ServerState
from covey.base.errors import ConfigError, user_function
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
from covey.data.examples import Client


class Watched(Federation):
    """The clients of a run as a user's algorithm reaches them: who gets requests is noted.

    Attributes:
        federation: how they are reached.
        handed_out: whom the algorithm was handed, or sent a request.
        clusters: by client, whose model it trained.
    """

    def __init__(
        self, federation: Federation, part: str, known: Collection[Handle], handed_out: set[Handle]
    ) -> None:
        self.federation, self._part, self._known = federation, part, frozenset(known)
        self.handed_out, self.clusters = handed_out, dict[Handle, int]()

    @property
    def is_remote(self) -> bool:
        """Whether they are on machines of their own."""
        return self.federation.is_remote

    def evaluate(self, models: Models, cohort: Cohort, streams: Streams) -> Losses:
        """Return every model's loss on every client's selection batch."""
        return self.federation.evaluate(models, self._noted(cohort), streams)

    def nearest(self, state: ServerState, cohort: Cohort, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss."""
        return self.federation.nearest(state, self._noted(cohort), streams)

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        inputs: ObjectiveInputs | Comparison | None = None,
    ) -> SelectionResult:
        """Let every client take its cluster."""
        return self.federation.choose(selection, state, self._noted(cohort), streams, inputs)

    def train(
        self,
        models: Models,
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        """Yield the clients' updates, and note who trained."""
        present = self._noted(cohort)
        for update in self.federation.train(models, present, assignment, streams, inputs):
            self.clusters[update.handle] = update.cluster
            yield update
            del update  # before the next one comes

    def means(self, state: ServerState, cohort: Cohort) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return the mean features of every client that sends them."""
        return self.federation.means(state, self._noted(cohort))

    def sums(self, state: ServerState, groups: Sequence[Cohort], minimum: int = 0) -> SumsAnswer:
        """Return the sums over each group of clients."""
        return self.federation.sums(state, [*map(self._noted, groups)], minimum)

    def _noted(self, cohort: Cohort) -> Cohort:
        """Note which clients get requests; refuse those that are not in the run (any more)."""
        cohort = tuple(cohort)
        handles = {client.handle for client in cohort}
        if strangers := handles - self._known - self.handed_out:
            raise ConfigError(
                f"Your {self._part} must ask the clients of its round, found "
                f"{_format_handles(strangers)}, which this run does not have (any more): keep none "
                f"from one round to the next."
            )
        self.handed_out |= handles
        return cohort


def _format_handles(handles: Collection[Handle]) -> str:
    """Return handles in words, three of them at most."""
    shown = sorted(handles)[:3]
    more = f" and {len(handles) - 3} more" if len(handles) > 3 else ""
    return f"client {', '.join(shown)}{more}"


@dataclass(frozen=True, slots=True, eq=False)
class RunAlgorithm:
    """The algorithm of a run, of whose models the risk is measured before clients choose.

    Attributes:
        algorithm: the settings'.
        setup: what it may know of the run.
        risk: who measures; None: it is not measured here.
        is_checked: whether a user wrote it: then nothing that it returns is believed.

    Raises:
        ConfigError: a user's own has no rounds, or subtracts and is no `Ridge`.
    """

    algorithm: Algorithm
    setup: Setup
    risk: RiskMeasurement | None = None
    is_checked: bool = False

    def __post_init__(self) -> None:
        if not self.is_checked:
            return
        if type(self.algorithm).round is Algorithm.round:
            raise ConfigError(
                f"Your {self._part} must have a `round`, found none: write `def round(self, state, "
                f"clients, streams)`, which returns a covey.RoundResult."
            )
        if self.algorithm.traits.subtracts and not isinstance(self.algorithm, Ridge):
            raise ConfigError(
                f"Your {self._part} must have traits without `subtracts`, as it has no ridge "
                f"heads, found it set: take it out."
            )

    def init(self, streams: Streams) -> ServerState:
        """Return the state before round 0; a user's own makes it without anybody's data."""
        if not self.is_checked:
            return self.algorithm.init(self.setup, streams)
        make = user_function(self._part, self.algorithm.init)
        state: Any = make(_without_data(self.setup), streams)
        if not isinstance(state, ServerState):
            raise mistaken(self._part, "return a covey.ServerState in `init`", state)
        fresh = self.setup.draw_model(streams.at("initial model", 0))
        self._check_models("init", (fresh,) * len(state.clusters), state)
        return state

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Play one round with these clients, after the risk is measured."""
        seen = self._measured(state, clients, streams, last=False)
        played = self._played(
            "round",
            seen.state,
            clients,
            lambda present: self.algorithm.round(seen.state, present, streams),
        )
        return played.preceded_by(seen.events)

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let every client choose for the last time, without training."""
        seen = self._measured(state, clients, streams, last=True)
        return self._last_choices(seen.state, clients, streams).preceded_by(seen.events)

    def _last_choices(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        if not self.is_checked:
            return self.algorithm.finalize(state, clients, streams)
        seen = replace(clients, setup=self._visible(clients.setup))
        finalize = partial(self.algorithm.finalize, state, seen, streams)
        before = model_hash(state.clusters)  # it may write into the state's own models
        result = self._returned("finalize", state, finalize)
        if model_hash(result.state.clusters) != before:
            raise ConfigError(
                f"Your {self._part} must leave the models as they are in `finalize`, whose clients "
                f"are in no round, found others: change models in `round`."
            )
        if any(fact.by != "final" for fact in _choices(result.events)):
            raise ConfigError(
                f"Your {self._part} must return ClientsAssigned(..., 'final') in `finalize`, found "
                f"another word than 'final': correct it."
            )
        return result

    def without(self, state: ServerState, leavers: Clients) -> ServerState:
        """Return the state in which the sums lack what these clients added."""
        without = cast("Ridge", self.algorithm).without
        take_off = user_function(self._part, without) if self.is_checked else without
        return take_off(state, leavers)

    def solve(self, state: ServerState, chosen: ClientsAssigned, clients: Clients) -> RoundResult:
        """Return a round's models, from the sums and these choices: a round like any other."""
        solve = cast("Ridge", self.algorithm).solve
        return self._played("solve", state, clients, lambda present: solve(state, chosen, present))

    def _measured(
        self, state: ServerState, clients: Clients, streams: Streams, *, last: bool
    ) -> RoundResult:
        if self.risk is None:
            return RoundResult(state, ())
        return self.risk.measured(state, clients.cohort, streams, last=last)

    @property
    def _part(self) -> str:
        """What it is called in messages."""
        return f"algorithm {self.algorithm.name}"

    def _visible(self, setup: Setup) -> Setup:
        """Return what it may know of the run: of clients no data, unless it says it reads them.

        Then everybody is handed out in every round.
        """
        return setup if self.algorithm.traits.reads_population else _without_data(setup)

    def _returned(
        self, where: str, before: ServerState, play: Callable[[], RoundResult]
    ) -> RoundResult:
        """Return what a user's function returned, if covey can go on with it.

        Args:
            where: the function, for messages.
            before: the state that it received.
            play: calls it.

        Raises:
            ConfigError: naming the part that does not fit.
        """
        result: Any = user_function(self._part, play)()
        if not isinstance(result, RoundResult):
            raise mistaken(self._part, f"return a covey.RoundResult in `{where}`", result)
        state: Any = result.state
        if not isinstance(state, ServerState):
            rule = f"return the next covey.ServerState in its RoundResult of `{where}`"
            raise mistaken(self._part, rule, state)
        self._check_models(where, before.clusters, state)
        expected = before.round_index + (where != "finalize")
        if state.round_index != expected:
            raise ConfigError(
                f"Your {self._part} in `{where}` must return the state before round {expected}, "
                f"found that before {state.round_index}: return `state.with_models(models)` once."
            )
        events: Any = result.events
        if not isinstance(events, (tuple, list)):
            raise mistaken(self._part, f"return a tuple of events in `{where}`", events)
        facts = tuple(cast("Collection[Any]", events))
        if odd := [fact for fact in facts if not isinstance(fact, Event)]:
            rule = f"return covey.base.events alone as events in `{where}`"
            raise mistaken(self._part, rule, odd[0])
        for choice in (state.assignment, *(choice.clusters for choice in _choices(facts))):
            placed: Mapping[Handle, Any] = choice
            for handle, j in placed.items():
                if not isinstance(j, int) or not 0 <= j < len(state.clusters):
                    raise ConfigError(
                        f"Your {self._part} in `{where}` must put clients into clusters 0 to "
                        f"{len(state.clusters) - 1}, found {j!r} for {handle!r}: correct it."
                    )
        state = replace(state, clusters=tuple(state.clusters))
        return result._replace(state=state, events=facts)

    def _check_models(self, where: str, before: tuple[Any, ...], after: ServerState) -> None:
        if problem := models_problem(before, after.clusters, strict=False):
            raise ConfigError(f"Your {self._part} in `{where}` {problem}")

    def _played(
        self,
        where: str,
        before: ServerState,
        clients: Clients,
        play: Callable[[Clients], RoundResult],
    ) -> RoundResult:
        """Play a round with these clients; of a user's, everybody handed out is put on record.

        Raises:
            ConfigError: the round's own events contradict what the run saw.
        """
        if not self.is_checked:
            return play(clients)
        known = _handles(self.setup.population)
        seen = self._visible(clients.setup)
        everybody = seen.population if seen is clients.setup else ()
        present = {*_handles(everybody), *_handles(clients.cohort)}
        watched = Watched(clients.federation, self._part, known, present)
        own = replace(clients, setup=seen, federation=watched)
        result = self._returned(where, before, partial(play, own))
        state, facts = result.state, result.events
        placed = state.assignment.keys() - (before.assignment.keys() if before.round_index else ())
        handed_out = watched.handed_out | placed
        choices = _choices(facts)
        named = {handle for fact in choices for handle in fact.clusters}
        if strangers := (named | placed) - known - watched.handed_out:
            raise self._contradiction(
                f"name {_format_handles(strangers)}, which this round does not have"
            )
        if any(fact.by == "final" for fact in choices):
            raise self._contradiction("name last choices ('final') in a round")
        if watched.clusters and not choices:
            facts = (*facts, ClientsAssigned(dict(watched.clusters), "algorithm"))
            state = replace(state, assignment={**state.assignment, **watched.clusters})
        elif watched.clusters:
            refused = {fact.handle for fact in facts if isinstance(fact, AnswerRefused)}
            if unnamed := watched.clusters.keys() - named - refused:
                raise self._contradiction(f"do not name {_format_handles(unnamed)}, which trained")
            untrained = named - watched.clusters.keys()
            if untrained and not clients.federation.is_remote:
                raise self._contradiction(
                    f"say that {_format_handles(untrained)} trained, which did not"
                )
        fact = ClientsHandedOut(tuple(sorted(handed_out)))
        events = (fact, *facts)
        return with_hash(result._replace(state=state, events=events), watched.clusters)

    def _contradiction(self, what: str) -> ConfigError:
        return ConfigError(
            f"Your {self._part} must name in ClientsAssigned who trained in a round, and nobody "
            f"else, found that its events {what}: return those of `clients.train_and_aggregate`, "
            f"or none: then the run names who trained."
        )


def _choices(facts: Collection[Event]) -> list[ClientsAssigned]:
    """Return what the events say of who trains what."""
    return [fact for fact in facts if isinstance(fact, ClientsAssigned)]


def _handles(cohort: Cohort) -> frozenset[Handle]:
    return frozenset(client.handle for client in cohort)


def _without_data(setup: Setup) -> Setup:
    """Return what may be known without anybody's data."""

    def bare(client: Client) -> Client:
        return replace(client, train=client.train.first(0), holdout=client.holdout.first(0))

    return replace(setup, population=tuple(map(bare, setup.population)))


def with_hash(
    played: RoundResult, trained: Mapping[Handle, int] = MappingProxyType({})
) -> RoundResult:
    """Return a round of which the last event on models has the hash of the round's.

    Models may change after they were aggregated, as by an algorithm's own server momentum.

    Args:
        played: the round.
        trained: who trained which model, for a round without such an event.
    """
    facts, digest = played.events, model_hash(played.state.clusters)
    for i in reversed(range(len(facts))):
        fact = facts[i]
        if isinstance(fact, ModelsMerged | ModelsPooled):
            same = replace(fact, model_hash=digest)
            return played._replace(events=(*facts[:i], same, *facts[i + 1 :]))
    counts = Counter(trained.values())
    clients_per_cluster = tuple(counts[j] for j in range(len(played.state.clusters)))
    return played._replace(events=(*facts, ModelsMerged(digest, clients_per_cluster)))
