"""Simulated clients: their examples are here, and an engine looks at all at once."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.algorithms.selection import (
    Evaluate,
    Losses,
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
    choice_events,
    selection_inputs,
    with_latest_losses,
)
from covey.algorithms.state import (
    LAYERS,
    NO_INPUTS,
    Cohort,
    ObjectiveInputs,
    ServerState,
    after_training,
    memory_after,
    personal_training,
    with_layers,
    without_personal,
)
from covey.base.errors import ConfigError
from covey.base.events import Event, StepsPerturbed
from covey.base.names import Handle, Params
from covey.base.params import subtract, subtracted_in_place
from covey.base.rng import Streams
from covey.data.examples import Client, Examples
from covey.engine.cpu import RecordedJob
from covey.engine.descent import sampling_rate
from covey.engine.protocol import Engine, ScoringJob, TrainingJob, num_steps
from covey.engine.recipe import Recipe


@runtime_checkable
class Train(Protocol):
    """How clients train from their clusters' models: yields what each adds to its own."""

    def __call__(
        self,
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
        /,
    ) -> Iterator[ClientUpdate]:
        """Yield an update per client that trains, in the cohort's order."""
        ...


NoiseEvents = Callable[[Sequence[Client]], tuple[Event, ...]]
"""The facts about the noise in what clients trained, each as often as it trained."""


def train_with(engine: Engine, recipe: Recipe, weights: Literal["equal", "examples"]) -> Train:
    """Return the step that trains each client from its cluster's model.

    theta_i <- theta_{j_i} - eta grad f(theta_{j_i}, xi_i), for several batches xi_i
    """

    def streams_of(client: Client, j: int, streams: Streams) -> Streams:
        own = streams.at("local training", client.name)
        # noise that is drawn twice for two models cancels in their difference
        return own.at("model", j) if recipe.record_clip > 0 else own

    def train(
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        means = dict[Handle, float]()

        # Each batch is looked at before the step that it leads to: nothing is computed for this.
        def note(client: Client, losses: Float[Tensor, " steps"]) -> None:
            epoch = math.ceil(len(client.train) / recipe.batch_size)
            means[client.handle] = float(losses[-epoch:].double().mean())

        def start(client: Client) -> Params:
            own = inputs.memory.kept.get(client.handle, {}).get(LAYERS)
            model = clusters[assignment[client.handle]]
            return {**model, **own} if own else model

        jobs = [
            TrainingJob(
                start=start(client),
                examples=client.train,
                streams=streams_of(client, assignment[client.handle], streams),
                recipe=recipe,
                memory=inputs.of(client.handle),
                on_losses=partial(note, client) if inputs.wants_losses else None,
            )
            for client in cohort
        ]
        watched = [RecordedJob(each) for each in jobs]
        recorded = (w.recorded if recipe.keep_losses else w.job for w in watched)
        # In a list that is emptied: `zip` would hold a model until it has the next one.
        trained = ([each] for each in engine.train(map(without_personal, recorded)))
        own_memory = getattr(engine, "hands_over", False) and not recipe.keeps_memory
        less = subtracted_in_place if own_memory else subtract
        own = personal_training(engine, recipe, jobs)
        for client, each, found, personal in zip(cohort, watched, trained, own, strict=True):
            weight = 1.0 if weights == "equal" else float(len(client.train))
            kept = memory_after(each.job, found[0], personal)
            if kept is not None and recipe.keep_losses:
                kept = after_training(kept, each)
            j = assignment[client.handle]
            model = clusters[j]
            if kept is not None and recipe.own_layers:
                kept = with_layers(kept, each.job.memory, found[0], model)
                found[0] = {name: found[0][name] for name in model}
            update = [less(found.pop(), model)]
            mean = means.get(client.handle)
            yield ClientUpdate(client.handle, j, update.pop(), weight, kept, mean)

    return train


def losses_noted(train: Train, into: dict[Handle, float]) -> Train:
    """Return the same training, which also puts down the losses that are known."""

    def noted(
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        asking = replace(inputs, wants_losses=True)
        for each in train(clusters, cohort, assignment, streams, asking):
            if each.loss is not None:
                into[each.handle] = each.loss
            yield each
            del each

    return noted


def no_noise_events(_: Sequence[Client]) -> tuple[Event, ...]:
    """Say nothing: clients train without noise."""
    return ()


def noise_events_of(recipe: Recipe) -> NoiseEvents:
    """Return what tells of the noise in the steps of this recipe, if it has any."""
    if recipe.record_noise == 0:
        return no_noise_events

    def noise_events(trained: Sequence[Client]) -> tuple[Event, ...]:
        times = Counter(client.handle for client in trained)
        sizes = {client.handle: len(client.train) for client in trained if client.train}
        if not sizes:
            return ()
        steps = {handle: times[handle] * num_steps(n, recipe) for handle, n in sizes.items()}
        sampling = {handle: sampling_rate(n, recipe) for handle, n in sizes.items()}
        return (StepsPerturbed(recipe.record_noise, steps, sampling),)

    return noise_events


def evaluate_with(
    engine: Engine, select_on: Literal["train", "holdout"], select_examples: int
) -> Evaluate:
    """Return the step that measures every cluster's loss on every client's examples.

    losses[i, j] = f(theta_j, xi_i), the mean over the selection batch xi_i in nats
    """

    def batch(client: Client, streams: Streams) -> Examples:
        examples = client.train if select_on == "train" else client.holdout
        if not 0 < select_examples < len(examples):
            return examples
        generator = streams.at("selection batch", client.name).generator()
        order = generator.permutation(len(examples))[:select_examples]
        return examples.take(torch.from_numpy(order))

    def evaluate(
        clusters: tuple[Params, ...], cohort: Cohort, streams: Streams
    ) -> Float[Tensor, "clients clusters"]:
        batches = [batch(client, streams) for client in cohort]
        jobs = [ScoringJob(params, each) for each in batches for params in clusters]
        means = [scored.losses.mean() for scored in engine.score(jobs)]
        if not means:
            return torch.empty(0, len(clusters))
        return torch.stack(means).view(len(cohort), len(clusters))

    return evaluate


class Training(NamedTuple):
    """A way to train, and what is told of the noise in it."""

    train: Train
    noise_events: NoiseEvents = no_noise_events


@dataclass(frozen=True, slots=True)
class LocalClients:
    """How simulated clients look at models."""

    losses: Evaluate

    def evaluate(self, models: tuple[Params, ...], cohort: Cohort, streams: Streams) -> Losses:
        """Return every model's loss on every client's selection batch, in nats."""
        return self.losses(models, cohort, streams)

    def nearest(self, state: ServerState, cohort: Cohort, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss: argmin_j losses[i, j]."""
        losses = self.losses(state.clusters, cohort, streams).nan_to_num(nan=torch.inf)
        return {c.handle: int(own.argmin()) for c, own in zip(cohort, losses, strict=True)}

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        training: TrainAtOnce | None = None,  # noqa: ARG002 - they train later
    ) -> SelectionResult:
        """Do line 12 of Algorithm 1, with what clients see and what they leave behind."""
        measured = self.losses(state.clusters, cohort, streams)  # f(theta_j, xi_i)
        state = with_latest_losses(state, cohort, measured)
        inputs = selection_inputs(state, cohort, measured.float(), streams)
        picked = torch.as_tensor(selection.select(inputs))  # line 12
        _check(picked, state, cohort)
        clusters = {c.handle: int(j) for c, j in zip(cohort, picked, strict=True)}
        priced = selection.update_prices(state, inputs)
        events = (*choice_events(selection.epsilon, cohort), *priced.events)
        return SelectionResult(priced.state, clusters, events)


def _check(chosen: Tensor, state: ServerState, cohort: Cohort) -> None:
    """Refuse what a user's own selection may return by mistake."""
    offered = [j for j, is_offered in enumerate(state.available()) if is_offered]
    values = set(chosen.flatten().tolist())
    if chosen.shape != (len(cohort),) or not values <= set(offered):
        raise ConfigError(
            f"A selection must return one offered cluster index per client: "
            f"{len(cohort)} integers out of {offered}. Found shape "
            f"{tuple(chosen.shape)} with values {sorted(values)}. "
            f"Choose among `inputs.available` only."
        )


@runtime_checkable
class Backend(Protocol):
    """How the clients of a round are reached: here, by an engine, or by messages.

    What one of them cannot do is a capability that it rules out, and no case for whoever
    asks.
    """

    def evaluate(self, models: tuple[Params, ...], cohort: Cohort, streams: Streams) -> Losses:
        """Return every model's loss on every client's selection batch, in nats."""
        ...

    def nearest(self, state: ServerState, cohort: Cohort, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss."""
        ...

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        training: TrainAtOnce | None = None,
    ) -> SelectionResult:
        """Let every client take its cluster.

        Args:
            selection: how they choose.
            state: before the round.
            cohort: who chooses.
            streams: of the round.
            training: what remote clients train with; None: nobody is to train.
        """
        ...
