"""Simulated clients: their examples are here, and an engine looks at all of them at once.

What a client's update becomes where rounds are played again from updates that were stored, and
not from a whole training (FedEraser): it keeps the length of the stored one, in the direction
that is found now, by a shorter training from a model that never saw who left.

U'_i = |U_i| * u_i / ||u_i||

References:
    Liu, Ma, Yang, Wang, Liu, FedEraser: Enabling Efficient Client-Level Data Removal from
    Federated Learning Models, 2021, Algorithm 1 and Eq. 1-4.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from covey.aggregation.base import ClientUpdate, NoisySteps
from covey.aggregation.server import Models
from covey.algorithms.federation import Federation, longer
from covey.algorithms.selection import (
    ComparesOn,
    Losses,
    SelectionConfig,
    SelectionResult,
    choice_events,
    selection_inputs,
)
from covey.algorithms.state import (
    LAYERS,
    NO_INPUTS,
    Cohort,
    ObjectiveInputs,
    ServerState,
    memory_after,
    personal_training,
    without_personal,
)
from covey.base.errors import ConfigError
from covey.base.names import Handle, Params
from covey.base.params import flatten, scale, subtract, subtracted_in_place, trained
from covey.base.rng import Streams
from covey.data.examples import Client, Examples
from covey.engine.example_gradients import sampling_rate
from covey.engine.fixed_features import LocalRecords
from covey.engine.protocol import Engine, ScoringJob, TrainingJob, num_steps
from covey.engine.recipe import Recipe
from covey.models.ridge_state import ClusterSums, scores_without_client
from covey.models.ridge_sums import Head, SentHead, Sums

SHARE = 0.5
"""Of the local training: what a calibration takes, at least one epoch."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulated(Federation):
    """Clients whose examples are here.

    Attributes:
        engine: trains and scores.
        recipe: how clients train.
        weights: clients count `equal`, or by their `examples`.
        compares_on: on which of its examples a client compares the models.
        exposures: C_i / C of the clients who clip gradients to less than the recipe's C.
        records: their examples as fixed features, where the model has them.
        stored: the updates that clients calibrate, where they do not train anew.
        adds_noise: whether clients add noise of their own to what they send.
        untouched: clusters that nothing changes in this round, whose clients send zeros.
        known: the sums from which they compare heads that never met them; None: they compare
            the models as they are.
    """

    engine: Engine
    recipe: Recipe
    weights: Literal["equal", "examples"] = "equal"
    compares_on: ComparesOn = ("train", 0)
    exposures: Mapping[Handle, float] = field(default_factory=dict[Handle, float])
    records: LocalRecords | None = None
    stored: Mapping[Handle, Params] | None = None
    adds_noise: bool = False
    untouched: frozenset[int] = frozenset()
    known: ClusterSums | None = None

    def training_longer(self) -> "Simulated":
        """Return the same clients, who train until it shows how they differ."""
        return replace(self, recipe=longer(self.recipe))

    def calibrating(self, stored: Mapping[Handle, Params]) -> "Simulated":
        """Return the same clients, who calibrate these updates in a shorter training.

        A client without a stored update sends what it finds as it is.
        """
        shorter = replace(
            self.recipe,
            local_epochs=max(1, round(self.recipe.local_epochs * SHARE)),
            local_steps=math.ceil(self.recipe.local_steps * SHARE),
        )
        return replace(self, recipe=shorter, stored=stored)

    def evaluate(self, models: Models, cohort: Cohort, streams: Streams) -> Losses:
        """Return every model's loss on every client's selection batch.

        losses[i, j] = f(theta_j, xi_i), the mean over the selection batch xi_i in nats; of
        heads, as each would be if it had never met the client.
        """
        if self.known is not None:
            return self._losses_without_oneself(self.known, cohort)
        batches = [self._batch(client, streams) for client in cohort]
        jobs = [ScoringJob(params, each) for each in batches for params in models]
        means = [scored.losses.mean() for scored in self.engine.score(jobs)]
        if not means:
            return torch.empty(0, len(models))
        return torch.stack(means).view(len(cohort), len(models))

    def _batch(self, client: Client, streams: Streams) -> Examples:
        select_on, count = self.compares_on
        examples = client.holdout if select_on == "holdout" else client.train
        count = self.recipe.batch_size if select_on == "batch" else count
        if not 0 < count < len(examples):
            return examples
        generator = streams.at("selection batch", client.name).generator()
        return examples.take(torch.from_numpy(generator.permutation(len(examples))[:count]))

    def _losses_without_oneself(self, known: ClusterSums, cohort: Cohort) -> Losses:
        heads = [known.head(j) for j in range(len(known.gram))]
        losses = torch.empty(len(cohort), len(heads))
        for i, client in enumerate(cohort):
            shares = known.shares(client.handle)
            losses[i] = losses_without_oneself(self.features, client.train, heads, shares)
        return losses

    def nearest(self, state: ServerState, cohort: Cohort, streams: Streams) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss: argmin_j losses[i, j]."""
        losses = self.evaluate(state.clusters, cohort, streams).nan_to_num(nan=torch.inf)
        return {c.handle: int(own.argmin()) for c, own in zip(cohort, losses, strict=True)}

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        inputs: ObjectiveInputs | None = None,  # noqa: ARG002 - they train later
    ) -> SelectionResult:
        """Do line 12 of Algorithm 1, with what clients see and what they leave behind."""
        measured = self.evaluate(state.clusters, cohort, streams)  # f(theta_j, xi_i)
        known = selection_inputs(state, cohort, measured.float(), streams)
        picked = torch.as_tensor(selection.select(known))  # line 12
        clusters = {c.handle: int(j) for c, j in zip(cohort, picked, strict=True)}
        after = selection.after_choice(state, known)
        events = (*choice_events(selection.epsilon, cohort), *after.events)
        return SelectionResult(after.state, clusters, events)

    def train(
        self,
        models: Models,
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        """Train each client from its cluster's model.

        theta_i <- theta_{j_i} - eta grad f(theta_{j_i}, xi_i), for several batches xi_i, or
        for the one that the models were compared on, where there is one step

        Under individual noise: theta_i <- theta - eta sum_r clip(grad f(theta, x_r), C_i).
        """
        for client in cohort:
            if (j := assignment[client.handle]) in self.untouched:
                nothing = {name: torch.zeros_like(value) for name, value in models[j].items()}
                yield ClientUpdate(client.handle, j, nothing, 1.0)
        cohort = tuple(c for c in cohort if assignment[c.handle] not in self.untouched)
        one_batch = self.compares_on[0] == "batch" and self.recipe.least_steps <= 1
        recipe, engine, losses = self.recipe, self.engine, dict[Handle, Sequence[Tensor]]()

        def job(client: Client) -> TrainingJob:
            j = assignment[client.handle]
            own = inputs.memory.kept.get(client.handle, {}).get(LAYERS)
            drawn = streams.at("local training", client.name)
            return TrainingJob(
                start={**models[j], **own} if own else models[j],
                examples=self._batch(client, streams) if one_batch else client.train,
                # noise that is drawn twice for two models cancels in their difference
                streams=drawn.at("model", j) if recipe.record_clip > 0 else drawn,
                recipe=self._own_recipe(client),
                memory=inputs.of(client.handle),
                on_losses=partial(losses.__setitem__, client.handle)
                if inputs.wants_losses
                else None,
            )

        jobs = [job(client) for client in cohort]
        # In a list that is emptied: `zip` would hold a model until it has the next one.
        local = ([each] for each in engine.train(map(without_personal, jobs)))
        keeps, kept = recipe.keeps_memory, None
        own_memory = getattr(engine, "hands_over", False) and not keeps
        less = subtracted_in_place if own_memory else subtract
        beside = personal_training(engine, recipe, jobs)
        for client, each, made, personal in zip(cohort, jobs, local, beside, strict=True):
            weight = 1.0 if self.weights == "equal" else float(len(client.train))
            batches = losses.pop(client.handle, ())
            j = assignment[client.handle]
            model = models[j]
            if keeps:
                kept = memory_after(each, made[0], personal, model)
                if recipe.own_layers:
                    made[0] = {name: made[0][name] for name in model}
            update = [less(made.pop(), model)]
            if (old := (self.stored or {}).get(client.handle)) is not None:
                update = [as_long_as(update.pop(), old)]
            mean = None
            if inputs.wants_losses and batches:
                epoch = math.ceil(len(client.train) / recipe.batch_size)
                steps = [step.mean() for step in batches[-epoch:]]
                mean = float(torch.stack(steps).double().mean())
            own = streams.at("own noise", client.name) if self.adds_noise else None
            noisy = self._noise_of(client) if recipe.record_noise else None
            yield ClientUpdate(client.handle, j, update.pop(), weight, kept, mean, own, noisy)

    def _noise_of(self, client: Client) -> NoisySteps | None:
        """Return the noise in a client's steps by this recipe, if there is any."""
        n, recipe = len(client.train), self.recipe
        rates = num_steps(n, recipe), sampling_rate(n, recipe)
        return NoisySteps(recipe.record_noise, *rates) if n else None

    def _own_recipe(self, client: Client) -> Recipe:
        """Return how a client trains: with gradients clipped to its own C_i."""
        if not self.recipe.sums_gradients:
            return self.recipe
        exposure = self.exposures.get(client.handle, 1.0)
        return replace(self.recipe, record_clip=exposure * self.recipe.record_clip)

    @property
    def features(self) -> LocalRecords:
        """Clients' records as fixed features.

        Raises:
            ConfigError: the model trains all its parameters.
        """
        if self.records is None:
            raise ConfigError(
                "Sums over records need a model with features that do not train, found "
                "another. Set model.name = 'linear-head'."
            )
        return self.records

    @property
    def classes(self) -> int:
        """How many outputs a head has; 0: there are no heads."""
        return self.records.classes if self.records else 0

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return every client's mean features."""
        del d, round_index
        return {each.handle: self.features.mean(each.train) for each in cohort}

    def sums(self, clients: Iterable[Client], d: int) -> Sums:
        """Return the sums over these clients."""
        return self.features.sums((each.train for each in clients), d)

    def comparing(self, known: ClusterSums | None, *, last: bool) -> "Simulated":
        """Return the same clients, who compare heads that never met them, or models as they are."""
        del last
        return replace(self, known=known)


def as_long_as(update: Params, stored: Params) -> Params:
    """Return the update, as long as the stored one."""
    length = _length(update)
    return scale(update, _length(stored) / length if length > 0 else 0.0)


def _length(update: Params) -> float:
    return float(flatten(trained(update)).norm())


def losses_without_oneself(
    records: LocalRecords,
    examples: Examples,
    heads: Sequence[Head | SentHead],
    shares: Sequence[float],
) -> Float[Tensor, " heads"]:
    """Return a client's mean loss under every head, as it would be without the client.

    Args:
        records: turns its examples into features.
        examples: the client's.
        heads: solved from everybody's sums, the client's among them.
        shares: as `ClusterSums.shares` returns them.
    """
    rows = records.rows(examples)
    scores = (
        scores_without_client(head, rows, share) for head, share in zip(heads, shares, strict=True)
    )
    return torch.stack([records.losses(each, rows.labels).mean() for each in scores])


def heads_of(models: Sequence[Params], roots: Mapping[int, Tensor]) -> tuple[SentHead, ...]:
    """Return heads as a client was sent them."""
    return tuple(
        SentHead.of(each["head.weight"], each["head.bias"], roots.get(j))
        for j, each in enumerate(models)
    )
