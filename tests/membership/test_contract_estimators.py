"""What every estimator of risk keeps to, whoever wrote it."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from covey import ConfigError, Engine, Examples, RiskContext, RiskEstimator, Streams, Target
from covey.base.built_ins import BUILT_INS
from covey.base.components import create
from covey.base.events import RiskMeasured, event_from, kind_and_body
from covey.data.examples import Client
from covey.membership.truth import Reference
from plugins.risk_confidence import ConfidenceGap

Lossy = Callable[..., Examples]
MakeClient = Callable[..., Client]
MakeTarget = Callable[..., Target]
BUILT = {
    name: create("risk_estimator", name, "risk.name", RiskEstimator)
    for name in BUILT_INS["risk_estimator"]
}
ALL: dict[str, RiskEstimator] = {**BUILT, "one's own": ConfidenceGap(sharpness=2.0)}
STREAMS = Streams(0).at("round", 5)


@pytest.fixture(params=ALL.values(), ids=list(ALL))
def estimator(request: pytest.FixtureRequest) -> RiskEstimator:
    return request.param


@pytest.fixture
def context(look_up: Engine, lossy: Lossy) -> RiskContext:
    draw = np.random.default_rng(1)
    reference = Reference((lossy(draw.exponential(1.0, 80)),))
    return RiskContext(look_up, reference=reference)


@pytest.fixture
def target(lossy: Lossy, make_client: MakeClient, make_target: MakeTarget) -> Target:
    draw = np.random.default_rng(0)
    return make_target(
        *(
            make_client(f"c{i}", lossy(draw.exponential(0.5, 30)), lossy(draw.random(20)), group=0)
            for i in range(3)
        )
    )


def test_it_finds_a_risk_with_an_error_or_says_why_not(
    estimator: RiskEstimator, target: Target, context: RiskContext
):
    found = estimator.estimate(target, context, STREAMS)
    assert found.reason
    assert found.counts == found.is_known
    if found.is_known:
        assert 0 <= found.risk <= 1
        assert 0 < found.standard_error < 0.5
        assert found.members == 90


def test_the_same_streams_find_the_same(
    estimator: RiskEstimator, target: Target, context: RiskContext
):
    first = estimator.assess(target, context, STREAMS)
    assert estimator.assess(target, context, STREAMS).estimate == first.estimate


def test_without_members_there_is_none(
    estimator: RiskEstimator, make_target: MakeTarget, context: RiskContext
):
    found = estimator.estimate(make_target(), context, STREAMS)
    assert not found.is_known


def test_what_is_found_can_be_told(estimator: RiskEstimator, target: Target, context: RiskContext):
    event = RiskMeasured(1, estimator.estimate(target, context, STREAMS))
    assert event_from(*kind_and_body(event)) == event


def test_its_name_and_options_make_it_again(estimator: RiskEstimator):
    name, options = estimator.name, estimator.own_settings()
    again = create("risk_estimator", {"name": name, **options}, "risk.name", RiskEstimator)
    assert again == estimator


def test_clients_find_for_themselves_what_it_finds_of_each(target: Target, context: RiskContext):
    # judge is a loop over clients and models unless an estimator does it at once
    own = ConfidenceGap()
    models = (target.params, target.params)
    found = own.judge(models, target.members, context, STREAMS)
    assert list(found) == [client.handle for client in target.members]
    alone = Target(0, target.params, target.members[:1], 0)
    expected = own.estimate(alone, context, STREAMS)
    assert found[target.members[0].handle] == [expected, expected]


def test_a_coin_s_risk_by_hand(
    look_up: Engine, lossy: Lossy, make_client: MakeClient, make_target: MakeTarget
):
    # p_y is 1/2 on members and 1/4 on others; squared 1/4 and 1/16: 1/2 + (3/16) / 2
    only = make_client("a", lossy([math.log(2)] * 20), lossy([math.log(4)] * 10))
    own = ConfidenceGap(sharpness=2.0)
    found = own.estimate(make_target(only), RiskContext(look_up), STREAMS)
    assert found.is_known
    assert found.risk == pytest.approx(0.5 + 3 / 32)
    assert found.standard_error == pytest.approx(0, abs=1e-9)
    assert (found.members, found.non_members) == (20, 10)


def test_an_option_that_is_none_is_refused():
    wrong = {"name": "plugins.risk_confidence:ConfidenceGap", "sharp": 2.0}
    with pytest.raises(ConfigError, match=r"risk\.sharp"):
        create("risk_estimator", wrong, "risk", RiskEstimator)
