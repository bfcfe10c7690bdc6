"""A user's own functions, named as package.module:function."""

import numpy as np
import pytest
import torch

from covey import ConfigError, DataError, run

MODULE = """
import torch
from covey import AggregationResult, mean_per_cluster
from covey.data.examples import Examples

def first(inputs):
    return torch.zeros(len(inputs.losses), dtype=torch.int64)

def nobody(inputs):
    return torch.full((len(inputs.losses),), 9)

def frozen(clusters, updates, streams):
    list(updates)
    return AggregationResult(clusters)

def mean(clusters, updates, streams):
    return mean_per_cluster(clusters, updates, streams)

def hospitals():
    generator = torch.Generator().manual_seed(0)
    return {
        f"hospital-{i}": Examples(
            torch.randn(20, 4, generator=generator), torch.arange(20) % 2
        )
        for i in range(4)
    }

answer = 42
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_own_selection_decides(play, mine):
    result = play(method={"selection": f"{mine}:first", "initialisation": "random"})
    assert set(result.history.assignment.values()) == {0}
    assert [type(e).__name__ for _, e in result.history.notable][:2] == [
        "RiskUnknown",
        "ClusterAbandoned",
    ]


def test_a_selection_outside_the_offered_clusters_is_refused(play, mine):
    with pytest.raises(ConfigError, match="one offered cluster index per client"):
        play(method={"selection": f"{mine}:nobody", "initialisation": "random"})


def test_own_merge_decides(play, mine):
    still = play(aggregation={"name": f"{mine}:frozen"}, method={"name": "fedavg"})
    assert len({row.accuracy for row in still.history.rounds}) == 1
    same = play(aggregation={"name": f"{mine}:mean"})
    assert same.summary.model_hash == play().summary.model_hash


def test_own_data_by_a_function(play, mine):
    result = play(data={"name": f"{mine}:hospitals"}, rounds=2)
    assert sorted(result.names) == [f"hospital-{i}" for i in range(4)]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"initialisation": "groups"}, "to know every client's group"),
        ({"selection": "MINE:answer"}, "must name a class or a function, found a int"),
        ({"selection": "MINE:missing"}, "importing it failed"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    settings, mine, tmp_path, section, said
):
    named = {key: value.replace("MINE", mine) for key, value in section.items()}
    with pytest.raises(ConfigError, match=said):
        run(config=settings(data={"name": f"{mine}:hospitals"}, method=named), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("field", ["aggregation.name", "model.name", "train.optimizer"])
def test_a_misspelt_name_is_said_once(settings, mine, tmp_path, field):
    section, _, key = field.partition(".")
    own, data = f"{mine}:missing", {"name": f"{mine}:hospitals"}
    with pytest.raises(ConfigError) as refused:
        run(config=settings(data=data, **{section: {key: own}}), out=tmp_path / "run")
    assert str(refused.value).startswith(f"{field} = {own!r} must name a component")


def test_the_vmap_engine_trains_in_bfloat16_and_in_chunks(play):
    low = {"name": "vmap", "precision": "bfloat16", "chunk": 2}
    hashes = {
        play(engine=engine).summary.model_hash for engine in (low, {**low, "precision": "float32"})
    }
    assert len(hashes) == 2
    with pytest.raises(ConfigError, match=r"engine\.precision = 'bfloat16' is a setting of"):
        play(engine={"name": "reference", "precision": "bfloat16"})


def test_clients_of_different_shapes_are_refused(tmp_path):
    clients = [
        (torch.from_numpy(np.zeros((4, width), np.float32)), torch.arange(4) % 2)
        for width in (3, 5)
    ]
    with pytest.raises(DataError, match="must be of one kind"):
        run(clients=clients, out=tmp_path / "x")
