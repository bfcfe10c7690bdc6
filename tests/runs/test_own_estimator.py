"""A user's own estimator of risk: what is refused, and what clients measure for themselves."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

import covey
from covey.base.events import RiskMeasured, RiskUnknown
from plugins.risk_confidence import ConfidenceGap

TINY = {
    "rounds": 3,
    "population.clients": 6,
    "population.examples_per_client": 25,
    "population.audit_examples": 40,
    "model.name": "mlp",
    "engine.name": "reference",
    "method.selection": "threshold",
    "method.initialisation": "random",
    "risk.every": 1,
}


def measured(run: covey.Run) -> list[RiskMeasured]:
    return list(run.history.measured)


class Wrong(covey.RiskEstimator):
    """Returns what its option says."""

    what: str = "nothing"
    on_clients: ClassVar[bool] = False

    def estimate(self, target: Any, context: Any, streams: Any) -> Any:
        if self.what == "raises":
            raise ValueError("no luck")
        return {
            "nothing": None,
            "far": covey.RiskEstimate(covey.Figure(1.5, 0.1)),
            "error": covey.RiskEstimate(covey.Figure(0.5, float("inf"))),
        }[self.what]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing", "must return a covey.RiskEstimate.* found None"),
        ("far", "a risk from 0 to 1"),
        ("error", "found 0.5 with inf"),
        ("raises", "raised ValueError: no luck"),
    ],
)
def test_what_nobody_can_act_on_is_refused(tmp_path: Path, what: str, said: str):
    with pytest.raises(covey.ConfigError, match=said):
        covey.run(config=TINY | {"risk.name": Wrong(what=what)}, out=tmp_path / "run")


class OnClients(ConfidenceGap):
    """The same, which every client measures for itself."""

    on_clients: ClassVar[bool] = True


@pytest.mark.slow
def test_clients_may_measure_with_it_and_tell_nobody(tmp_path: Path):
    config = TINY | {"population.examples_per_client": 80, "risk.name": OnClients(fewest=5)}
    run = covey.run(config=config, out=tmp_path / "run")
    assert measured(run) == []
    unknown = [isinstance(each, RiskUnknown) for each in run.history.all_events]
    assert sum(unknown) == 1  # before the first choice
