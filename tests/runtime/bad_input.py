"""Bad input to a run, each with the error that must name it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from covey import ConfigError, DataError, ModelError


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1), nn.Linear(3, 2))


class Reader(nn.Module):
    """An embedding, attention that drops, and the mean over the words."""

    def __init__(self, words: int = 50) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 4)
        self.attend = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.attend(self.embed(ids)).mean(dim=1))


def points(clients: int = 5) -> dict[str, tuple[Tensor, Tensor]]:
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(clients, 10, 4, generator=draws)
    return {f"c{i}": (x, (x[:, 0] > 0).long()) for i, x in enumerate(inputs)}


def texts(clients: int = 4) -> dict[str, tuple[Tensor, Tensor]]:
    """Clients whose texts are of class 1 where word 7 stands in front."""
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(8, 50, (clients, 10, 5), generator=draws)
    labels = torch.arange(10) % 2
    ids[:, labels == 1, 0] = 7
    return {f"c{i}": (x, labels) for i, x in enumerate(ids)}


class Squeezes(nn.Module):
    """Forgets that a batch may have one example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs).squeeze()


class Raises(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        if len(input) > 2:
            raise IndexError("row 2")
        return super().forward(input)


class Detached(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input).detach()


class Held(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 2)
        self.lock = (each for each in ())


def failing() -> nn.Module:
    raise KeyError("weights")


def of(clients: Any = None, model: Any = net, **more: Any) -> dict[str, Any]:
    return {"model": model, "clients": points() if clients is None else clients, **more}


def one_left() -> dict[str, Any]:
    clients = points()
    clients["c4"] = (torch.randn(33, 4), torch.arange(33) % 2)  # 26 train: 25 and 1
    return clients


Bad = tuple[Callable[[], dict[str, Any]], type[Exception], str]
BAD: dict[str, Bad] = {
    "config": (lambda: of(config=3), ConfigError, "covey.Config or a dict"),
    "a path": (lambda: of(config="a.toml"), ConfigError, r"covey\.load_config"),
    "keys": (lambda: of(config={3: 4}), ConfigError, "names of settings as keys"),
    "key": (lambda: of(config={"train.rate": 4}), ConfigError, "train.rate"),
    "value": (lambda: of(config={"seed.x": 4, "seed": 1}), ConfigError, "seed twice"),
    "array": (
        lambda: of(config={"aggregation.name": np.ones(2)}),
        ConfigError,
        r"aggregation\.name",
    ),
    "a name": (lambda: of(model="mlp"), ModelError, r"found a str.*model\.name"),
    "no module": (lambda: of(model=lambda: 3), ModelError, "lambda.* returned a int"),
    "arguments": (lambda: of(model=nn.Linear), ModelError, "Linear raised TypeError"),
    "its error": (lambda: of(model=failing), ModelError, "failing raised KeyError"),
    "lazy": (lambda: of(model=nn.LazyLinear(2)), ModelError, "lazy layers"),
    "nothing to train": (
        lambda: of(model=nn.Sequential(nn.Linear(4, 2).requires_grad_(requires_grad=False))),
        ModelError,
        "none that requires",
    ),
    "outputs": (lambda: of(model=nn.Linear(4, 3)), ModelError, "2 outputs"),
    "inputs": (lambda: of(model=nn.Linear(5, 2)), ModelError, "Linear raised RuntimeError"),
    "later": (lambda: of(model=lambda: Raises(4, 2)), ModelError, "c0: .*Raises.*row 2"),
    "detached": (lambda: of(model=lambda: Detached(4, 2)), ModelError, "of c0: a step of training"),
    "squeezed": (
        lambda: of(one_left(), Squeezes),
        ModelError,
        r"1 examples of c4: .*Squeezes .* gave \(2,\)",
    ),
    "batch norm of one": (
        lambda: of(one_left(), lambda: nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))),
        ModelError,
        "1 examples of c4: .*BatchNorm.*met one of 1.*train.drop_last",
    ),
    "uncopied": (lambda: of(model=Held()), ModelError, "Held raised TypeError"),
    "ids for a layer": (
        lambda: of(texts(), lambda: nn.Linear(5, 2)),
        ModelError,
        "make them floating-point",
    ),
    "short embedding": (
        lambda: of(texts(), lambda: Reader(40)),
        ModelError,
        "of c[0-3]: .*IndexError.*Correct",
    ),
    "negative ids": (
        lambda: of([(torch.tensor([[1, 2], [-1, 0]]), [0, 1])], Reader),
        ModelError,
        "of client-00000: .*IndexError",
    ),
    "vmap and dropout": (
        lambda: of(texts(), Reader, config={"engine.name": "vmap"}),
        ModelError,
        "parallel engine",
    ),
    "task": (lambda: of({"ada": (torch.ones(4, 4), torch.ones(4))}), DataError, "ada: model.task"),
    "shapes": (
        lambda: of([points()["c0"], (torch.ones(4, 5), [0, 1, 0, 1])]),
        DataError,
        "must be of one kind",
    ),
    "no such threshold": (
        lambda: of(thresholds={"zoe": 0.5}),
        ConfigError,
        "'zoe'.*no such client.*'c0'",
    ),
    "threshold": (lambda: of(thresholds={"c0": 1.5}), ConfigError, "c0 a number in"),
    "text": (lambda: of(thresholds={"c0": "0.5"}), ConfigError, "c0 a number in"),
    "NaN": (lambda: of(risk_weights={"c0": np.nan}), ConfigError, "c0 a number in"),
    "one threshold": (lambda: of(thresholds=0.5), ConfigError, "dict of numbers"),
    "secret": (
        lambda: of(thresholds={"c0": 0.5}, config={"secrets.source": "os"}),
        ConfigError,
        r"population\.preferences",
    ),
}
