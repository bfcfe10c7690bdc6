"""Models of which a linear head alone is trained or solved: features are computed once."""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice

import torch
from jaxtyping import Float, Float64, Int16, Int64
from torch import Tensor

from covey.base.names import Params
from covey.data.examples import Examples, hashes
from covey.engine.cpu import one_intra_op_thread
from covey.engine.example_gradients import clipped_product, residuals_of, weights_of
from covey.engine.protocol import Engine, EngineOver, Scored, ScoringJob, TrainingJob, scored
from covey.engine.recipe import Loss, Task
from covey.models.feature_store import FeatureStore
from covey.models.linear_head import LinearHeadNetwork
from covey.ridge.head import Head, SentHead, scores_without_client, shape_of
from covey.ridge.sums import FEATURE_STEPS, Rows, Sums, feature_grid, sums_of

CHUNK = 1_000
"""Examples that are scored at a time: bounds the memory, not the result."""

CACHE = 2**30
"""Bytes of features that are kept in memory; others are computed, or read, again."""

PART = 256
"""Examples whose features one thread computes before it takes others."""


class LocalRecords:
    """Clients' records, as a model's fixed features have them, each computed once.

    Args:
        module: the model.
        task: its losses are in nats.
        classes: how many outputs the head has.

    Attributes:
        fingerprint: hash of the features' tensors, of a user's own source, and of the public
            examples by which they are whitened; "" where there is none of them.
    """

    def __init__(self, module: LinearHeadNetwork, task: Task, classes: int) -> None:
        self._features, self._scale, self._task = module.features, module.scale, task
        self._kept: OrderedDict[int, tuple[Examples, Int16[Tensor, "n d"]]] = OrderedDict()
        self._rows: dict[bytes, Int16[Tensor, " d"]] = {}
        self.classes = classes
        fixed, public = module.features.map, module.features.public_hash
        text = " ".join((fixed.tensors, fixed.source, *([public] if public else [])))
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest() if text.strip() else ""

    @property
    def store(self) -> FeatureStore | None:
        """Where features are kept in a file; None: they are soon computed."""
        return self._features.map.store if self._features.map.is_stored else None

    def prepare(self, held: Mapping[str, Sequence[Examples]]) -> Iterator[tuple[int, int]]:
        """Compute features that will be needed, on all cores, and store them.

        Args:
            held: examples by the handle of who holds them.

        Yields:
            How many examples are done, of how many.
        """
        if self.store is not None:
            self.store.create()
        parts = [
            (holder, part)
            for holder, several in held.items()
            for examples in several
            for part in examples.inputs.split(PART)
        ]
        total, done = sum(len(part) for _, part in parts), 0
        with ThreadPoolExecutor(os.cpu_count()) as pool, one_intra_op_thread():
            for (_, part), _ in zip(parts, pool.map(self._prepared, parts), strict=True):
                done += len(part)
                yield done, total

    def _prepared(self, part: tuple[str, Tensor]) -> None:
        holder, inputs = part
        records = hashes(inputs)
        self._remember(records, feature_grid(self._features.rows(inputs, records, holder)))

    def _remember(self, records: Sequence[bytes], features: Int16[Tensor, "n d"]) -> None:
        """Keep rows by their records, in so much memory."""
        if features.nbytes / max(1, len(features)) * len(self._rows) > CACHE:
            self._rows.clear()
        self._rows.update(zip(records, features, strict=True))

    def features(self, examples: Examples) -> Int16[Tensor, "n d"]:
        """Return the features of every example in steps of their grid, and 1 last."""
        stored = self._kept.get(id(examples))
        if stored is not None:
            self._kept.move_to_end(id(examples))
            return stored[1]
        records = hashes(examples.inputs)
        known = [row for row in map(self._rows.get, records) if row is not None]
        if records and len(known) == len(records):
            features = torch.stack(known)
        else:
            features = feature_grid(self._features.rows(examples.inputs, records))
            self._remember(records, features)
        self._kept[id(examples)] = examples, features  # which keeps the id from others
        while len(self._kept) > 1 and sum(kept.nbytes for _, kept in self._kept.values()) > CACHE:
            self._kept.popitem(last=False)
        return features

    def of(self, examples: Examples) -> Examples:
        """Return the same examples, with features in the place of inputs."""
        return Examples(self.features(examples), examples.labels)

    def rows(self, examples: Examples) -> Rows:
        """Return a client's records, by which its sums are made."""
        return Rows(self.features(examples), examples.labels)

    def sums(self, clients: Iterable[Examples], d: int) -> Sums:
        """Return the sums over these clients' examples."""
        return sums_of(map(self.rows, clients), d, self.classes)

    def mean(self, examples: Examples) -> Float64[Tensor, " d"]:
        """Return the mean of the features, in steps of the grid."""
        return self.features(examples).double().mean(dim=0)

    def losses(
        self, scores: Float[Tensor, "rows classes"], labels: Int64[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """Return the loss of each record at these scores, in nats."""
        return self._task.losses(self._scale * scores, labels)

    def losses_without_client(
        self, examples: Examples, heads: Iterable[Head | SentHead], shares: Iterable[float]
    ) -> Float[Tensor, " heads"]:
        """Return a client's mean loss under every head, as it would be without the client.

        Args:
            examples: the client's.
            heads: solved from everybody's sums, the client's among them.
            shares: of its records in each (`covey.ridge.head.ClusterSums.shares`).
        """
        rows, heads_and_shares = self.rows(examples), zip(heads, shares, strict=True)
        scores = (scores_without_client(head, rows, share) for head, share in heads_and_shares)
        return torch.stack([self.losses(own, rows.labels).mean() for own in scores])

    def scored(self, head: Params, examples: Examples) -> Scored:
        """Return what a head answers on every example."""
        weight, bias = head["head.weight"], head["head.bias"]
        parts = self.features(examples)[:, :-1].split(CHUNK)
        outputs = self._scale * torch.cat(
            [part.float() / FEATURE_STEPS @ weight.T + bias for part in parts]
        )
        return scored(outputs, examples.labels, self._task)

    def gradient_factors(
        self, head: Params, examples: Examples, loss: Loss
    ) -> Iterator[tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows d"]]]:
        """Yield r and phi of the examples, part after part (`residuals_of`).

        phi are an example's features, and 1 last.
        """
        theta, losses, start = weights_of(head), loss.of(self._task), 0
        for part in self.features(examples).split(CHUNK):
            phi = part.float() / FEATURE_STEPS
            labels, start = examples.labels[start : start + len(phi)], start + len(phi)
            yield residuals_of(theta, phi, labels, self._scale, losses), phi

    def gradient_norms(self, job: TrainingJob) -> Float[Tensor, " examples"]:
        """Return the norm of each example's gradient, |r| |phi|, before it is clipped."""
        factors = self.gradient_factors(job.start, job.examples, job.recipe.loss)
        norms = (residuals.norm(dim=1) * phi.norm(dim=1) for residuals, phi in factors)
        return torch.cat([torch.zeros(0), *norms])

    def descended(self, job: TrainingJob) -> Params:
        """Return a head after the step of `gradient_sum`, without a gradient by itself."""
        head, recipe = job.start, job.recipe
        total = torch.zeros(shape_of(head)[::-1])
        for residuals, phi in self.gradient_factors(head, job.examples, recipe.loss):
            total += clipped_product(residuals, phi, recipe.record_clip)
        step = -recipe.learning_rate * total
        return {
            "head.weight": head["head.weight"] + step[:, :-1],
            "head.bias": head["head.bias"] + step[:, -1],
        }


class FixedFeatureEngine(EngineOver):
    """An engine that trains and scores heads on features that were computed before.

    Args:
        engine: trains a `HeadAlone`; or whole networks, where inputs are to change in training.
        records: clients' records.
    """

    def __init__(self, engine: Engine, records: LocalRecords) -> None:
        super().__init__(engine)
        self._records = records

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        every = iter(jobs)
        for first in islice(every, 1):
            jobs = chain([first], every)
            if first.recipe.sums_gradients:
                with one_intra_op_thread():  # sums of more come to other bits
                    yield from map(self._records.descended, jobs)
            elif first.recipe.augment.changes:
                yield from self._engine.train(jobs)
            else:
                own = (replace(job, examples=self._records.of(job.examples)) for job in jobs)
                yield from self._engine.train(own)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        return [self._records.scored(job.params, job.examples) for job in jobs]
