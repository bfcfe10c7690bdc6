"""A user's own algorithm: its rounds are checked, and who takes part in them is on record.

An algorithm is handed the clients of a round, and may train, evaluate, count or sum them in
any way. What it says of them in its events is not what a proof may rest on. So the run
itself records everybody that it was handed (`ClientsHandedOut`), sees who trained, and
refuses a round whose own events deny it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from covey.aggregation import ClientUpdate
from covey.algorithms import (
    Algorithm,
    Backend,
    Clients,
    Cohort,
    Losses,
    RoundResult,
    SelectionConfig,
    SelectionResult,
    ServerState,
    Setup,
    Steps,
    Strategy,
    Subtraction,
    TrainAtOnce,
)
from covey.build.own_results import checked_result, choices_in, mistaken
from covey.build.owned import models_problem
from covey.build.plugins import read_only, user_function
from covey.data import Client
from covey.errors import ConfigError
from covey.events import (
    AnswerRefused,
    ClientsAssigned,
    ClientsHandedOut,
    Event,
    ModelsMerged,
    ModelsPooled,
)
from covey.params import model_hash
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["own_strategy"]


def own_strategy(name: str, algorithm: Algorithm, setup: Setup) -> Strategy:
    """Return the strategy of a user's own algorithm, with its rounds checked and recorded.

    Raises:
        ConfigError: it has no rounds.
    """
    part = f"algorithm {name}"
    kind = type(algorithm)
    if kind.round is Algorithm.round and kind.strategy is Algorithm.strategy:
        raise ConfigError(
            f"Your {part} must say what happens in a round, but it has no `round`. Write "
            f"`def round(self, state, clients, streams)`, which returns a "
            f"covey.RoundResult."
        )
    own = _OwnRounds(
        part,
        frozenset(client.handle for client in setup.population),
        frozenset() if _is_coveys(kind.strategy) else _handles(setup.population),
    )
    made: Any = user_function(part, algorithm.strategy)(setup)
    if not isinstance(made, Strategy):
        raise mistaken(part, "`strategy` must return a covey.Strategy", made)
    init = made.init
    if _is_coveys(kind.strategy) and not _is_coveys(kind.init):
        nothing = replace(setup, population=tuple(map(_without_data, setup.population)))
        init = lambda streams: algorithm.init(nothing, streams)  # noqa: E731
    return Strategy(
        own.starting(init, setup),
        own.playing(made.play_round),
        own.concluding(made.conclude),
        own.subtracting(made.subtraction),
    )


def _is_coveys(function: object) -> bool:
    return getattr(function, "__module__", "").partition(".")[0] == "covey"


def _handles(cohort: Cohort) -> frozenset[Handle]:
    return frozenset(client.handle for client in cohort)


def _without_data(client: Client) -> Client:
    """Return a client as a start may know it: nothing of its data is in a first model."""
    return replace(client, train=client.train.first(0), holdout=client.holdout.first(0))


@dataclass(slots=True)
class _Watch:
    """The clients of one round, and whom it saw trained: by client, the model's cluster."""

    owner: "_OwnRounds"
    backend: Backend
    handed_out: set[Handle]
    trained: dict[Handle, int] = field(default_factory=dict[Handle, int])

    @classmethod
    def on(cls, owner: "_OwnRounds", clients: Clients) -> tuple["_Watch", Clients]:
        """Return a watch, and the clients that are asked under it."""
        steps = clients.steps
        handed_out = {*owner.always, *_handles(clients.cohort)}
        watch = cls(owner, steps.backend, handed_out)
        longer = steps.longer
        watched = replace(
            steps,
            backend=watch if steps.repeatable else steps.backend,  # or no data are here
            train=watch.training(steps.train),
            longer=longer and longer._replace(train=watch.training(longer.train)),
        )
        return watch, clients.asked_by(watched)

    def training(self, train: Any) -> Any:  # noqa: ANN401 - `Train`
        """Return the same training, of which it is put down who trained."""

        def watched(
            models: tuple[Params, ...],
            cohort: Cohort,
            *rest: Any,  # noqa: ANN401 - as in `Train`
        ) -> Iterator[ClientUpdate]:
            self.hand_out(cohort)
            for update in train(models, cohort, *rest):
                self.trained[update.handle] = update.cluster
                yield update
                del update  # before the next one comes

        return watched

    def hand_out(self, cohort: Cohort) -> None:
        """Put down who is asked; refuse who is not in the run (any more)."""
        asked = _handles(cohort)
        if strangers := asked - self.owner.known - self.handed_out:
            raise ConfigError(
                f"Your {self.owner.part} must ask the clients that a round is given, but "
                f"it asked {_some(strangers)}, which this run does not have (any more). "
                f"Keep no clients from one round to the next."
            )
        self.handed_out |= asked

    def evaluate(
        self, models: tuple[Params, ...], cohort: Cohort, streams: Streams
    ) -> Losses:
        """Return every model's loss on every client's selection batch, in nats."""
        self.hand_out(cohort)
        return self.backend.evaluate(models, cohort, streams)

    def nearest(
        self, state: ServerState, cohort: Cohort, streams: Streams
    ) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss."""
        self.hand_out(cohort)
        return self.backend.nearest(state, cohort, streams)

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        training: TrainAtOnce | None = None,
    ) -> SelectionResult:
        """Let every client take its cluster."""
        self.hand_out(cohort)
        return self.backend.choose(selection, state, cohort, streams, training)


@dataclass(frozen=True, slots=True)
class _OwnRounds:
    """What covey does around the functions of a user's own algorithm.

    Attributes:
        part: what it is called in messages.
        known: the clients of the run.
        always: whom its `strategy` was handed at the start.
    """

    part: str
    known: frozenset[Handle]
    always: frozenset[Handle]

    def starting(self, init: Any, setup: Setup) -> Any:  # noqa: ANN401 - as in Strategy
        """Return `init`, whose models are those of the run."""

        def checked(streams: Streams) -> ServerState:
            found: Any = user_function(self.part, init)(streams)
            if not isinstance(found, ServerState):
                raise mistaken(
                    self.part, "`init` must return a covey.ServerState", found
                )
            fresh = setup.draw_model(streams.at("initial model", 0))
            before = (fresh,) * len(found.clusters)
            if problem := models_problem(before, found.clusters, strict=False):
                raise ConfigError(f"Your {self.part} in `init` {problem}")
            return found

        return checked

    def playing(self, play: Any) -> Any:  # noqa: ANN401 - as in Strategy
        """Return `play_round`, checked, with everybody who was handed out on record."""

        def played(
            state: ServerState, clients: Clients, streams: Streams
        ) -> RoundResult:
            watch, watched = _Watch.on(self, clients)
            run = user_function(self.part, lambda: play(state, watched, streams))
            with read_only(self.part, {"state": state}):
                found = run()
            result = checked_result((self.part, "round"), state, found)
            return self._recorded(state, clients, watch, result)

        return played

    def subtracting(self, made: Subtraction | None) -> Subtraction | None:
        """Return the subtraction, whose `solve` is a round like any other."""
        if made is None:
            return None

        def solve(
            state: ServerState,
            chosen: ClientsAssigned,
            clients: Clients,
            streams: Streams,
        ) -> RoundResult:
            watch, watched = _Watch.on(self, clients)
            solve = made.solve
            run = user_function(
                self.part, lambda: solve(state, chosen, watched, streams)
            )
            with read_only(self.part, {"state": state}):
                found = run()
            result = checked_result((self.part, "solve"), state, found)
            return self._recorded(state, clients, watch, result)

        return made._replace(solve=solve)

    def concluding(self, conclude: Any) -> Any:  # noqa: ANN401 - as in Strategy
        """Return `conclude`, after which the models are those before it."""

        def concluded(
            state: ServerState, clients: Clients, streams: Streams
        ) -> RoundResult:
            run = user_function(self.part, lambda: conclude(state, clients, streams))
            with read_only(self.part, {"state": state}):
                found = run()
            result = checked_result((self.part, "finalize"), state, found)
            if model_hash(result.state.clusters) != model_hash(state.clusters):
                raise ConfigError(
                    f"Your {self.part} must leave the models as they are in `finalize`, "
                    f"found others: who takes part there is in no round. Change models in "
                    f"`round`."
                )
            if any(fact.by != "final" for fact in choices_in(result.events)):
                raise ConfigError(
                    f"Your {self.part} must tell the last choices as "
                    f"ClientsAssigned(..., 'final') in `finalize`, found another word than "
                    f"'final'. Correct it."
                )
            return result

        return concluded

    def _recorded(
        self, before: ServerState, clients: Clients, watch: _Watch, result: RoundResult
    ) -> RoundResult:
        """Return a round with everybody who was handed out on record.

        Raises:
            ConfigError: the round's own events contradict what the run saw.
        """
        state, facts = result.state, result.events
        placed = state.assignment.keys() - (
            before.assignment.keys() if before.round_index else ()
        )
        handed_out = watch.handed_out | placed
        choices = [*choices_in(facts)]
        named = {handle for fact in choices for handle in fact.clusters}
        if strangers := (named | placed) - self.known - watch.handed_out:
            raise self._contradiction(
                f"name {_some(strangers)}, which this round does not have"
            )
        if choices or not watch.trained:
            self._check_named(choices, named, watch, clients.steps, facts)
        else:
            fact = ClientsAssigned(dict(watch.trained), "algorithm")
            facts = (*facts, fact)
            assignment = {**state.assignment, **watch.trained}
            state = replace(state, assignment=assignment)
        facts = _with_models(facts, state, watch.trained)
        fact = ClientsHandedOut(tuple(sorted(handed_out)))
        return result._replace(state=state, events=(fact, *facts))

    def _check_named(
        self,
        choices: Collection[ClientsAssigned],
        named: Collection[Handle],
        watch: _Watch,
        steps: Steps,
        facts: Collection[Event],
    ) -> None:
        if any(fact.by == "final" for fact in choices):
            raise self._contradiction("name last choices ('final') in a round")
        refused = {fact.handle for fact in facts if isinstance(fact, AnswerRefused)}
        if unnamed := watch.trained.keys() - set(named) - refused:
            raise self._contradiction(f"do not name {_some(unnamed)}, which trained")
        if not (watch.trained and steps.repeatable):
            return
        kept = {
            handle
            for fact in choices
            for handle, j in fact.clusters.items()
            if j in steps.frozen
        }
        if untrained := set(named) - watch.trained.keys() - kept:
            raise self._contradiction(
                f"say that {_some(untrained)} trained, which did not"
            )

    def _contradiction(self, what: str) -> ConfigError:
        return ConfigError(
            f"Your {self.part} must tell in ClientsAssigned who trained in a round, and "
            f"nobody else, but its events {what}. Return the events of "
            f"`clients.train_and_aggregate`, or none: then the run tells who trained."
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
