"""Which settings are what a run is, and which are only how it is played."""

from itertools import product

import pytest

from covey import Config
from covey.config.settings import flat, that_matter, unused


def test_the_defaults_are_nothing_to_remember():
    assert that_matter(Config()) == {}
    assert that_matter(Config.of({"rounds": 30, "method": {"name": "ifca-mir"}})) == {}


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


def test_nested_settings_become_flat():
    assert flat({"a": 1, "b": {"c": 2, "d": {"e": [3]}}}) == {"a": 1, "b.c": 2, "b.d.e": [3]}


LOOKS_AT = {
    "fedavg": set[str](),
    "local": set[str](),
    "isolated": {"num_clusters"},
    "ifca": {"num_clusters", "initialisation", "pooling", "select_on"},
    "ifca-mir": {
        *("num_clusters", "initialisation", "pooling", "select_on"),
        *("selection", "risk_weight"),
    },
}


@pytest.mark.parametrize(("method", "key"), [*product(LOOKS_AT, sorted(LOOKS_AT["ifca-mir"]))])
def test_a_method_does_not_look_at_others_settings(method, key):
    ignored = f"method.{key}".startswith(unused(method, "weighted"))
    assert ignored == (key not in LOOKS_AT[method])


@pytest.mark.parametrize(
    ("method", "selection", "ignored"),
    [
        ("ifca-mir", "priced", False),
        ("ifca-mir", "rebalanced", False),
        ("ifca-mir", "weighted", True),
        ("ifca", "priced", True),
    ],
)
def test_a_share_is_kept_by_selections_that_keep_one(method, selection, ignored):
    assert "method.target_share".startswith(unused(method, selection)) == ignored
