"""What every estimator of risk keeps to, whoever wrote it."""

import numpy as np
import pytest

from covey import RiskContext, RiskEstimator, Streams, Target
from covey.base.built_ins import built_ins
from covey.base.components import create
from covey.membership.truth import NonMembers
from plugins.risk_confidence import ConfidenceGap

BUILT = {
    name: create("risk_estimator", name, "risk.name", RiskEstimator)
    for name in built_ins("risk_estimator")
}
ALL: dict[str, RiskEstimator] = {**BUILT, "one's own": ConfidenceGap(sharpness=2.0)}
STREAMS = Streams(0).at("round", 5)


@pytest.fixture
def context(look_up, lossy) -> RiskContext:
    draw = np.random.default_rng(1)
    reference = NonMembers((lossy(draw.exponential(1.0, 80)),))
    return RiskContext(look_up, reference=reference)


@pytest.fixture
def target(lossy, make_client, make_target) -> Target:
    draw = np.random.default_rng(0)
    return make_target(
        *(
            make_client(f"c{i}", lossy(draw.exponential(0.5, 30)), lossy(draw.random(20)), group=0)
            for i in range(3)
        )
    )


@pytest.mark.parametrize("estimator", ALL.values(), ids=ALL)
def test_every_estimator_finds_a_risk_with_an_error_or_says_why_not(
    estimator, target, make_target, context
):
    found = estimator.estimate(target, context, STREAMS)
    assert found.reason
    assert found.counts == found.is_known
    if found.is_known:
        assert 0 <= found.risk <= 1
        assert 0 < found.standard_error < 0.5
        assert found.members == 90
    assert estimator.assess(target, context, STREAMS).estimate == found
    assert not estimator.estimate(make_target(), context, STREAMS).is_known
    settings = {"name": estimator.name, **estimator.own_settings()}
    assert create("risk_estimator", settings, "risk.name", RiskEstimator) == estimator
