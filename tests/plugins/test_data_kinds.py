"""A user's data source, data set, shift, partition, model and engine, each in one file."""

import tomllib
from pathlib import Path

import pytest

import covey
from plugins.data_hospitals import Hospitals
from plugins.data_stripes import Stripes
from plugins.engine_single import Counting, Single
from plugins.model_wide import TwoLayers, two_layers
from plugins.partition_shards import Shards
from plugins.shift_contrast import NoisyContrast

SMALL = """
rounds = 2
[population]
clients = 6
examples_per_client = 20
audit_examples = 40
[model]
name = "mlp"
[engine]
name = "reference"
"""
SIMULATED = {"clients": 6, "examples_per_client": 20, "audit_examples": 40}
CASES = {
    "data": (
        '[data]\nname = "plugins.data_hospitals:Hospitals"\nhospitals = 6\nagreement = -1.0',
        {"data": Hospitals(hospitals=6, agreement=-1.0)},
    ),
    "data set": (
        '[data]\nname = "plugins.data_stripes:Stripes"\ncontrast = 60',
        {"data": Stripes(contrast=60)},
    ),
    "shift": (
        '[population]\nshift = {name = "plugins.shift_contrast:NoisyContrast", noise = 5.0}\n'
        "minority = [0.4, 0.6]\nmajority = [0.9, 1.1]",
        {
            "population": {
                "shift": NoisyContrast(noise=5.0),
                "minority": (0.4, 0.6),
                "majority": (0.9, 1.1),
            }
        },
    ),
    "partition": (
        "[population]\npartition = "
        '{name = "plugins.partition_shards:Shards", shards_per_client = 3}',
        {"population": {"partition": Shards(shards_per_client=3)}},
    ),
    "model": (
        '[model]\nname = "plugins.model_wide:TwoLayers"\nwidth = 24\ndropout = 0.5',
        {"model": TwoLayers(width=24, dropout=0.5)},
    ),
    "engine": (
        '[engine]\nname = "plugins.engine_single:Single"\nmost = 2',
        {"engine": Single(most=2)},
    ),
}


def merged(base, other):
    return {
        key: {**base.get(key, {}), **value} if isinstance(value, dict) else value
        for key, value in {**base, **other}.items()
    }


def of_objects(parts) -> covey.Config:
    base = tomllib.loads(SMALL)
    return covey.Config.of(merged(base, parts))


@pytest.mark.parametrize("name", CASES)
def test_it_runs_from_a_file_and_as_an_object_to_the_same_models(tmp_path: Path, name: str):
    text, parts = CASES[name]
    settings = merged(tomllib.loads(SMALL), tomllib.loads(text))
    from_file = covey.Config.of(settings)
    assert from_file == of_objects(parts)
    first = covey.run(config=from_file, out=tmp_path / "file")
    second = covey.run(config=of_objects(parts), out=tmp_path / "object")
    assert first.summary.model_hash == second.summary.model_hash
    stored = (tmp_path / "object" / "config.toml").read_text()
    assert covey.load_config(tmp_path / "object" / "config.toml") == from_file
    assert "plugins." in stored


@pytest.mark.parametrize("name", ["data", "shift", "partition"])
def test_a_run_that_was_stopped_ends_with_the_same_models(tmp_path: Path, name: str):
    config = of_objects(CASES[name][1])
    whole = covey.run(config=config, out=tmp_path / "whole")

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        covey.run(config=config, out=tmp_path / "stopped", observe=stop)
    resumed = covey.resume(tmp_path / "stopped")
    assert resumed.summary.model_hash == whole.summary.model_hash


def test_the_options_of_a_source_change_its_data(tmp_path: Path):
    runs = [
        covey.run(config=of_objects({"data": data}), out=tmp_path / str(index))
        for index, data in enumerate((Hospitals(), Hospitals(agreement=0.5)))
    ]
    hashes = {run.history.started.data_hash for run in runs if run.history.started}
    assert len(hashes) == 2


def test_a_sources_groups_are_known_and_judged(tmp_path: Path):
    settings = {
        "data": Hospitals(agreement=-1.0),
        "method": {"initialisation": "groups"},
        "rounds": 6,
    }
    run = covey.run(config=of_objects(settings), out=tmp_path / "run")
    last = run.history.rounds[-1]
    assert set(last.accuracy_by_group) == {"north", "south"}
    assert last.accuracy is not None
    assert last.accuracy > 0.6


def test_options_that_do_not_exist_are_refused_with_those_that_do(tmp_path: Path):
    wrong = of_objects({"data": {"name": "plugins.data_hospitals:Hospitals"}})
    settings = wrong.model_dump()
    settings["data"]["beds"] = 3
    with pytest.raises(covey.ConfigError, match=r"data\.beds"):
        covey.run(config=covey.Config.of(settings), out=tmp_path / "run")


def test_a_function_takes_its_options_as_keywords(tmp_path: Path):
    named = {"name": "plugins.model_wide:two_layers", "width": 24}
    run = covey.run(config=of_objects({"model": named}), out=tmp_path / "function")
    same = covey.run(config=of_objects({"model": TwoLayers(width=24)}), out=tmp_path / "component")
    assert run.summary.model_hash == same.summary.model_hash
    assert list(two_layers((4,), 3).children())[1].in_features == 4


def test_the_engine_is_asked(tmp_path: Path):
    before = Counting.trained
    covey.run(config=of_objects({"engine": Single()}), out=tmp_path / "run")
    assert Counting.trained > before


def test_a_partition_that_deals_twice_is_refused(tmp_path: Path):
    settings = of_objects({"population": {"partition": Greedy()}})
    with pytest.raises(covey.DataError, match="no card twice"):
        covey.run(config=settings, out=tmp_path / "run")


class Greedy(covey.Partition):
    """Deals everybody the same cards."""

    def deal(self, source, cards, sizes, generator):
        return [cards[:size] for size in sizes]
