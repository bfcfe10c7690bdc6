"""The documented settings, and all mistakes of a file at once, in one clear sentence each."""

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from covey import Config, ConfigError, load_config
from covey.settings.load import that_matter


def problems_of(settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [asdict(problem) for problem in Config.problems(settings)]


def only(settings: dict[str, Any]) -> dict[str, Any]:
    (problem,) = problems_of(settings)
    return problem


def test_every_mistake_of_a_file_is_reported_at_once():
    wrong = {
        "rounds": "10",
        "train": {"learning_rate": True, "lerning_rate": 0.1},
        "method": {"name": "ifca_mir"},
        "aggregation": {"name": "krumm"},
        "populaton": {"clients": 3},
        "population": {"minority": [25, 0]},
    }
    problems = problems_of(wrong)
    assert {problem["key"] for problem in problems} == {
        "rounds",
        "train.learning_rate",
        "train.lerning_rate",
        "method.name",
        "aggregation.name",
        "populaton",
        "population.minority",
    }
    with pytest.raises(ConfigError) as refused:
        Config.of(wrong)
    heading, *lines = str(refused.value).splitlines()
    assert heading == "7 mistakes in the settings:"
    assert lines == [f"- {problem['message']}" for problem in problems]


@pytest.mark.parametrize(
    ("settings", "key", "meant"),
    [
        ({"train": {"lerning_rate": 1}}, "train.lerning_rate", "train.learning_rate"),
        ({"learning_rate": 1}, "learning_rate", "train.learning_rate"),
        ({"method": {"name": "ifca_mir"}}, "method.name", "ifca-mir"),
        ({"rounds": "10"}, "rounds", "10"),
        ({"train": {"learning_rate": "1e-2"}}, "train.learning_rate", "0.01"),
        ({"colour": 1}, "colour", None),
        (
            {"method": {"selection": {"name": "plugins.cautious:Cautious", "margn": 0.1}}},
            *("method.selection.margn", "method.selection.margin"),
        ),
    ],
)
def test_what_was_probably_meant_is_asked_for(settings, key, meant):
    problem = only(settings)
    assert (problem["key"], problem["did_you_mean"]) == (key, meant)
    assert ("do you mean" in problem["message"]) == (meant is not None)
    assert meant is None or meant in problem["message"]


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        (None, "rounds", 10.0),
        ("train", "learning_rate", True),
        ("privacy", "secure_sums", "yes"),
        ("population", "thresholds", [0.5, "0.8"]),
    ],
)
def test_a_value_of_another_type_is_refused(section, name, value):
    settings = {section: {name: value}} if section else {name: value}
    for problem in problems_of(settings):
        assert problem["key"].startswith(f"{section}.{name}" if section else name)
        assert problem["expected"]
    assert problems_of(settings)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=4,
)
NAMES = st.sampled_from(sorted(Config.model_fields)) | st.text(max_size=5)
KEYS = st.sampled_from(["name", "groups", "minority", "pooling", "rounds", "noise", "clients"])


@given(st.dictionaries(NAMES, ANYTHING | st.dictionaries(KEYS, ANYTHING, max_size=3)))
@example({"tracking": {}})
@example({"tracking": [None, "0"]})
@example({"method": 0, "aggregation": []})
def test_whatever_is_given_is_a_config_or_a_list_of_mistakes(settings):
    problems = Config.problems(settings)
    if not problems:
        Config.of(settings)
        return
    with pytest.raises(ConfigError) as refused:
        Config.of(settings)
    for problem in problems:
        assert problem.message in str(refused.value)
        assert problem.message.endswith((".", "?"))


CHANGED = """
seed = 7
rounds = 3
[population]
shift = "brightness"
holdout = 0.25
thresholds = [0.55, 0.7]
risk_weight = 0.25
exclude = ["client-00001"]
[[population.groups]]
share = 0.2
shift = [0.2, 0.4]
examples_per_client = 50
[[population.groups]]
share = 0.8
shift = [0.9, 1.2]
examples_per_client = 250
[model]
name = "plugins.model_wide:two_layers"
width = 8
[method]
selection = {name = "plugins.cautious:Cautious", margin = 0.1}
initialisation = "groups"
[risk]
name = "none"
"""


@pytest.mark.parametrize("text", ["", CHANGED])
def test_toml_gives_the_same_config_again(text: str, tmp_path: Path):
    config = Config.of(tomllib.loads(text))
    assert Config.of(tomllib.loads(config.toml())) == config
    path = tmp_path / "config.toml"
    path.write_text(config.toml(), encoding="utf-8")
    assert load_config(path) == config


@given(
    st.fixed_dictionaries(
        {
            "seed": st.integers(0, 2**63 - 1),
            "rounds": st.integers(1, 1000),
            "train": st.fixed_dictionaries(
                {
                    "learning_rate": st.floats(1e-9, 1e9),
                    "participation": st.floats(1e-9, 1),
                    "optimizer": st.fixed_dictionaries(
                        {"momentum": st.floats(0, 1, exclude_max=True)}
                    ),
                }
            ),
            "data": st.fixed_dictionaries({"dir": st.text(max_size=9)}),
            "population": st.fixed_dictionaries(
                {
                    "exclude": st.lists(st.text(max_size=9), max_size=3),
                    "risk_weight": st.just("from-threshold") | st.floats(0, 1),
                }
            ),
        }
    )
)
def test_any_valid_settings_survive_toml(settings: dict[str, Any]):
    config = Config.of(settings)
    assert Config.of(tomllib.loads(config.toml())) == config


@pytest.mark.parametrize(
    ("pairs", "changed"),
    [
        (["train.local_epochs=5"], {"train": {"local_epochs": 5}}),
        (["seed=3", " rounds = 9 "], {"seed": 3, "rounds": 9}),
        (["method.name=ifca"], {"method": {"name": "ifca"}}),
        (['method.name="ifca"'], {"method": {"name": "ifca"}}),
        (["population.thresholds=[0.6, 0.6]"], {"population": {"thresholds": [0.6] * 2}}),
        (["population.risk_weight=0.5"], {"population": {"risk_weight": 0.5}}),
        (["data.dir=/a=b"], {"data": {"dir": "/a=b"}}),
        (["seed=1", "seed=2"], {"seed": 2}),
    ],
)
def test_settings_can_be_set_one_by_one(pairs: list[str], changed: dict[str, Any]):
    assert load_config(None, pairs) == Config.of(changed)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"population": {"groups": [{"share": 1, "shfit": [0, 1]}]}}, ("population.groups.0",)),
        ({"rounds": 0}, ("rounds must be", "greater than 0, found 0", "change")),
        ({"train": 3}, ("train must be", "found 3", "change")),
        (
            {"train": {"learning_rate": float("nan")}},
            ("train.learning_rate must be", "found nan", "change"),
        ),
        ({"population": {"minority": [25, 0]}}, ("population.minority", "[25.0, 0.0]", "swap")),
        (
            {"population": {"thresholds": [0.5, 8]}},
            ("population.thresholds.1 must be", "less than or equal to 1, found 8"),
        ),
        (
            {"population": {"partition": {"name": "dirichlet", "alpha": 0}}},
            ("population.partition.alpha must be", "greater than 0, found 0"),
        ),
    ],
)
def test_what_is_unknown_or_impossible_is_refused_by_key_value_and_remedy(settings, parts):
    with pytest.raises(ConfigError) as refused:
        Config.of(settings)
    message = str(refused.value)
    for part in parts:
        assert part in message
    assert message.endswith(".")
    assert "pydantic" not in message


@pytest.mark.parametrize("content", [b"rounds = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml must be a TOML file, found "):
        load_config(path)


def test_what_changes_a_result_is_kept_by_its_whole_name():
    changed = Config.of(
        {
            "seed": 3,
            "population": {"clients": 7, "minority": [0, 20]},
            "data": {"dir": "/elsewhere"},
            "engine": {"workers": 2},
            "checkpoints": {"keep": "thin", "every": 5},
        }
    )
    assert that_matter(changed) == {
        "seed": 3,
        "population.clients": 7,
        "population.minority": [0.0, 20.0],
    }
