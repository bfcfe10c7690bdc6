"""Models of which a linear head alone is trained or solved: features are computed once."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Float64, Int16, Int64
from torch import Tensor, nn

from covey.base.names import Params
from covey.data.examples import Examples, to_floats
from covey.engine.protocol import Engine, Scored, ScoringJob, TrainingJob, scored
from covey.engine.recipe import Task
from covey.heads.perturbed import HeadNoise
from covey.heads.state import SumNoise
from covey.heads.sums import FEATURE_STEPS, WEIGHT_STEPS, Rows, Sums, feature_grid, sums_of

CHUNK = 1_000
"""Examples whose features are computed at a time: bounds the memory, not the result."""

CACHE = 2**30
"""Bytes of features that are kept; others are computed again."""

HEAD = {"head.weight", "head.bias"}


def has_fixed_features(module: nn.Module) -> bool:
    """Say whether a model is a linear `head` over `features` that do not train."""
    features = isinstance(getattr(module, "features", None), nn.Module)
    return features and is_head(module.state_dict())


def is_head(params: Params) -> bool:
    """Say whether these are a linear head's parameters, and nothing else."""
    return set(params) == HEAD


class FeatureCache:
    """The features of examples that were looked at before, in steps of their grid.

    Args:
        module: `has_fixed_features`.

    Attributes:
        fingerprint: hash of the features' tensors and, of a user's own, of the source; ""
            where neither is known.
    """

    def __init__(self, module: nn.Module) -> None:
        self._features: nn.Module = module.features  # pyright: ignore[reportAttributeAccessIssue]
        self._kept: OrderedDict[int, tuple[Examples, Int16[Tensor, "n d"]]] = OrderedDict()
        self._bytes = 0
        known = [str(getattr(self._features, each, "")) for each in ("tensors", "source")]
        text = " ".join(known).encode()
        self.fingerprint = hashlib.sha256(text).hexdigest() if any(known) else ""

    def of(self, examples: Examples) -> Int16[Tensor, "n d"]:
        """Return the features of every example, and 1 last."""
        found = self._kept.get(id(examples))
        if found is not None:
            self._kept.move_to_end(id(examples))
            return found[1]
        with torch.no_grad():
            features = torch.cat(
                [
                    feature_grid(self._features(to_floats(part)))
                    for part in examples.inputs.split(CHUNK)
                ]
            )
        self._kept[id(examples)] = examples, features  # which keeps the id from others
        self._bytes += features.nbytes
        while self._bytes > CACHE and len(self._kept) > 1:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= oldest.nbytes
        return features


class FixedFeatureEngine:
    """An engine that scores heads on features it has computed before; others train.

    Args:
        engine: trains.
        cache: of the model's features.
        scale: by which the head's scores become outputs.
        task: judges them.
    """

    def __init__(self, engine: Engine, cache: FeatureCache, scale: float, task: Task) -> None:
        self._engine, self._cache, self._scale, self._task = engine, cache, scale, task

    @property
    def rounds_together(self) -> bool:
        """Whether the engine that trains rounds several clients together."""
        return getattr(self._engine, "rounds_together", False)

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        return self._engine.train(jobs)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        return [self._score_one(job) for job in jobs]

    def _score_one(self, job: ScoringJob) -> Scored:
        weight, bias = job.params["head.weight"], job.params["head.bias"]
        parts = self._cache.of(job.examples)[:, :-1].split(CHUNK)
        outputs = self._scale * torch.cat(
            [part.float() / FEATURE_STEPS @ weight.T + bias for part in parts]
        )
        return scored(outputs, job.examples.labels, self._task)


class LocalRecords:
    """Clients' records, as a model's fixed features have them.

    Under noise none of them, and no client, adds much to a sum.

    Args:
        features: computes them, and keeps them.
        scale: by which a head's scores become logits.
        task: its losses are told in nats.
        classes: how many outputs the head has.
        noise: on sums over them, or on heads; None: there is none.
    """

    def __init__(
        self,
        features: FeatureCache,
        scale: float,
        task: Task,
        classes: int,
        noise: SumNoise | HeadNoise | None = None,
    ) -> None:
        self._features, self._scale, self._task = features, scale, task
        self.classes, self.noise = classes, noise
        self.fingerprint = features.fingerprint

    def rows(self, examples: Examples, weight: int = WEIGHT_STEPS) -> Rows:
        """Return a client's records, by which its sums are made."""
        rows = Rows(self._features.of(examples), examples.labels, weight)
        return self.noise.bounded(rows, self.classes) if self.noise else rows

    def sums(self, clients: Iterable[tuple[Examples, int]], d: int) -> Sums:
        """Return the sums over these clients' examples, each at its weight."""
        rows = (self.rows(*each) for each in clients)
        return sums_of(rows, d, self.classes)

    def mean(self, examples: Examples) -> Float64[Tensor, " d"]:
        """Return the mean of the features, in steps of the grid."""
        return self._features.of(examples).double().mean(dim=0)

    def losses(
        self, scores: Float[Tensor, "rows classes"], labels: Int64[Tensor, " rows"]
    ) -> Float[Tensor, " rows"]:
        """Return the loss of each record at these scores, in nats."""
        return self._task.losses(self._scale * scores, labels)


def params_of(theta: Float64[Tensor, "d classes"]) -> Params:
    """Return a head as the parameters of the model that it is the last layer of."""
    theta = theta.float()
    return {"head.weight": theta[:-1].T.contiguous(), "head.bias": theta[-1].clone()}


def width_of(model: Params) -> int:
    """Return d: how many features a head has, and its bias."""
    return model["head.weight"].shape[1] + 1
