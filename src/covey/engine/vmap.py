"""The engine for GPUs: many clients' steps as one batched operation.

Clients train together when they have equally many examples and the same recipe, so no
batch needs padding. Nothing random is drawn inside `vmap`.
"""

import copy
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from covey.components.capability import Capability, Claim, conflicts
from covey.data.examples import Examples, to_floats
from covey.engine.batches import job_indices
from covey.engine.descent import clipped_apart, in_order, reshaping, trainable
from covey.engine.dropout import refuse_dropout
from covey.engine.forward import model_outputs
from covey.engine.losses import PerExample
from covey.engine.optimizers import Step
from covey.engine.protocol import Recipe, Scored, ScoringJob, TrainingJob
from covey.engine.scoring import score_whole
from covey.engine.task import MULTICLASS, Task
from covey.errors import ConfigError, ModelError
from covey.types import Params

__all__ = ["VmapEngine"]

BatchKey = tuple[int, int, frozenset[str]]
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class VmapEngine:
    """Train up to `chunk` clients at once on one device.

    The module gives the architecture only. All jobs are known before the first result,
    and results are computed a chunk at a time.

    Attributes:
        rules_out: what a run cannot have here. Clients in one batch are rounded together.
    """

    rules_out: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.CLUSTER_ISOLATION,
            Capability.EXAMPLE_GRADIENTS,
            Capability.SEPARATE_TRAINING,
        }
    )

    def __init__(
        self,
        module: nn.Module,
        device: str = "cpu",
        chunk: int = 32,
        task: Task = MULTICLASS,
    ) -> None:
        _check_batchable(module)
        self._module = copy.deepcopy(module).to(device)
        self._device = device
        self._chunk = chunk
        self._task = task
        self._trainable = list(trainable(module))

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        known = list(jobs)
        for recipe in {id(job.recipe): job.recipe for job in known}.values():
            self._check(recipe)
        waiting: dict[BatchKey, deque[int]] = defaultdict(deque)
        for index, job in enumerate(known):
            waiting[_batch_key(job)].append(index)
        trained: dict[int, Params] = {}
        for index, job in enumerate(known):
            if index not in trained:
                alike = waiting[_batch_key(job)]
                chunk = [alike.popleft() for _ in range(min(self._chunk, len(alike)))]
                together = self._train_together([known[other] for other in chunk])
                trained.update(zip(chunk, together, strict=True))
            yield trained.pop(index)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        return [self._score_one(job) for job in jobs]

    def _train_together(self, jobs: Sequence[TrainingJob]) -> list[Params]:
        """Return the trained params of jobs that are alike; clients are the first axis."""
        self._module.train()
        recipe, names = jobs[0].recipe, jobs[0].start
        buffers = {name: self._stack(job.start[name] for job in jobs) for name in names}
        weights = {name: buffers.pop(name) for name in self._trainable}
        step = self._step(jobs, list(weights.values()))
        gradients_of = vmap(
            grad(partial(self._loss, recipe.loss.of(self._task)), has_aux=True)
        )
        inputs = self._stack(job.examples.inputs for job in jobs)
        labels = self._stack(job.examples.labels for job in jobs)
        clients = torch.arange(len(jobs), device=self._device)[:, None]
        seen: list[Tensor] = []
        is_asked = any(job.on_losses for job in jobs)
        for drawn in zip(*map(job_indices, jobs), strict=True):
            chosen = (clients, self._stack(drawn))
            batch = (to_floats(inputs[chosen]), labels[chosen])
            gradients, (buffers, loss) = gradients_of(weights, buffers, *batch)
            if is_asked:
                seen.append(loss)
            step(list(gradients.values()))
        _tell(jobs, seen)
        return _unstacked({**weights, **buffers}, names)

    def _step(self, jobs: Sequence[TrainingJob], weights: list[Tensor]) -> Step:
        """Return what changes the stacked weights in place."""
        recipe = jobs[0].recipe
        own = [in_order(job, self._trainable) for job in jobs]
        memory = {
            key: [
                self._stack(each)
                for each in zip(*(kept[key] for kept in own), strict=True)
            ]
            for key in own[0]
        }
        step = recipe.optimizer.begin_together(weights, recipe.learning_rate)
        return reshaping(step, recipe, weights, memory, clipped_apart)

    def _check(self, recipe: Recipe) -> None:
        """Refuse a recipe that needs clients apart, or single examples."""
        mine = Claim(
            "the vmap engine",
            rules_out=self.rules_out,
            remedy="Use the parallel engine.",
        )
        for problem in conflicts([*recipe.claims("the recipe's {}".format), mine]):
            raise ConfigError(f"{problem[0].upper()}{problem[1:]}")

    def _stack(self, tensors: Iterable[Tensor]) -> Tensor:
        return torch.stack(list(tensors)).to(self._device)

    def _loss(
        self,
        losses: PerExample,
        weights: Params,
        buffers: Params,
        inputs: Shaped[Tensor, "batch ..."],
        labels: Shaped[Tensor, "batch *label"],
    ) -> tuple[Float[Tensor, ""], tuple[Params, Float[Tensor, ""]]]:
        """Return one client's loss, and its buffers as BatchNorm leaves them.

        Twice: what is differentiated is not returned beside its gradient.
        """
        call = partial(functional_call, self._module, {**weights, **buffers})
        outputs = model_outputs(self._module, inputs, call)
        loss = losses(outputs, labels).mean()
        return loss, (buffers, loss.detach())

    def _score_one(self, job: ScoringJob) -> Scored:
        examples = Examples(
            job.examples.inputs.to(self._device), job.examples.labels.to(self._device)
        )
        found = score_whole(self._module, ScoringJob(job.params, examples), self._task)
        return Scored(
            losses=found.losses.cpu(),
            predictions=found.predictions.cpu(),
            correct=None if found.correct is None else found.correct.cpu(),
            log_probs=None if found.log_probs is None else found.log_probs.cpu(),
        )


def _batch_key(job: TrainingJob) -> BatchKey:
    """Return what jobs must share to train together without padding.

    The recipe itself: its parts may have options that cannot be hashed.
    """
    return len(job.examples), id(job.recipe), frozenset(job.memory)


def _tell(
    jobs: Sequence[TrainingJob], seen: Sequence[Float[Tensor, " clients"]]
) -> None:
    """Tell each job the loss of every step."""
    if seen:
        by_client = torch.stack(list(seen), dim=1).cpu()
        for job, own in zip(jobs, by_client, strict=True):
            if job.on_losses:
                job.on_losses(own)


def _unstacked(stacked: Params, names: Iterable[str]) -> list[Params]:
    """Undo the stacking: one client's params each, in their own memory."""
    moved = {name: stacked[name].cpu() for name in names}
    count = len(next(iter(moved.values())))
    return [
        {name: value[client].clone() for name, value in moved.items()}
        for client in range(count)
    ]


def _check_batchable(module: nn.Module) -> None:
    """Refuse layers whose training `vmap` cannot batch."""
    refuse_dropout(module, "The vmap engine", "Remove it or use the parallel engine.")
    for layer in module.modules():
        if isinstance(layer, _BATCH_NORMS) and layer.momentum is None:
            raise ModelError(
                "The vmap engine needs BatchNorm with a momentum, "
                f"but the model has {layer} with none. "
                "Set momentum, or use nn.GroupNorm or the parallel engine."
            )
