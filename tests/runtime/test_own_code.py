"""What a user's own functions do wrong is told as theirs, by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from covey import ConfigError, CoveyError, DataError, ModelError, Run, load, run

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
    def played(**settings: Any) -> Run:
        given: dict[str, Any] = {"rounds": 1, "risk.name": "none"}
        start = {} if "method.name" in settings else {"method.initialisation": "random"}
        return run(net, clients(), given | start | settings, tmp_path / "run")

    return played


@pytest.mark.parametrize("name", BAD_SELECTIONS)
def test_a_bad_selection(name: str, mine: str, play: Callable[..., Run]):
    said = f"Your selection {mine}:{name} .*{BAD_SELECTIONS[name]}"
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        play(**{"method.selection": f"{mine}:{name}"})


@pytest.mark.parametrize("name", BAD_MERGES)
def test_a_bad_merge(name: str, mine: str, play: Callable[..., Run]):
    said = f"Your aggregation {mine}:{name} .*{BAD_MERGES[name]}"
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        play(**{"aggregation.name": f"{mine}:{name}"})


@pytest.mark.parametrize("what", BAD_COMBINED)
def test_a_bad_combined_update(what: str, mine: str, play: Callable[..., Run]):
    said = f"Combines.combined must .*{BAD_COMBINED[what]}.* Keep the names and shapes"
    with pytest.raises(ConfigError, match=f"(?s){said}"):
        play(**{"aggregation.name": f"{mine}:Combines", "aggregation.what": what})


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_of_a_function(name: str, mine: str, tmp_path: Path):
    said = f"{mine}:{name}.*{BAD_DATA[name]}"
    with pytest.raises(DataError, match=f"(?s){said}"):
        run(config={"data.name": f"{mine}:{name}"}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [("model_fails", "raised KeyError: 'layer'"), ("no_model", "must return an nn.Module")],
)
def test_a_bad_model_function(name: str, said: str, mine: str, tmp_path: Path):
    with pytest.raises(ModelError, match=f"{mine}:{name}.*{said}"):
        run(None, clients(), {"model.name": f"{mine}:{name}"}, tmp_path / "run")


def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: Any):
    (tmp_path / "half_written.py").write_text("def rule(inputs:\n")
    monkeypatch.syspath_prepend(tmp_path)
    for key in ("method.selection", "aggregation.name", "model.name", "data.name"):
        given = None if key == "data.name" else clients()
        settings = {"model.name": "linear", key: "half_written:rule"}
        with pytest.raises(CoveyError, match=r"half_written:rule'.*failed.*PYTHONPATH"):
            run(None, given, settings, tmp_path / "run")


def test_bad_attacks(mine: str, tmp_path: Path):
    draw = torch.Generator().manual_seed(0)
    many = {  # no record twice: on copies no attack is made
        name: (x.repeat(6, 1) + torch.rand(6 * len(x), 1, generator=draw), y.repeat(6))
        for name, (x, y) in clients().items()
    }
    settings = {"rounds": 1, "risk.name": "none", "method.name": "fedavg"}
    learns = {"train.local_epochs": 200, "train.learning_rate": 0.5}
    run(net, many, settings | learns, tmp_path / "run")
    for name, said in BAD_ATTACKS.items():
        with pytest.raises(ConfigError, match=f"(?s)attack {mine}:{name} .*{said}"):
            load(tmp_path / "run", net, many).audit([f"{mine}:{name}"], 2)


def test_a_function_may_return_tables_and_say_where_the_labels_are(
    mine: str, play: Callable[..., Run], tmp_path: Path
):
    settings = {
        "rounds": 1,
        "risk.name": "none",
        "model.name": "linear",
        "data": {"name": f"{mine}:frames", "label": "sick"},
    }
    result = run(config=settings, out=tmp_path / "run")
    assert sorted(result.names) == ["ada", "bob"]
    assert any("1 of 2 clients brought test" in n for n in result.summary.notes)


def test_a_diverged_run_is_not_blamed_on_the_merge(mine: str, play: Callable[..., Run]):
    infinite = {"train.learning_rate": 1e38, "method.name": "fedavg"}
    play(**{"aggregation.name": f"{mine}:good", **infinite, "train.local_epochs": 3})
