"""Simulated clients, which one engine trains and scores, and calibrated updates (FedEraser).

In a replay with stored updates, a client trains for a shorter time from a model without the
leavers. Its update keeps the length of the stored one, in the new direction:

    U'_i = |U_i| * u_i / ||u_i||

References:
    Liu, Ma, Yang, Wang, Liu, FedEraser: Enabling Efficient Client-Level Data Removal from
    Federated Learning Models, 2021, Algorithm 1 and Eq. 1-4.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import tee
from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from covey.aggregation.base import ClientUpdate, NoisySteps
from covey.aggregation.server import Models
from covey.algorithms.clients import Comparison, SumsAnswer
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
from covey.base.params import flat, flatten, scale, subtract, subtracted_in_place, trained
from covey.base.rng import Streams
from covey.data.examples import Client, Examples
from covey.engine.example_gradients import sampling_rate
from covey.engine.fixed_features import LocalRecords
from covey.engine.protocol import Engine, ScoringJob, TrainingJob, num_steps
from covey.engine.recipe import Recipe
from covey.ridge.head import ClusterSums, shape_of
from covey.ridge.sums import SumCohorts, Sums, masked_sums

SHARE = 0.5
"""Of the local training: what a calibration takes, at least one epoch."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
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
    """

    is_remote = False

    engine: Engine
    recipe: Recipe
    weights: Literal["equal", "examples"] = "equal"
    compares_on: ComparesOn = ("train", 0)
    exposures: Mapping[Handle, float] = field(default_factory=dict[Handle, float])
    records: LocalRecords | None = None
    stored: Mapping[Handle, Params] | None = None
    adds_noise: bool = False

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

        losses[i, j] = f(theta_j, xi_i), the mean over the selection batch xi_i in nats.
        """
        batches = [self._batch(client, streams) for client in cohort]
        jobs = [ScoringJob(params, batch) for batch in batches for params in models]
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
        inputs: ObjectiveInputs | Comparison | None = None,  # those to train with come later
    ) -> SelectionResult:
        """Do line 12 of Algorithm 1, with what clients see and what they leave behind."""
        sums = inputs.sums if isinstance(inputs, Comparison) else None
        measured = (
            self.evaluate(state.clusters, cohort, streams)  # f(theta_j, xi_i)
            if sums is None
            else self._losses_without_oneself(sums, cohort)
        )
        known = selection_inputs(state, cohort, measured.float(), streams)
        picked = torch.as_tensor(selection.select(known))  # line 12
        clusters = {c.handle: int(j) for c, j in zip(cohort, picked, strict=True)}
        after = selection.after_choice(state, known)
        events = (*choice_events(selection.epsilon, cohort), *after.events)
        return SelectionResult(after.state, clusters, events)

    def _losses_without_oneself(self, sums: ClusterSums, cohort: Cohort) -> Losses:
        losses = torch.empty(len(cohort), len(sums.sums))
        for i, client in enumerate(cohort):
            shares = sums.shares(client.handle)
            losses[i] = self.features.losses_without_client(client.train, sums.heads, shares)
        return losses

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
        recipe, engine, losses = self.recipe, self.engine, dict[Handle, Sequence[Tensor]]()
        if inputs.least_steps:
            recipe = replace(recipe, least_steps=inputs.least_steps)
        one_batch = self.compares_on[0] == "batch" and recipe.least_steps <= 1

        def job(client: Client) -> TrainingJob:
            j = assignment[client.handle]
            own = inputs.memory.kept.get(client.handle, {}).get(LAYERS)
            drawn = streams.at("local training", client.name)
            return TrainingJob(
                start={**models[j], **own} if own else models[j],
                examples=self._batch(client, streams) if one_batch else client.train,
                # noise that is drawn twice for two models cancels in their difference
                streams=drawn.at("model", j) if recipe.record_clip > 0 else drawn,
                recipe=self._own(recipe, client),
                memory=inputs.of(client.handle),
                on_losses=partial(losses.__setitem__, client.handle)
                if inputs.wants_losses
                else None,
            )

        # made as they are needed: of thousands at once the interpreter would keep count
        jobs, trained_now, beside_them = tee(map(job, cohort), 3)
        # In a list that is emptied: `zip` would hold a model until it has the next one.
        local = ([params] for params in engine.train(map(without_personal, trained_now)))
        keeps, new_memory, starts = recipe.keeps_memory, None, dict[int, Params]()
        own_memory = getattr(engine, "hands_over", False) and not keeps
        less = subtracted_in_place if own_memory else subtract
        beside = personal_training(engine, recipe, beside_them)
        for client, trained_job, made, personal in zip(cohort, jobs, local, beside, strict=True):
            weight = 1.0 if self.weights == "equal" else float(len(client.train))
            batches = losses.pop(client.handle, ())
            j = assignment[client.handle]
            model = models[j]
            if keeps:
                new_memory = memory_after(trained_job, made[0], personal, model)
                if recipe.own_layers:
                    made[0] = {name: made[0][name] for name in model}
            if j not in starts:
                starts[j] = flat(model)
            update = [less(made.pop(), starts[j])]
            if (old := (self.stored or {}).get(client.handle)) is not None:
                update = [rescale_to_norm(update.pop(), old)]
            mean = None
            if inputs.wants_losses and batches:
                epoch = math.ceil(len(client.train) / recipe.batch_size)
                steps = [step.mean() for step in batches[-epoch:]]
                mean = float(torch.stack(steps).double().mean())
            own = streams.at("own noise", client.name) if self.adds_noise else None
            noisy = _noise_of(client, recipe) if recipe.record_noise else None
            yield ClientUpdate(client.handle, j, update.pop(), weight, new_memory, mean, own, noisy)

    def _own(self, recipe: Recipe, client: Client) -> Recipe:
        """Return how a client trains: with gradients clipped to its own C_i."""
        if not recipe.sums_gradients:
            return recipe
        exposure = self.exposures.get(client.handle, 1.0)
        return replace(recipe, record_clip=exposure * recipe.record_clip)

    @property
    def features(self) -> LocalRecords:
        """Clients' records as fixed features.

        Raises:
            ConfigError: the model trains all its parameters.
        """
        if self.records is None:
            raise ConfigError(
                "Sums of records need frozen features, found none: set model.name = 'linear-head'."
            )
        return self.records

    def means(self, state: ServerState, cohort: Cohort) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Return every client's mean features."""
        del state
        return {client.handle: self.features.mean(client.train) for client in cohort}

    def sums(self, state: ServerState, groups: Sequence[Cohort], minimum: int = 0) -> SumsAnswer:
        """Return the sums over each group, under masks over all of it that may be summed.

        What is made anew is one sum: nobody here opened another one.
        """
        d, classes = shape_of(state.clusters[0])
        if not minimum:
            totals = (self.features.sums((c.train for c in group), d) for group in groups)
            return SumsAnswer(tuple(totals))
        (cohort,) = groups
        examples = {client.handle: client.train for client in cohort}
        cohorts = state.get_state(SumCohorts) if state.get_state(ClusterSums).sums else SumCohorts()
        together = cohorts.groups(examples, minimum)
        sending = {
            handle: partial(self.features.sums, [examples[handle]], d)
            for handle in sorted(frozenset[Handle]().union(*together))
        }
        total = masked_sums(sending, (d, classes), minimum) if sending else Sums.nothing(d, classes)
        missing = frozenset(examples.keys() - sending.keys())
        return SumsAnswer((total,), missing, cohorts.waiting(examples, minimum), together)


def _noise_of(client: Client, recipe: Recipe) -> NoisySteps | None:
    """Return the noise in a client's steps by this recipe, if there is any."""
    n = len(client.train)
    rates = num_steps(n, recipe), sampling_rate(n, recipe)
    return NoisySteps(recipe.record_noise, *rates) if n else None


def rescale_to_norm(update: Params, stored: Params) -> Params:
    """Return the update, scaled to the norm of the stored one."""
    length = _length(update)
    return scale(update, _length(stored) / length if length > 0 else 0.0)


def _length(update: Params) -> float:
    return float(flatten(trained(update)).norm())
