"""Client-level privacy by one release: `examples/private-solved.toml` as it is."""

from pathlib import Path

import pytest

from covey import load_config, run

pytestmark = [pytest.mark.slow, pytest.mark.results]
EXAMPLE = Path(__file__).parents[2] / "examples" / "private-solved.toml"


def test_one_release_of_two_thousand_clients_sums_learns(tmp_path, real_data):
    config = load_config(EXAMPLE, [f"data.dir={real_data}"])
    told = run(config=config, out=tmp_path / "run").summary
    guarantee = told.privacy.guarantee
    assert guarantee is not None
    assert guarantee.epsilon is not None
    assert 7.4 < guarantee.epsilon <= 7.5
    # Three draws of clients, filters and noise ended between .939 and .940.
    assert told.accuracy.overall is not None
    assert told.accuracy.overall > 0.92
