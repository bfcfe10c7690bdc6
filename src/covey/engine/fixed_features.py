"""Models of which a linear head alone is trained or solved: features are computed once."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Float64, Int16, Int64
from torch import Tensor, nn

from covey.base.names import Params
from covey.data.examples import Examples, to_floats
from covey.engine.protocol import Engine, EngineOver, Scored, ScoringJob, scored
from covey.engine.recipe import Task
from covey.models.ridge_sums import FEATURE_STEPS, Rows, Sums, feature_grid, sums_of

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

    def scored(self, head: Params, examples: Examples) -> Scored:
        """Return what a head answers on every example."""
        weight, bias = head["head.weight"], head["head.bias"]
        parts = self.features(examples)[:, :-1].split(CHUNK)
        outputs = self._scale * torch.cat(
            [part.float() / FEATURE_STEPS @ weight.T + bias for part in parts]
        )
        return scored(outputs, examples.labels, self._task)


class FixedFeatureEngine(EngineOver):
    """An engine that scores heads on features that were computed before; others train."""

    def __init__(self, engine: Engine, records: LocalRecords) -> None:
        super().__init__(engine)
        self._records = records

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        return [self._records.scored(job.params, job.examples) for job in jobs]


def params_of(theta: Float64[Tensor, "d classes"]) -> Params:
    """Return a head as the parameters of the model that it is the last layer of."""
    theta = theta.float()
    return {"head.weight": theta[:-1].T.contiguous(), "head.bias": theta[-1].clone()}


def width_of(model: Params) -> int:
    """Return d: how many features a head has, and its bias."""
    return model["head.weight"].shape[1] + 1
