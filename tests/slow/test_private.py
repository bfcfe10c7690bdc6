"""Client-level privacy that still learns: `examples/private.toml` as it is."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from covey import Config, load_config, run
from covey.aggregation.anonymity import AnonymitySets
from covey.dp.run_guarantees import NoisePlan, multiplier

pytestmark = [pytest.mark.slow, pytest.mark.results]
EXAMPLE = Path(__file__).parents[2] / "examples" / "private.toml"


def ended(out: Path, config: Config) -> tuple[float, float | None]:
    """Return a run's accuracy and its epsilon."""
    summary = run(config=config, out=out).summary
    guarantee = summary.privacy.guarantee
    assert summary.accuracy.overall is not None
    return summary.accuracy.overall, guarantee and guarantee.epsilon


def test_two_thousand_clients_learn_at_epsilon_below_8(tmp_path, real_data):
    example = load_config(EXAMPLE, [f"data.dir={real_data}"])

    def instead(**sections: Mapping[str, object]) -> Config:
        settings = example.model_dump()
        for name, section in sections.items():
            settings[name] = section if "name" in section else settings[name] | section
        return Config.of(settings)

    mean = {"name": "mean"}
    sets = example.aggregation
    assert isinstance(sets, AnonymitySets)
    plan = NoisePlan("client", example.rounds, 1e-5)
    sums = {"client_clip": sets.radius, "client_noise": multiplier(plan, sets.epsilon)}
    bare, nothing = ended(tmp_path / "bare", instead(aggregation=mean))
    hidden, of_sets = ended(tmp_path / "sets", example)
    plain, of_sums = ended(tmp_path / "sums", instead(aggregation=mean, privacy=sums))

    assert nothing is None
    assert of_sets is not None
    assert of_sums is not None
    assert max(of_sets, of_sums) < 8
    assert of_sums > 0.98 * of_sets  # plain sums get no more privacy for less noise
    # The noise is the operating system's, so no two runs are alike. Measured: bare
    # .859; hidden .850 and .8625; plain .856 both times.
    assert hidden >= bare - 0.05
    assert plain >= hidden - 0.03
