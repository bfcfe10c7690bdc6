"""Which settings are what a run is, and which are only how it is played."""

import pytest

from covey import Config
from covey.settings.load import that_matter


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


@pytest.mark.parametrize(
    ("name", "kept"),
    [("fedavg", set[str]()), ("isolated", {"num_clusters"}), ("ifca", {"num_clusters", "pooling"})],
)
def test_another_method_keeps_what_it_knows_alone(name: str, kept: set[str]):
    method = {"num_clusters": 3, "pooling": 0.5, "selection": "threshold"}
    changed = Config.of({"method": method}).naming(method=name)
    settings = that_matter(changed)
    assert settings.pop("method.name") == name
    assert set(settings) == {f"method.{key}" for key in kept}
