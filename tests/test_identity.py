"""Which settings are what a run is, and which are only how it is played."""

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
