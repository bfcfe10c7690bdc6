"""The engine for GPUs: many clients' steps as one batched operation.

Clients of one recipe train together, whatever their sizes; no batch is padded. Nothing
random is drawn inside `vmap`.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

import torch
from torch import nn

from covey.components.capability import Capability, Claim, conflicts
from covey.data.examples import Examples
from covey.engine.batches import num_steps
from covey.engine.chunks import activation_bytes, chunk_size, client_bytes, grouped
from covey.engine.descent import trainable
from covey.engine.device import float32_exact, free_memory, out_of_memory, release, sent
from covey.engine.dropout import check_dropout, refuse_fused_dropout
from covey.engine.parallel import Precision
from covey.engine.protocol import Recipe, Scored, ScoringJob, TrainingJob
from covey.engine.scoring import score_whole
from covey.engine.stacked import StackedTraining
from covey.engine.task import MULTICLASS, Task
from covey.errors import ConfigError, ModelError
from covey.types import Params

__all__ = ["VmapEngine", "check_batchable"]

BatchKey = tuple[int, frozenset[str]]
FreeMemory = Callable[[], int | None]

CHUNK = 32
"""Clients at once where no card's memory bounds them."""

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class VmapEngine:
    """Train many clients at once on one device.

    The module gives the architecture only. All jobs are known before the first result,
    and results are computed a chunk at a time.

    Args:
        module: the architecture.
        device: where it trains.
        chunk: clients at once, at most; 0: as many as the free memory holds by estimate,
            or 32 where nothing tells it.
        task: what the model is asked for.
        precision: what forward and backward passes multiply in.
        free_memory: tells the bytes that training may take; None: asks the device.

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

    def __init__(  # noqa: PLR0913, PLR0917 - what trains, where, and how much of it at once
        self,
        module: nn.Module,
        device: str = "cpu",
        chunk: int = 0,
        task: Task = MULTICLASS,
        precision: Precision = "float32",
        free_memory: FreeMemory | None = None,
    ) -> None:
        check_batchable(module)
        self._device = torch.device(device)
        self._module = copy.deepcopy(module).to(self._device)
        self._chunk = chunk
        self._task = task
        self._free_memory = free_memory or self._asked
        self._trainable = list(trainable(module))
        self._training = StackedTraining(self._module, self._device, task, precision)
        self._most: int | None = None

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        known = list(jobs)
        for recipe in {id(job.recipe): job.recipe for job in known}.values():
            self._check(recipe)
        chunk_of = {i: chunk for chunk in self._chunks(known) for i in chunk}
        trained: dict[int, Params] = {}
        for index in range(len(known)):
            if index not in trained:
                chunk = chunk_of[index]
                together = self._in_pieces([known[other] for other in chunk])
                trained.update(zip(chunk, together, strict=True))
            yield trained.pop(index)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        with float32_exact(self._device):
            return [self._score_one(job) for job in jobs]

    def _chunks(self, jobs: Sequence[TrainingJob]) -> list[list[int]]:
        """Return the positions of the jobs that train together."""
        return grouped(
            [_batch_key(job) for job in jobs],
            [num_steps(len(job.examples), job.recipe) for job in jobs],
            lambda positions: self._size([jobs[i] for i in positions]),
        )

    def _size(self, jobs: Sequence[TrainingJob]) -> int:
        """Return how many of these jobs, which are alike, train at once."""
        free = None if self._chunk else self._free_memory()
        if free is None:
            return self._chunk or CHUNK
        largest = max(jobs, key=lambda job: len(job.examples))
        return chunk_size(
            free, client_bytes(largest, self._trainable, self._activations(largest))
        )

    def _activations(self, job: TrainingJob) -> int:
        """Return the bytes that one batch keeps for its backward pass."""
        batch = job.examples.first(job.recipe.batch_size)
        if not len(batch):
            return 0
        start = {name: value.to(self._device) for name, value in job.start.items()}
        return activation_bytes(lambda: self._training.try_out(start, batch), start)

    def _asked(self) -> int | None:
        return free_memory(self._device)

    def _in_pieces(self, jobs: Sequence[TrainingJob]) -> list[Params]:
        """Train a chunk, in halves from then on where the memory is too small for it."""
        done: list[Params] = []
        while len(done) < len(jobs):
            rest = jobs[len(done) :]
            piece = rest[: self._most or len(rest)]
            trained = self._trained(piece)
            if trained is None:
                release(self._device)
                self._most = len(piece) // 2
            else:
                done += trained
        return done

    def _trained(self, jobs: Sequence[TrainingJob]) -> list[Params] | None:
        """Return the trained params; None: they take more memory than there is.

        An attempt that failed has told nobody anything, and is gone when this returns.
        """
        try:
            with float32_exact(self._device):
                return self._training.train(jobs)
        except Exception as error:
            if not out_of_memory(error):
                raise
            if len(jobs) == 1:
                raise ModelError(
                    f"One client's training must fit into the memory of {self._device}, "
                    f"but a client with {len(jobs[0].examples)} examples and batches of "
                    f"{jobs[0].recipe.batch_size} took more. Set a smaller "
                    f"train.batch_size, or use the parallel engine."
                ) from error
        return None

    def _check(self, recipe: Recipe) -> None:
        """Refuse a recipe that needs clients apart, or single examples."""
        mine = Claim(
            "the vmap engine",
            rules_out=self.rules_out,
            remedy="Use the parallel engine.",
        )
        for problem in conflicts([*recipe.claims("the recipe's {}".format), mine]):
            raise ConfigError(f"{problem[0].upper()}{problem[1:]}")

    def _score_one(self, job: ScoringJob) -> Scored:
        examples = Examples(
            sent(job.examples.inputs, self._device),
            sent(job.examples.labels, self._device),
        )
        found = score_whole(self._module, ScoringJob(job.params, examples), self._task)
        return Scored(
            losses=found.losses.cpu(),
            predictions=found.predictions.cpu(),
            correct=None if found.correct is None else found.correct.cpu(),
            log_probs=None if found.log_probs is None else found.log_probs.cpu(),
        )


def check_batchable(module: nn.Module) -> None:
    """Refuse layers whose training `vmap` cannot batch.

    Raises:
        ModelError: naming the layer.
    """
    check_dropout(module)
    remedy = "Set its dropout to 0, or use the parallel engine."
    refuse_fused_dropout(module, "The vmap engine", remedy)
    for layer in module.modules():
        if isinstance(layer, _BATCH_NORMS) and layer.momentum is None:
            raise ModelError(
                "The vmap engine needs BatchNorm with a momentum, "
                f"but the model has {layer} with none. "
                "Set momentum, or use nn.GroupNorm or the parallel engine."
            )


def _batch_key(job: TrainingJob) -> BatchKey:
    """Return what jobs must share to train together.

    The recipe itself: its parts may have options that cannot be hashed.
    """
    return id(job.recipe), frozenset(job.memory)
