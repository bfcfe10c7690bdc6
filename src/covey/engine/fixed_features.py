"""Models of which a linear head alone is trained or solved: features are computed once."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

import torch
from jaxtyping import Float, Float64, Int16, Int64
from torch import Tensor, nn

from covey.base.names import Params
from covey.data.examples import Examples, to_floats
from covey.engine.cpu import one_intra_op_thread
from covey.engine.example_gradients import clip_shares
from covey.engine.protocol import Engine, EngineOver, Scored, ScoringJob, TrainingJob, scored
from covey.engine.recipe import Loss, Task
from covey.ridge.head import Head, SentHead, is_head, scores_without_client, shape_of
from covey.ridge.sums import FEATURE_STEPS, Rows, Sums, feature_grid, sums_of

CHUNK = 1_000
"""Examples whose features are computed at a time: bounds the memory, not the result."""

CACHE = 2**30
"""Bytes of features that are kept; others are computed again."""


def has_fixed_features(module: nn.Module) -> bool:
    """Say whether a model is a linear `head` over `features` that do not train."""
    features = isinstance(getattr(module, "features", None), nn.Module)
    return features and is_head(module.state_dict())


class LocalRecords:
    """Clients' records, as a model's fixed features have them, each computed once.

    Args:
        module: `has_fixed_features`.
        task: its losses are in nats.
        classes: how many outputs the head has.

    Attributes:
        fingerprint: hash of the features' tensors and, of a user's own, of the source; ""
            where neither is known.
    """

    def __init__(self, module: nn.Module, task: Task, classes: int) -> None:
        self._features: nn.Module = module.features  # pyright: ignore[reportAttributeAccessIssue]
        self._scale, self._task = float(getattr(module, "scale", 1.0)), task
        self._kept: OrderedDict[int, tuple[Examples, Int16[Tensor, "n d"]]] = OrderedDict()
        self.classes = classes
        known = [str(getattr(self._features, each, "")) for each in ("tensors", "source")]
        text = " ".join(known).encode()
        self.fingerprint = hashlib.sha256(text).hexdigest() if any(known) else ""

    def features(self, examples: Examples) -> Int16[Tensor, "n d"]:
        """Return the features of every example in steps of their grid, and 1 last."""
        found = self._kept.get(id(examples))
        if found is not None:
            self._kept.move_to_end(id(examples))
            return found[1]
        with torch.no_grad():
            parts = examples.inputs.split(CHUNK)
            features = torch.cat([feature_grid(self._features(to_floats(part))) for part in parts])
        self._kept[id(examples)] = examples, features  # which keeps the id from others
        while len(self._kept) > 1 and sum(kept.nbytes for _, kept in self._kept.values()) > CACHE:
            self._kept.popitem(last=False)
        return features

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
            shares: of its records in each (`covey.ridge.state.ClusterSums.shares`).
        """
        rows, each = self.rows(examples), zip(heads, shares, strict=True)
        scores = (scores_without_client(head, rows, share) for head, share in each)
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
        """Yield r and phi of the examples, part after part: an example's gradient is r phi^T.

        r = scale df/ds at the scores s = theta phi, and phi are its features, and 1 last.
        """
        theta = torch.cat([head["head.weight"], head["head.bias"][:, None]], dim=1)
        losses, start = loss.of(self._task), 0
        for part in self.features(examples).split(CHUNK):
            phi = part.float() / FEATURE_STEPS
            labels, start = examples.labels[start : start + len(phi)], start + len(phi)
            scores = (phi @ theta.T).requires_grad_()
            (residuals,) = torch.autograd.grad(losses(self._scale * scores, labels).sum(), scores)
            yield residuals.nan_to_num(0.0, 0.0, 0.0), phi

    def gradient_norms(self, job: TrainingJob) -> Float[Tensor, " examples"]:
        """Return the norm of each example's gradient, |r| |phi|, before it is clipped."""
        factors = self.gradient_factors(job.start, job.examples, job.recipe.loss)
        norms = (residuals.norm(dim=1) * phi.norm(dim=1) for residuals, phi in factors)
        return torch.cat([torch.zeros(0), *norms])

    def descended(self, job: TrainingJob) -> Params:
        """Return a head after the step of `gradient_sum`, without a gradient by itself.

        sum_r clip(r phi^T, C) = sum_r min(1, C / (|r| |phi|)) r phi^T
        """
        head, recipe = job.start, job.recipe
        total = torch.zeros(shape_of(head)[::-1])
        for residuals, phi in self.gradient_factors(head, job.examples, recipe.loss):
            norms = residuals.norm(dim=1) * phi.norm(dim=1)
            total += (clip_shares(norms, recipe.record_clip)[:, None] * residuals).T @ phi
        step = -recipe.learning_rate * total
        return {
            "head.weight": head["head.weight"] + step[:, :-1],
            "head.bias": head["head.bias"] + step[:, -1],
        }


class FixedFeatureEngine(EngineOver):
    """An engine that looks at heads on features that were computed before.

    It scores them, and sums up their clipped gradients; other steps another engine makes.
    """

    def __init__(self, engine: Engine, records: LocalRecords) -> None:
        super().__init__(engine)
        self._records = records

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        every = iter(jobs)
        for first in islice(every, 1):
            jobs = chain([first], every)
            if not first.recipe.sums_gradients:
                yield from self._engine.train(jobs)
                return
            with one_intra_op_thread():  # sums of more come to other bits
                yield from map(self._records.descended, jobs)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        return [self._records.scored(job.params, job.examples) for job in jobs]
