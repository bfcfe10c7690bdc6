"""A user's own functions, named as package.module:function; what they do wrong is said by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from covey import ConfigError, CoveyError, DataError, ModelError, Run, Signals, run
from covey.membership.audit import scored_by
from covey.runtime.auditing import named_attack

MODULE = """
import math
import torch
from torch import nn
from covey import AggregationResult as Result, ClusterwiseAggregation, mean_per_cluster

def short(inputs): return torch.zeros(1, dtype=torch.int64)
def far(inputs): return torch.full((len(inputs.losses),), 9)
def halves(inputs): return torch.full((len(inputs.losses),), 0.5)
def words(inputs): return ["first"] * len(inputs.losses)
def nothing(inputs): return None
def breaks(inputs): return {}["cluster"]
def two(inputs, more): return 3

def none(clusters, updates, streams): return None
def fewer(clusters, updates, streams): return Result(clusters[:1])
def renamed(clusters, updates, streams):
    return Result(tuple({"other": torch.zeros(1)} for _ in clusters))
def reshaped(clusters, updates, streams):
    return Result(tuple({k: v[..., None] for k, v in c.items()} for c in clusters))
def doubled(clusters, updates, streams):
    return Result(tuple({k: v.double() for k, v in c.items()} for c in clusters))
def nan(clusters, updates, streams):
    list(updates)
    return Result(tuple({k: v * math.nan for k, v in c.items()} for c in clusters))
def divides(clusters, updates, streams): return 1 / 0
def good(clusters, updates, streams):
    return mean_per_cluster(clusters, updates, streams)

class Combines(ClusterwiseAggregation):
    what: str

    def combined(self, updates):
        update = updates[0].update
        return {
            "nothing": {},
            "no_dict": [update],
            "more": {**update, "more": torch.zeros(())},
            "scalars": {name: torch.zeros(()) for name in update},
            "numbers": dict.fromkeys(update, 0.5),
        }[self.what]

def few(signals): return signals.labels[:1]
def infinite(signals): return signals.labels * math.nan
def texts(signals): return ["member"] * len(signals.labels)
def fails(signals): raise IndexError("no such class")

def empty(): return {}
def number(): return 3
def cut(): return {"ada": (torch.ones(4, 4), torch.ones(3))}
def unreadable(): raise FileNotFoundError("wards.csv")
def frames():
    import pandas
    frame = pandas.DataFrame({"a": [0.1, 0.2] * 6, "b": [0.3, 0.4] * 6, "sick": [0, 1] * 6})
    return {"ada": frame, "bob": (frame, frame[:4])}

def model_fails(): return {}["layer"]
def no_model(): return "mlp"

def first(inputs): return torch.zeros(len(inputs.losses), dtype=torch.int64)
def frozen(clusters, updates, streams):
    list(updates)
    return Result(clusters)
answer = 42
"""

BAD_SELECTIONS = {
    "short": r"4 integers out of \[0, 1\], found shape \(1,\)",
    "far": r"values \[9\]",
    "halves": "values of torch.float32",
    "words": "found a list",
    "nothing": "found a NoneType",
    "breaks": "raised KeyError: 'cluster' in .*, line \\d+. Correct",
    "two": "raised TypeError",
}
BAD_MERGES = {
    "none": "must return covey.AggregationResult, found a NoneType",
    "fewer": "must return 2 models, one per cluster, found 1",
    "renamed": r"expected shape \(3,\) for 0.bias, found nothing; .*; 2 more. Keep",
    "reshaped": r"expected shape \(3, 4\) for 0.weight, found shape \(3, 4, 1\)",
    "doubled": "found torch.float64 instead of torch.float32",
    "nan": "not finite out of updates that are",
    "divides": "raised ZeroDivisionError: division by zero in .*, line \\d+. Correct",
}
BAD_COMBINED = {
    "nothing": r"shape \(3,\) for 0.bias, found nothing; .* for 1.bias, found nothing",
    "no_dict": "expected tensors by name, found a list",
    "more": r"expected nothing for more, found shape \(\)",
    "scalars": r"shape \(3, 4\) for 0.weight, found shape \(\)",
    "numbers": "found a float",
}
BAD_ATTACKS = {
    "few": r"one finite score per record, shape \(\d+,\), found shape \(1,\)",
    "infinite": "0 of them finite",
    "texts": "found a list",
    "fails": "raised IndexError: no such class in .*, line \\d+. Correct",
}
BAD_DATA = {
    "empty": "at least one client",
    "number": "found a int",
    "cut": "ada must bring .* as many labels",
    "unreadable": "raised FileNotFoundError: wards.csv in .*, line \\d+. Correct",
    "frames": "ada .* data.label",
}
BAD_MODELS = {"model_fails": "raised KeyError: 'layer'", "no_model": "must return an nn.Module"}


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def clients() -> dict[str, Any]:
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 10, 4, generator=draws)
    return {f"c{i}": (x, (x[:, 0] > 0).long()) for i, x in enumerate(inputs)}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Run]:
    def played(given: Any = None, model: Any = net, **settings: Any) -> Run:
        plain: dict[str, Any] = {"rounds": 1, "risk.name": "none"}
        start = {} if "method.name" in settings else {"method.initialisation": "random"}
        return run(model, given or clients(), plain | start | settings, tmp_path / "run")

    return played


def cases() -> list[tuple[str, str, str]]:
    """Every function that does wrong: its setting, its name, and what is said of it."""
    kinds = {"method.selection": BAD_SELECTIONS, "aggregation.name": BAD_MERGES}
    return [(key, name, said) for key, bad in kinds.items() for name, said in bad.items()]


@pytest.mark.parametrize(("key", "name", "said"), cases())
def test_a_bad_selection_or_aggregation(key: str, name: str, said: str, mine: str, play):
    what = "selection" if key == "method.selection" else "aggregation"
    with pytest.raises(ConfigError, match=f"(?s)Your {what} {mine}:{name} .*{said}"):
        play(**{key: f"{mine}:{name}"})


@pytest.mark.parametrize("what", BAD_COMBINED)
def test_a_bad_combined_update(what: str, mine: str, play: Callable[..., Run]):
    said = f"Combines.combined must .*{BAD_COMBINED[what]}.* Keep the names and shapes"
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        play(**{"aggregation.name": f"{mine}:Combines", "aggregation.what": what})


@pytest.mark.parametrize("name", [*BAD_DATA, *BAD_MODELS])
def test_bad_data_or_a_bad_model_of_a_function(name: str, mine: str, play, tmp_path: Path):
    of_data = name in BAD_DATA
    kind, said = (DataError, BAD_DATA[name]) if of_data else (ModelError, BAD_MODELS[name])
    config, given = {"model.name": f"{mine}:{name}"}, clients()
    if of_data:
        config, given = {"data.name": f"{mine}:{name}"}, None
    with pytest.raises(kind, match=f"(?s){mine}:{name}.*{said}"):
        run(None, given, config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", BAD_ATTACKS)
def test_a_bad_attack(name: str, mine: str):
    draw = np.random.default_rng(0)
    inside = np.ones((9, 2), dtype=bool)
    seen = Signals(np.arange(9) % 3, draw.normal(size=(9, 3)), draw.normal(size=(9, 2, 3)), inside)
    own = f"{mine}:{name}"
    with pytest.raises(ConfigError, match=f"(?s)attack {own} .*{BAD_ATTACKS[name]}"):
        scored_by(own, named_attack(own)[1], seen)


KEYS = ("method.selection", "aggregation.name", "model.name", "data.name", "train.optimizer")


def test_a_module_or_a_name_that_cannot_be_imported(mine: str, tmp_path: Path, play):
    (tmp_path / "half_written.py").write_text("def rule(inputs:\n")
    for key in KEYS[:-1]:
        settings = {"model.name": "linear", key: "half_written:rule"}
        with pytest.raises(CoveyError, match=r"half_written:rule'.*failed.*PYTHONPATH"):
            run(None, None if key == "data.name" else clients(), settings, tmp_path / "run")
    for key in ("aggregation.name", "model.name", "train.optimizer"):
        own = f"{mine}:missing"
        with pytest.raises(ConfigError) as refused:
            play(model=None, **{"model.name": "linear", key: own})
        # once, though many parts ask for it
        assert str(refused.value).startswith(f"{key} = {own!r} must name a component")
    with pytest.raises(ConfigError, match="must name a class or a function, found a int"):
        play(**{"method.selection": f"{mine}:answer"})
    with pytest.raises(ConfigError, match="to know every client's group"):
        play(**{"method.name": "ifca-mir", "method.initialisation": "groups"})
    assert not (tmp_path / "run").exists()


def test_a_function_may_return_tables_and_say_where_the_labels_are(mine: str, tmp_path: Path):
    settings = {
        "rounds": 1,
        "risk.name": "none",
        "model.name": "linear",
        "data": {"name": f"{mine}:frames", "label": "sick"},
    }
    result = run(config=settings, out=tmp_path / "run")
    assert sorted(result.names) == ["ada", "bob"]
    assert any("1 of 2 clients have test" in n for n in result.summary.notes)


def test_a_diverged_run_is_not_blamed_on_the_aggregation(mine: str, play: Callable[..., Run]):
    infinite = {"train.learning_rate": 1e38, "method.name": "fedavg"}
    play(**{"aggregation.name": f"{mine}:good", **infinite, "train.local_epochs": 3})


def test_own_selection_and_aggregation_decide(mine: str, tmp_path: Path):
    def played(name: str, **settings: Any) -> Run:
        risk = {"name": "federated", "every": 1}
        more = {"rounds": 2, "risk": risk, **settings}
        return run(net, clients(), more, tmp_path / name)

    start = {"initialisation": "random"}
    chosen = played("chosen", method={"selection": f"{mine}:first", **start}).history
    assert set(chosen.assignment.values()) == {0}
    kinds = [type(e).__name__ for _, e in chosen.notable]
    assert kinds[:2] == ["RiskUnknown", "ClusterAbandoned"]
    fedavg = {"name": "fedavg"}
    still = played("still", aggregation={"name": f"{mine}:frozen"}, method=fedavg)
    assert len({row.accuracy for row in still.history.rounds}) == 1
    same = played("same", aggregation={"name": f"{mine}:good"}, method=fedavg)
    plain = played("plain", method=fedavg)
    assert same.summary.model_hash == plain.summary.model_hash != still.summary.model_hash
