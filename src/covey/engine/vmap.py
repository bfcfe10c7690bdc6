"""The engine for GPUs: the steps of many clients as one batched operation.

Clients of one recipe train together, whatever the sizes of their data. Every client takes its own
steps, from the first one on and without a pause, so that an optimizer counts alike for all. In
each step, batches of one size are one operation; no batch is padded. Nothing random is drawn
inside `vmap`.
"""

import copy
import gc
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.overrides import TorchFunctionMode

from covey.base.errors import ConfigError, ModelError
from covey.base.names import Params
from covey.data.examples import Examples, to_floats
from covey.engine.cpu import Precision
from covey.engine.descent import clipped_apart, in_order, reshaping, trainable
from covey.engine.dropout import (
    MaskShape,
    check_dropout,
    drawn_masks,
    handing_out,
    mask_generator,
    mask_shapes,
    refuse_dropout,
)
from covey.engine.optimizers import StepFunction
from covey.engine.protocol import (
    Scored,
    ScoringJob,
    TrainingJob,
    job_indices,
    num_steps,
    score_whole,
)
from covey.engine.recipe import MULTICLASS, Losses, PerExample, Task
from covey.models.build import dropout_layers, frozen_params, model_outputs

COPIES = 6
"""Of the trained weights: gradients, the same put together, a step's product, two numbers
of an optimizer, and the start that an objective looks at."""

USED = 0.8
"""Share of the free memory that is planned with: the rest is for what libraries take."""

LOOK_AHEAD = 8
"""Chunks whose clients are sorted by their steps; at most so many are held as results."""

_NORMS = frozenset(
    {
        nn.functional.batch_norm,
        nn.functional.group_norm,
        nn.functional.instance_norm,
        nn.functional.layer_norm,
    }
)

CHUNK = 32
"""Clients at once where no card's memory bounds them."""

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def free_on(device: torch.device) -> int | None:
    """Return the bytes that training may still take on a card; None: there is no card.

    What torch holds without using it counts as free.
    """
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + held


def out_of_memory(error: BaseException | None) -> bool:
    """Say whether a device's memory was too small, whatever error reports it."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__
    return False


def joined_on(device: torch.device, tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors in a row on a device: from pinned memory, without waiting."""
    first = tensors[0]
    rows = sum(len(tensor) for tensor in tensors)
    row = torch.empty((rows, *first.shape[1:]), dtype=first.dtype, pin_memory=device.type == "cuda")
    torch.cat(list(tensors), out=row)
    return sent(row, device)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device, without waiting where it lies in pinned memory."""
    return tensor.to(device, non_blocking=tensor.is_pinned())


def float32_exact(device: torch.device) -> AbstractContextManager[object]:
    """Return a block in which a card's convolutions keep float32, and are repeatable.

    torch lets them round to 10 bits (TF32), which is no float32.
    """
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)


Drawn = Sequence[Sequence[Int[Tensor, " _"]]]


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Clients whose batches of one step are of one size.

    Attributes:
        clients: their positions.
        rows: the same, to index with: a slice where they are the first ones.
        examples: which examples each takes, out of all clients' in one row.
    """

    clients: list[int]
    rows: slice | Int[Tensor, " clients"]
    examples: Int[Tensor, "clients batch"]


def lockstep(drawn: Drawn, sizes: Sequence[int], device: torch.device) -> Iterator[list[Together]]:
    """Yield who takes each step; all together, it is the first so many clients.

    Args:
        drawn: each client's batches, the client with most steps first.
        sizes: how many examples each client has.
        device: where positions of examples go, all at once.
    """
    steps = [dict[int, list[int]]() for _ in range(max(map(len, drawn)))]
    for client, own in enumerate(drawn):
        for groups, batch in zip(steps, own, strict=False):
            groups.setdefault(len(batch), []).append(client)
    offsets = [0, *accumulate(sizes)]
    parts = [
        drawn[client][step] + offsets[client]
        for step, groups in enumerate(steps)
        for group in groups.values()
        for client in group
    ]
    if not parts:
        return
    counts = [size * len(group) for groups in steps for size, group in groups.items()]
    pieces = iter(joined_on(device, parts).split(counts))
    for groups in steps:
        yield [
            Together(group, _rows(group, device), next(pieces).view(len(group), -1))
            for group in groups.values()
        ]


def _rows(clients: list[int], device: torch.device) -> slice | Tensor:
    if clients == list(range(len(clients))):
        return slice(len(clients))
    return sent(torch.tensor(clients), device)


def activation_bytes(forward: Callable[[], object], weights: Mapping[str, Tensor]) -> int:
    """Return what a forward pass keeps for the backward pass, less the weights."""
    bytes_at: dict[int, int] = {}

    def counted(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        bytes_at[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(counted, lambda tensor: tensor):
        forward()
    known = {value.untyped_storage().data_ptr() for value in weights.values()}
    return sum(size for place, size in bytes_at.items() if place not in known)


def client_bytes(job: TrainingJob, trained: Sequence[str], activations: int) -> int:
    """Return what one client's training takes at its peak, by estimate.

    The model, `COPIES` of what is trained in it, what the objective remembers, the
    examples, and the activations of one batch twice: their gradients are as large.
    """
    model = sum(value.nbytes for value in job.start.values())
    weights = sum(job.start[name].nbytes for name in trained)
    remembered = sum(v.nbytes for values in job.memory.values() for v in values.values())
    examples = job.examples.inputs.nbytes + job.examples.labels.nbytes
    return model + COPIES * weights + remembered + examples + 2 * activations


def chunk_size(free: int, bytes_per_job: int) -> int:
    """Return how many clients of this size in bytes fit into the free ones, a power of two.

    So a little more or less that is free changes no chunk, and no rounding.
    """
    fitting = max(1, int(USED * free / max(bytes_per_job, 1)))
    return 1 << (fitting.bit_length() - 1)


def grouped(
    keys: Sequence[Hashable], steps: Sequence[int], size_of: Callable[[Sequence[int]], int]
) -> list[list[int]]:
    """Return the positions of the jobs of each chunk, those of most steps first.

    Args:
        keys: jobs of different keys never train together.
        steps: how many each job takes.
        size_of: how many of the jobs at these positions, all of one key, fit.
    """
    alike: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        alike.setdefault(key, []).append(position)
    groups: list[list[int]] = []
    for positions in alike.values():
        size = size_of(positions)
        for window in _cut(positions, LOOK_AHEAD * size):
            by_length = sorted(window, key=lambda i: -steps[i])
            groups += _cut(by_length, size)
    return groups


def _cut(positions: list[int], size: int) -> list[list[int]]:
    return [positions[i : i + size] for i in range(0, len(positions), size)]


@contextmanager
def multiplying_in(precision: str, device: torch.device) -> Iterator[None]:
    """Let what is called inside multiply in this precision; parameters stay float32."""
    if precision == "float32":
        yield
        return
    # A cache of cast weights would outlive the step, and know nothing of `vmap`.
    with torch.autocast(device.type, torch.bfloat16, cache_enabled=False), _FloatNorms():
        yield


class _FloatNorms(TorchFunctionMode):
    """Normalises in float32, as autocast does: under `vmap` it meets mixed types."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func not in _NORMS or not args[0].is_floating_point():
            return func(*args, **kwargs)
        inputs = args[0]
        return func(inputs.float(), *args[1:], **kwargs).to(inputs.dtype)


class _Clients:
    """What a chunk's clients have on the device; those that are done are taken off."""

    def __init__(
        self, jobs: Sequence[TrainingJob], names: Sequence[str], device: torch.device
    ) -> None:
        self._jobs = jobs
        self.drawn = [[torch.from_numpy(indices) for indices in job_indices(job)] for job in jobs]
        self._names = list(jobs[0].start)
        self._buffers = {
            name: _stacked([job.start[name] for job in jobs], device) for name in self._names
        }
        self.weights = {name: self._buffers.pop(name) for name in names}
        self._inputs = joined_on(device, [job.examples.inputs for job in jobs])
        self._labels = joined_on(device, [job.examples.labels for job in jobs])
        self._left = len(jobs)
        self._done: list[list[Params]] = []
        self._losses: list[tuple[list[int], Tensor]] = []

    def of(self, group: Together) -> tuple[Params, Params, Tensor, Tensor]:
        """Return the weights, buffers, inputs and labels of some clients' step."""
        weights = {name: value[group.rows] for name, value in self.weights.items()}
        buffers = {name: value[group.rows] for name, value in self._buffers.items()}
        inputs = to_floats(self._inputs[group.examples])
        return weights, buffers, inputs, self._labels[group.examples]

    def gradients(
        self, groups: Sequence[Together], results: Sequence[tuple[Params, tuple[Params, Tensor]]]
    ) -> list[Tensor]:
        """Put down buffers and losses of a step, and return all clients' gradients.

        Who is done has a gradient of 0: what its weights become is not looked at.
        """
        for group, (_, (buffers, losses)) in zip(groups, results, strict=True):
            for name, value in buffers.items():
                self._buffers[name][group.rows] = value
            if any(job.on_losses for job in self._jobs):
                self._losses.append((group.clients, losses))
        if len(groups[0].clients) == len(self._jobs):
            return [results[0][0][name] for name in self.weights]
        whole = [value.new_zeros(value.shape) for value in self.weights.values()]
        for group, (gradients, _) in zip(groups, results, strict=True):
            for value, name in zip(whole, self.weights, strict=True):
                value[group.rows] = gradients[name]
        return whole

    def finish(self, left: int) -> None:
        """Set aside the params of all but the first so many clients."""
        if left < self._left:
            rows = slice(left, self._left)
            both = {**self.weights, **self._buffers}
            # in one move from the device, then each client's in its own memory
            moved = {name: both[name][rows].cpu() for name in self._names}
            self._done.append(
                [{n: v[i].clone() for n, v in moved.items()} for i in range(self._left - left)]
            )
            self._left = left

    def trained(self) -> list[Params]:
        """Return everybody's params, after every client's losses were passed on."""
        losses: list[list[Tensor]] = [[] for _ in self._jobs]
        for clients, rows in self._losses:
            for client, own in zip(clients, rows.cpu(), strict=True):
                losses[client].append(own)
        for job, own in zip(self._jobs, losses, strict=True):
            if job.on_losses and own:
                job.on_losses(own)
        self.finish(0)
        return [params for piece in reversed(self._done) for params in piece]


def _stacked(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return tensors along a new first axis; one that all share is moved once."""
    first = tensors[0]
    if all(tensor is first for tensor in tensors):
        moved = first.to(device).expand(len(tensors), *first.shape)
        return moved.clone(memory_format=torch.contiguous_format)
    return joined_on(device, [tensor[None] for tensor in tensors])


class VmapEngine:
    """Train many clients at once on one device.

    The module gives the architecture and what is frozen in it. All jobs are known first,
    and results are computed a chunk at a time.

    Args:
        module: the architecture.
        device: where it trains.
        chunk: clients at once, at most; 0: as many as the free memory holds by estimate,
            or 32 where it is unknown.
        task: what the model predicts.
        precision: what forward and backward passes multiply in.
        free_memory: returns the bytes that training may take; None: asks the device.
    """

    def __init__(
        self,
        module: nn.Module,
        device: str = "cpu",
        chunk: int = 0,
        task: Task = MULTICLASS,
        precision: Precision = "float32",
        free_memory: Callable[[], int | None] | None = None,
    ) -> None:
        check_batchable(module)
        self._device = torch.device(device)
        self._module = copy.deepcopy(module).to(self._device)
        self._chunk = chunk
        self._task = task
        self._precision = precision
        self._free_memory = free_memory or partial(free_on, self._device)
        self._trainable = list(trainable(module))
        self._drops = bool(dropout_layers(module))
        self._shapes: dict[tuple[int, ...], list[MaskShape]] = {}
        self._most: int | None = None

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        known = list(jobs)
        for part in (part for job in known for part in job.recipe.per_client):
            raise ConfigError(
                f"The recipe's {part} needs every client to be trained by itself, found the vmap "
                f"engine, which trains many as one: use the parallel engine."
            )
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
            # the recipe itself: its parts may have options that cannot be hashed
            [(id(job.recipe), frozenset(job.memory)) for job in jobs],
            [num_steps(len(job.examples), job.recipe) for job in jobs],
            lambda positions: self._size([jobs[i] for i in positions]),
        )

    def _size(self, jobs: Sequence[TrainingJob]) -> int:
        """Return how many of these jobs, which are alike, train at once."""
        free = None if self._chunk else self._free_memory()
        if free is None:
            return self._chunk or CHUNK
        job = max(jobs, key=lambda job: len(job.examples))
        batch, activations = job.examples.first(job.recipe.batch_size), 0
        if len(batch):
            start = {name: value.to(self._device) for name, value in job.start.items()}
            known = {**frozen_params(self._module), **start}
            activations = activation_bytes(lambda: self._try_out(start, batch), known)
        return chunk_size(free, client_bytes(job, self._trainable, activations))

    def _in_pieces(self, jobs: Sequence[TrainingJob]) -> list[Params]:
        """Train a chunk, in halves from then on where the memory is too small for it.

        An attempt that failed has passed nothing on.
        """
        done: list[Params] = []
        while len(done) < len(jobs):
            rest = jobs[len(done) :]
            piece = rest[: self._most or len(rest)]
            try:
                with float32_exact(self._device):
                    done += self._train_together(piece)
            except Exception as error:
                if not out_of_memory(error):
                    raise
                if len(piece) == 1:
                    raise ModelError(
                        f"A client must fit into the memory of {self._device}, found one of "
                        f"{len(piece[0].examples)} examples that does not: set train.batch_size "
                        f"below {piece[0].recipe.batch_size}, or use the parallel engine."
                    ) from error
                self._most = len(piece) // 2
            else:
                continue
            gc.collect()  # the failed attempt, whose error is gone by now
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
        return done

    def _train_together(self, jobs: Sequence[TrainingJob]) -> list[Params]:
        """Return the trained params of jobs of one recipe, most steps first."""
        self._module.train()
        clients = _Clients(jobs, self._trainable, self._device)
        step = self._step(jobs, list(clients.weights.values()))
        losses = jobs[0].recipe.loss.of(self._task)
        gradients_of = vmap(grad(partial(self._loss, losses), has_aux=True))
        generators = [mask_generator(job) for job in jobs] if self._drops else []
        sizes = [len(job.examples) for job in jobs]
        for groups in lockstep(clients.drawn, sizes, self._device):
            clients.finish(sum(len(group.clients) for group in groups))
            results = [
                gradients_of(*clients.of(group), self._masks(jobs[0], group, generators))
                for group in groups
            ]
            step(clients.gradients(groups, results))
        return clients.trained()

    def _try_out(self, start: Params, batch: Examples) -> list[MaskShape]:
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
        self, job: TrainingJob, group: Together, generators: Sequence[torch.Generator]
    ) -> list[Tensor]:
        """Return the masks of one step, drawn where clients draw them by themselves."""
        if not self._drops:
            return []
        size = group.examples.shape[1]
        batch = job.examples.take(torch.arange(size) % len(job.examples))
        if batch.inputs.shape not in self._shapes:
            with torch.no_grad():
                masks = self._try_out(job.start, batch)
            self._shapes[batch.inputs.shape] = masks
        drawn = drawn_masks(
            self._shapes[batch.inputs.shape],
            [generators[client] for client in group.clients],
            pinned=self._device.type == "cuda",
        )
        return [sent(mask, self._device) for mask in drawn]

    def _step(self, jobs: Sequence[TrainingJob], weights: list[Tensor]) -> StepFunction:
        """Return what changes the stacked weights in place."""
        recipe = jobs[0].recipe
        own = [in_order(job, self._trainable) for job in jobs]
        memory = {
            key: [
                _stacked(tensors, self._device)
                for tensors in zip(*(states[key] for states in own), strict=True)
            ]
            for key in own[0]
        }
        step = recipe.optimizer.begin_together(weights, recipe.learning_rate)
        return reshaping(step, recipe, weights, memory, clipped_apart)

    def _loss(
        self,
        losses: PerExample,
        weights: Params,
        buffers: Params,
        inputs: Shaped[Tensor, "batch ..."],
        labels: Shaped[Tensor, "batch *label"],
        masks: list[Tensor],
    ) -> tuple[Float[Tensor, ""], tuple[Params, Losses]]:
        """Return one client's loss; buffers as BatchNorm leaves them, and examples' losses."""
        call = partial(functional_call, self._module, {**weights, **buffers})
        with multiplying_in(self._precision, self._device):
            with handing_out(masks) if self._drops else nullcontext():
                outputs = model_outputs(self._module, inputs, call)
            example_losses = losses(outputs, labels)
            loss = example_losses.mean()
        return loss, (buffers, example_losses.detach())

    def _score_one(self, job: ScoringJob) -> Scored:
        examples = Examples(
            sent(job.examples.inputs, self._device), sent(job.examples.labels, self._device)
        )
        scores = score_whole(self._module, ScoringJob(job.params, examples), self._task)
        return Scored._make(None if score is None else score.cpu() for score in scores)


def check_batchable(module: nn.Module) -> None:
    """Refuse layers whose training `vmap` cannot batch.

    Raises:
        ModelError: naming the layer.
    """
    names = dict[int, str]()
    for name, value in module.named_parameters(remove_duplicate=False):
        if (first := names.setdefault(id(value), name)) != name:
            raise _unbatched("a tensor per name,", f"one of {first} and {name}")
    check_dropout(module)
    remedy = "set its dropout to 0, or use the parallel engine."
    refuse_dropout(module, "The vmap engine", remedy, fused_alone=True)
    for layer in module.modules():
        if isinstance(layer, _BATCH_NORMS) and layer.momentum is None:
            raise _unbatched("BatchNorm with a momentum, or nn.GroupNorm,", layer)


def _unbatched(needed: str, found: object) -> ModelError:
    return ModelError(f"The vmap engine needs {needed} found {found}: use the parallel engine.")
