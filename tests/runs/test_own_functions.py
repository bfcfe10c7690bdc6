"""A user's own functions, parts and estimators: known by their source, refused by name."""

import linecache
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import covey
from covey import ConfigError, CoveyError, DataError, ModelError, Signals, run
from covey.base import component_names as names
from covey.base.events import RiskMeasured, RiskUnknown
from covey.membership.audit import scored_by
from covey.runs.auditing import named_attack
from plugins.risk_confidence import ConfidenceGap
from support.runs import small

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
    model, data = settings.get(MODEL), settings.get(DATA)
    plain = {"rounds": 1, "risk.name": "none", "method.initialisation": "random"}
    run(None if model else net, None if data else clients(), plain | settings, out)


@pytest.mark.parametrize(("parts", "error", "said"), BAD)
def test_what_a_function_does_wrong_is_said_by_its_name(parts, error, said, module, tmp_path):
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


CELL = """
import torch
import covey

LARGEST = 4.0

def bounded(losses):
    return losses.clamp(max=LARGEST)

class Bounded(covey.Loss):
    share: float = 1.0

    def losses(self, outputs, labels):
        plain = torch.nn.functional.cross_entropy(outputs, labels, reduction="none")
        return self.share * bounded(plain)

class Half(covey.Algorithm):
    def round(self, state, clients, streams):
        everybody = clients.all_in_one("shared")
        return clients.train_and_aggregate(state, everybody, streams)
"""
TINY = small(
    rounds=3, population={"clients": 4}, method={"name": "ifca-mir", "initialisation": "random"}
)
numbers = count(1)


def cell(text: str = CELL) -> dict[str, Any]:
    """Run a notebook's cell, of whose text alone the interpreter keeps the lines."""
    name = f"<cell {next(numbers)}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), made)  # noqa: S102
    return made


def settings(made: dict[str, Any], **options: Any) -> dict[str, Any]:
    return TINY | {"train.loss": made["Bounded"](**options), "method": made["Half"]()}


@pytest.fixture
def new_process() -> Callable[[], None]:
    """Forget what was passed, as a process does that ends."""

    def forget() -> None:
        names.passed.clear()

    forget()
    return forget


def stopped(folder: Path, config: dict[str, Any]) -> None:
    calls = iter(range(2))

    def observe(_: object) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        covey.run(config=config, out=folder, observe=observe)


@pytest.mark.usefixtures("new_process")
@pytest.mark.slow
def test_parts_are_passed_again_as_they_were_to_run(tmp_path, new_process):
    whole = covey.run(config=settings(cell()), out=tmp_path / "whole")
    stopped(tmp_path / "cut", settings(cell()))
    new_process()
    said = r"run's config must come from .* covey\.load\(.*, config=\.\.\.\)\.resume"
    with pytest.raises(covey.RunError, match=said):
        covey.resume(tmp_path / "cut")
    again = covey.resume(tmp_path / "cut", config=settings(cell()))
    assert again.history == whole.history
    new_process()
    run = covey.load(tmp_path / "cut", config=settings(cell()))
    assert run.forget(min(run.names), answer="retrain", basis="erasure")
    new_process()
    assert covey.load(tmp_path / "cut").report().is_file()


@pytest.mark.usefixtures("new_process")
@pytest.mark.parametrize(
    ("before", "after"),
    [("clamp(max", "clamp(min=0, max"), ("4.0", "5.0")],
    ids=["a function of its cell", "a number of its cell"],
)
def test_a_part_with_another_source_is_refused(before, after, tmp_path, new_process):
    stopped(tmp_path / "run", settings(cell()))
    other = cell(CELL.replace(before, after))
    said = r"The source of train\.loss must be what began"
    for between in (lambda: None, new_process):
        between()
        with pytest.raises(covey.RunError, match=said):
            covey.resume(tmp_path / "run", config=settings(other))
    said = r"train\.loss must be the part that began .*python:Bounded .*'share': 0\.5"
    with pytest.raises(covey.RunError, match=said):
        covey.resume(tmp_path / "run", config=settings(cell(), share=0.5))
    more = cell(f"# a thought\n{CELL}\nprint(LARGEST)\n")
    assert covey.resume(tmp_path / "run", config=settings(more)).history.finished


MEASURED = {
    "rounds": 3,
    "population.clients": 6,
    "population.examples_per_client": 25,
    "population.audit_examples": 40,
    "model.name": "mlp",
    "engine.name": "reference",
    "method.selection": "threshold",
    "method.initialisation": "random",
    "risk.every": 1,
}


def measured(run: covey.Run) -> list[RiskMeasured]:
    return list(run.history.measured)


class Wrong(covey.RiskEstimator):
    """Returns what its option says."""

    what: str = "nothing"
    on_clients: ClassVar[bool] = False

    def estimate(self, target: Any, context: Any, streams: Any) -> Any:
        if self.what == "raises":
            raise ValueError("no luck")
        return {
            "nothing": None,
            "far": covey.RiskEstimate(covey.Figure(1.5, 0.1)),
            "error": covey.RiskEstimate(covey.Figure(0.5, float("inf"))),
        }[self.what]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing", "must return a covey.RiskEstimate.* found None"),
        ("far", "a risk from 0 to 1"),
        ("error", "found 0.5 with inf"),
        ("raises", "raised ValueError: no luck"),
    ],
)
def test_what_nobody_can_act_on_is_refused(tmp_path: Path, what: str, said: str):
    with pytest.raises(covey.ConfigError, match=said):
        covey.run(config=MEASURED | {"risk.name": Wrong(what=what)}, out=tmp_path / "run")


class OnClients(ConfidenceGap):
    """The same, which every client measures for itself."""

    on_clients: ClassVar[bool] = True


@pytest.mark.slow
def test_clients_may_measure_with_it_and_report_to_nobody(tmp_path: Path):
    config = MEASURED | {"population.examples_per_client": 80, "risk.name": OnClients(fewest=5)}
    run = covey.run(config=config, out=tmp_path / "run")
    assert measured(run) == []
    unknown = [isinstance(event, RiskUnknown) for event in run.history.all_events]
    assert sum(unknown) == 1  # before the first choice
