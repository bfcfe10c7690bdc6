"""All mistakes of a file at once, each with key, value, range and what was meant."""

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from covey import Config, ConfigError


def found(settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [asdict(each) for each in Config.problems(settings)]


def only(settings: dict[str, Any]) -> dict[str, Any]:
    (each,) = found(settings)
    return each


def test_every_mistake_of_a_file_is_told_at_once():
    wrong = {
        "rounds": "10",
        "train": {"learning_rate": True, "lerning_rate": 0.1},
        "method": {"name": "ifca_mir"},
        "aggregation": {"name": "krumm"},
        "populaton": {"clients": 3},
        "population": {"minority": [25, 0]},
    }
    told = found(wrong)
    assert {each["key"] for each in told} == {
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
    assert lines == [f"- {each['message']}" for each in told]


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
    told = only(settings)
    assert (told["key"], told["did_you_mean"]) == (key, meant)
    assert ("do you mean" in told["message"]) == (meant is not None)
    assert meant is None or meant in told["message"]


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
    for each in found(settings):
        assert each["key"].startswith(f"{section}.{name}" if section else name)
        assert each["expected"]
    assert found(settings)


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
    for each in problems:
        assert each.message in str(refused.value)
        assert each.message.endswith((".", "?"))
