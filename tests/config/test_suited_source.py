"""Who measures the risk where the settings name nobody."""

import tomllib
from typing import Any

import pytest

import covey
from covey.algorithms.solved import Solved
from covey.config import Config, that_matter

SOLVED: dict[str, Any] = {
    "model": {"name": "linear-head"},
    "method": {"name": "solved", "num_clusters": 1},
}
OWN, USUAL = "leave-one-out", "federated"
NOISE = {"record_clip": 1.0, "record_noise": 1.0}


@pytest.mark.parametrize(
    ("sections", "source"),
    [
        ({}, OWN),
        ({"redteam": {"every": 1}}, OWN),
        ({"population": {"holdout": 0.0}}, OWN),
        ({"redteam": {"source": USUAL}}, USUAL),
        ({"redteam": {"source": "none"}}, "none"),
        ({"engine": {"name": "flower"}}, USUAL),
        ({"privacy": NOISE}, USUAL),
        ({"privacy": {"client_clip": 0.3, "client_noise": 1.0}}, USUAL),
        ({"privacy": {"secure_sums": True}}, USUAL),
        ({"method": {"name": "ifca"}}, USUAL),
        ({"method": {"name": "my.own:Method"}}, USUAL),
    ],
    ids=str,
)
def test_it_is_what_suits_the_algorithm_and_works(
    sections: dict[str, Any], source: str
):
    settings = {**SOLVED, **sections}
    assert Config.of(settings).redteam.source == source
    assert Config.model_validate(settings).redteam.source == source
    assert Config.problems(settings) == ()


def test_an_algorithm_that_a_program_passes_is_asked_as_well():
    config = Config(method=Solved(num_clusters=1))
    assert config.redteam.source == OWN


def test_it_is_written_out_and_means_what_it_means_when_it_is_set():
    config = Config.of(SOLVED)
    named = Config.of({**SOLVED, "redteam": {"source": OWN}})
    written = tomllib.loads(config.toml())
    assert written["redteam"]["source"] == OWN
    assert config == named == Config.of(written) == Config.recorded(written)
    assert that_matter(config) == that_matter(named)
    assert that_matter(config)["redteam.source"] == OWN


def test_a_run_that_was_recorded_keeps_what_it_had():
    recorded = tomllib.loads(Config.of(SOLVED).toml())
    recorded["redteam"]["source"] = USUAL
    assert Config.recorded(recorded).redteam.source == USUAL
    assert "redteam.source" not in that_matter(Config.recorded(recorded))
    del recorded["redteam"]
    assert Config.recorded(recorded).redteam.source == USUAL


@pytest.mark.parametrize(
    ("named", "source"),
    [({"method": "fedavg"}, USUAL), ({"engine": "flower"}, USUAL), ({}, OWN)],
    ids=str,
)
def test_it_is_found_anew_for_other_components(named: dict[str, str], source: str):
    unset, every = Config.of(SOLVED), {"redteam": {"every": 2}}
    assert unset.naming(**named).redteam.source == source
    kept = Config.of({**SOLVED, **every}).naming(**named)
    assert (kept.redteam.source, kept.redteam.every) == (source, 2)
    client = Config.of({**SOLVED, "redteam": {"source": "client"}})
    assert client.naming(**named).redteam.source == "client"


def test_a_run_measures_by_it(tmp_path):
    small = {
        "rounds": 2,
        "population": {"clients": 6, "examples_per_client": 20, "audit_examples": 50},
        "model": {
            "name": "linear-head",
            "options": {"feature_options": {"filters": 4}},
        },
        "redteam": {"every": 1},
    }
    made = covey.run(config=Config.of({**SOLVED, **small}), out=tmp_path / "run")
    found = [risk for each in made.history.rounds for risk in each.risks if risk]
    assert {each.source for each in found} == {OWN}
    assert f'source = "{OWN}"' in (made.folder / "config.toml").read_text()
