"""Simulated clients: their examples are here, and an engine looks at all at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from covey.algorithms.base import Cohort, ServerState
from covey.algorithms.cluster_selection import (
    Evaluate,
    Losses,
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
    choice_events,
    selection_inputs,
    with_latest_losses,
)
from covey.errors import ConfigError
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["LocalClients"]


@dataclass(frozen=True, slots=True)
class LocalClients:
    """How simulated clients look at models."""

    losses: Evaluate

    def evaluate(
        self, models: tuple[Params, ...], cohort: Cohort, streams: Streams
    ) -> Losses:
        """Return every model's loss on every client's selection batch, in nats."""
        return self.losses(models, cohort, streams)

    def nearest(
        self, state: ServerState, cohort: Cohort, streams: Streams
    ) -> Mapping[Handle, int]:
        """Return each client's cluster with the lowest loss: argmin_j losses[i, j]."""
        losses = self.losses(state.clusters, cohort, streams).nan_to_num(nan=torch.inf)
        return {
            c.handle: int(own.argmin()) for c, own in zip(cohort, losses, strict=True)
        }

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
