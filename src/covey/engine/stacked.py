"""Training of one chunk of clients, whose weights are stacked along a first axis."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from covey.data.examples import Examples, to_floats
from covey.engine.batched_dropout import (
    MaskShape,
    drawn_masks,
    handing_out,
    mask_shapes,
)
from covey.engine.batches import job_indices
from covey.engine.descent import clipped_apart, in_order, reshaping, trainable
from covey.engine.device import joined_on, sent
from covey.engine.dropout import mask_generator
from covey.engine.forward import model_outputs
from covey.engine.lockstep import Together, lockstep
from covey.engine.losses import PerExample
from covey.engine.low_precision import multiplying_in
from covey.engine.optimizers import Step
from covey.engine.parallel import Precision
from covey.engine.protocol import TrainingJob
from covey.engine.task import Task
from covey.models import dropout_layers
from covey.types import Params

__all__ = ["StackedTraining"]


class StackedTraining:
    """Steps of many clients on one device; a client's own steps are the reference's.

    Args:
        module: the architecture, on the device.
        device: where everything is.
        task: what the model is asked for.
        precision: what forward and backward passes multiply in.
    """

    def __init__(
        self, module: nn.Module, device: torch.device, task: Task, precision: Precision
    ) -> None:
        self._module = module
        self._device = device
        self._task = task
        self._precision = precision
        self._trainable = list(trainable(module))
        self._drops = bool(dropout_layers(module))
        self._shapes: dict[tuple[int, ...], list[MaskShape]] = {}

    def train(self, jobs: Sequence[TrainingJob]) -> list[Params]:
        """Return the trained params of jobs of one recipe, most steps first."""
        self._module.train()
        clients = _Clients(jobs, self._trainable, self._device)
        step = self._step(jobs, list(clients.weights.values()))
        losses = jobs[0].recipe.loss.of(self._task)
        gradients_of = vmap(grad(partial(self._loss, losses), has_aux=True))
        generators = [mask_generator(job) for job in jobs] if self._drops else []
        for groups in lockstep(clients.drawn, clients.sizes, self._device):
            clients.finish(sum(len(group.clients) for group in groups))
            gradients = [
                gradients_of(
                    *clients.of(group), self._masks(jobs[0], group, generators)
                )
                for group in groups
            ]
            step(clients.told(groups, gradients))
        return clients.trained()

    def try_out(self, start: Params, batch: Examples) -> list[MaskShape]:
        """Run one client's forward pass, and return the masks of dropout that it takes."""
        moved = {name: value.to(self._device) for name, value in start.items()}
        params = {name: value.clone() for name, value in moved.items()}
        for name in self._trainable:  # in their own place, by which they are known
            params[name] = moved[name].detach().requires_grad_()
        inputs = to_floats(sent(batch.inputs, self._device))
        self._module.train()
        call = partial(functional_call, self._module, params)
        with multiplying_in(self._precision, self._device):
            return mask_shapes(lambda: model_outputs(self._module, inputs, call))

    def _masks(
        self,
        job: TrainingJob,
        group: Together,
        generators: Sequence[torch.Generator],
    ) -> list[Tensor]:
        """Return the masks of one step, drawn where clients draw them by themselves."""
        if not self._drops:
            return []
        size = group.examples.shape[1]
        batch = job.examples.take(torch.arange(size) % len(job.examples))
        if batch.inputs.shape not in self._shapes:
            with torch.no_grad():
                found = self.try_out(job.start, batch)
            self._shapes[batch.inputs.shape] = found
        drawn = drawn_masks(
            self._shapes[batch.inputs.shape],
            [generators[client] for client in group.clients],
            pinned=self._device.type == "cuda",
        )
        return [sent(mask, self._device) for mask in drawn]

    def _step(self, jobs: Sequence[TrainingJob], weights: list[Tensor]) -> Step:
        """Return what changes the stacked weights in place."""
        recipe = jobs[0].recipe
        own = [in_order(job, self._trainable) for job in jobs]
        memory = {
            key: [
                _stacked(each, self._device)
                for each in zip(*(kept[key] for kept in own), strict=True)
            ]
            for key in own[0]
        }
        step = recipe.optimizer.begin_together(weights, recipe.learning_rate)
        return reshaping(step, recipe, weights, memory, clipped_apart)

    def _loss(  # noqa: PLR0913, PLR0917 - what `vmap` goes along, and what is bound
        self,
        losses: PerExample,
        weights: Params,
        buffers: Params,
        inputs: Shaped[Tensor, "batch ..."],
        labels: Shaped[Tensor, "batch *label"],
        masks: list[Tensor],
    ) -> tuple[Float[Tensor, ""], tuple[Params, Float[Tensor, ""]]]:
        """Return one client's loss, and its buffers as BatchNorm leaves them.

        Twice: what is differentiated is not returned beside its gradient.
        """
        call = partial(functional_call, self._module, {**weights, **buffers})
        with multiplying_in(self._precision, self._device):
            with handing_out(masks) if self._drops else nullcontext():
                outputs = model_outputs(self._module, inputs, call)
            loss = losses(outputs, labels).mean()
        return loss, (buffers, loss.detach())


class _Clients:
    """What a chunk's clients have on the device; those that are done are taken off."""

    def __init__(
        self, jobs: Sequence[TrainingJob], names: Sequence[str], device: torch.device
    ) -> None:
        self._jobs = jobs
        self.drawn = [job_indices(job) for job in jobs]
        self.sizes = [len(job.examples) for job in jobs]
        self._names = list(jobs[0].start)
        self._buffers = {
            name: _stacked([job.start[name] for job in jobs], device)
            for name in self._names
        }
        self.weights = {name: self._buffers.pop(name) for name in names}
        self._inputs = joined_on(device, [job.examples.inputs for job in jobs])
        self._labels = joined_on(device, [job.examples.labels for job in jobs])
        self._left = len(jobs)
        self._done: list[list[Params]] = []
        self._losses: list[Tensor] = []

    def of(self, group: Together) -> tuple[Params, Params, Tensor, Tensor]:
        """Return the weights, buffers, inputs and labels of some clients' step."""
        weights = {name: value[group.rows] for name, value in self.weights.items()}
        buffers = {name: value[group.rows] for name, value in self._buffers.items()}
        inputs = to_floats(self._inputs[group.examples])
        return weights, buffers, inputs, self._labels[group.examples]

    def told(
        self,
        groups: Sequence[Together],
        found: Sequence[tuple[Params, tuple[Params, Tensor]]],
    ) -> list[Tensor]:
        """Put down buffers and losses, and return all clients' gradients.

        Who is done has a gradient of 0: what its weights become is not looked at.
        """
        for group, (_, (buffers, _)) in zip(groups, found, strict=True):
            for name, value in buffers.items():
                self._buffers[name][group.rows] = value
        if any(job.on_losses for job in self._jobs):
            losses = [loss[:, None] for _, (_, loss) in found]
            self._losses.append(self._together(groups, losses)[:, 0])
        return [
            self._together(groups, [gradients[name] for gradients, _ in found])
            for name in self.weights
        ]

    def _together(self, groups: Sequence[Together], values: Sequence[Tensor]) -> Tensor:
        if len(groups[0].clients) == len(self._jobs):
            return values[0]
        whole = values[0].new_zeros(len(self._jobs), *values[0].shape[1:])
        for group, value in zip(groups, values, strict=True):
            whole[group.rows] = value
        return whole

    def finish(self, left: int) -> None:
        """Set aside the params of all but the first so many clients."""
        if left < self._left:
            rows = slice(left, self._left)
            both = {**self.weights, **self._buffers}
            own = {name: both[name][rows] for name in self._names}
            self._done.append(_unstacked(own))
            self._left = left

    def trained(self) -> list[Params]:
        """Return everybody's params, after everybody was told its losses."""
        if self._losses:
            by_client = torch.stack(self._losses, dim=1).cpu()
            for job, own, drawn in zip(self._jobs, by_client, self.drawn, strict=True):
                if job.on_losses and drawn:
                    job.on_losses(own[: len(drawn)])
        self.finish(0)
        return [params for piece in reversed(self._done) for params in piece]


def _stacked(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return tensors along a new first axis; one that all share is moved once."""
    first = tensors[0]
    if all(each is first for each in tensors):
        moved = first.to(device).expand(len(tensors), *first.shape)
        return moved.clone(memory_format=torch.contiguous_format)
    return joined_on(device, [each[None] for each in tensors])


def _unstacked(stacked: Params) -> list[Params]:
    """Undo the stacking: one client's params each, in their own memory."""
    moved = {name: value.cpu() for name, value in stacked.items()}
    count = len(next(iter(moved.values())))
    return [
        {name: value[client].clone() for name, value in moved.items()}
        for client in range(count)
    ]
