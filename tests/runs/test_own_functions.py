"""A user's own functions, named as package.module:function; what they do wrong is said by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from covey import ConfigError, CoveyError, DataError, ModelError, Signals, run
from covey.membership.audit import scored_by
from covey.runs.auditing import named_attack

MODULE = """
import math
import torch
from covey import AggregationResult as Result, ClusterwiseAggregation

def far(inputs): return torch.full((len(inputs.losses),), 9)
def nothing(inputs): return None
def breaks(inputs): return {}["cluster"]

def fewer(clusters, updates, streams): return Result(clusters[:1])
def reshaped(clusters, updates, streams):
    return Result(tuple({k: v[..., None] for k, v in c.items()} for c in clusters))
def nan(clusters, updates, streams):
    list(updates)
    return Result(tuple({k: v * math.nan for k, v in c.items()} for c in clusters))

class Combines(ClusterwiseAggregation):
    what: str

    def combined(self, updates):
        update = updates[0].update
        scalars = {name: torch.zeros(()) for name in update}
        return {"list": [update], "scalars": scalars}[self.what]

def few(signals): return signals.labels[:1]
def fails(signals): raise IndexError("no such class")
def writes(signals): signals.target[:] = 0

def empty(): return {}
def number(): return 3
def unreadable(): raise FileNotFoundError("wards.csv")

def model_fails(): return {}["layer"]
def no_model(): return "mlp"
answer = 42
"""
SELECTION, OPTIMIZER = "method.selection", "train.optimizer"
AGGREGATION, WHAT = "aggregation.name", "aggregation.what"
DATA, MODEL = "data.name", "model.name"
BAD: list[tuple[dict[str, str], type[CoveyError], str]] = [
    ({SELECTION: "far"}, ConfigError, r"Your selection mine:far .*values \[9\]"),
    ({SELECTION: "nothing"}, ConfigError, "Your selection mine:nothing .*found a NoneType"),
    ({SELECTION: "breaks"}, ConfigError, r"raised KeyError: 'cluster' in .*, line \d+: correct"),
    ({SELECTION: "answer"}, ConfigError, "must be a class or function, found int"),
    ({AGGREGATION: "fewer"}, ConfigError, "Your aggregation mine:fewer must return 2 models"),
    ({AGGREGATION: "reshaped"}, ConfigError, r"shape \(3, 4\) for .*, found shape \(3, 4, 1\)"),
    ({AGGREGATION: "nan"}, ConfigError, "must make finite values"),
    ({AGGREGATION: "Combines", WHAT: "list"}, ConfigError, "tensors by name, found a list"),
    ({AGGREGATION: "Combines", WHAT: "scalars"}, ConfigError, r"0.weight, found shape \(\)"),
    (
        {AGGREGATION: "missing"},
        ConfigError,
        "^aggregation.name must name what .* found 'mine:missing'",
    ),
    (
        {OPTIMIZER: "missing"},
        ConfigError,
        "^train.optimizer must name what .* found 'mine:missing'",
    ),
    ({DATA: "empty"}, DataError, "mine:empty.*at least one client"),
    ({DATA: "number"}, DataError, "mine:number.*found a int"),
    ({DATA: "unreadable"}, DataError, r"raised FileNotFoundError: wards.csv in .*, line \d+."),
    ({MODEL: "model_fails"}, ModelError, "mine:model_fails.*raised KeyError: 'layer'"),
    ({MODEL: "no_model"}, ModelError, "mine:no_model.*must return an nn.Module"),
]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def clients() -> dict[str, Any]:
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 10, 4, generator=draws)
    return {f"c{i}": (x, (x[:, 0] > 0).long()) for i, x in enumerate(inputs)}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "half_written.py").write_text("def rule(inputs:\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def play(out: Path, **settings: Any) -> None:
    model, given = settings.get(MODEL), settings.get(DATA)
    plain = {"rounds": 1, "risk.name": "none", "method.initialisation": "random"}
    run(None if model else net, None if given else clients(), plain | settings, out)


@pytest.mark.parametrize(("parts", "error", "said"), BAD)
def test_what_a_function_does_wrong_is_said_by_its_name(
    parts: dict[str, str], error: type[CoveyError], said: str, module: str, tmp_path: Path
):
    own = {key: name if key == WHAT else f"{module}:{name}" for key, name in parts.items()}
    if DATA in parts:
        own |= {MODEL: "linear"}
    with pytest.raises(error, match=f"(?s){said.replace('mine', module)}"):
        play(tmp_path / "run", **own)


@pytest.mark.parametrize("key", [SELECTION, AGGREGATION, MODEL, DATA])
def test_a_module_that_cannot_be_imported_is_said(key: str, module: str, tmp_path: Path):
    with pytest.raises(CoveyError, match=r"half_written:rule' .*PYTHONPATH"):
        play(tmp_path / "run", **{MODEL: "linear", key: "half_written:rule"})
    assert not (tmp_path / "run").exists()


def test_a_bad_attack(module: str):
    draw = np.random.default_rng(0)
    inside = np.ones((9, 2), dtype=bool)
    seen = Signals(np.arange(9) % 3, draw.normal(size=(9, 3)), draw.normal(size=(9, 2, 3)), inside)
    mistakes = {
        "few": r"\(9,\), found \(1,\)",
        "fails": "raised IndexErr",
        "writes": "raised ValueError: .*read-only",
    }
    for name, said in mistakes.items():
        own = f"{module}:{name}"
        with pytest.raises(ConfigError, match=f"(?s)attack {own} .*{said}"):
            scored_by(own, named_attack(own)[1], seen)
