"""What a run guarantees so far: of all that was ever released."""

from covey.base.events import ClientsAssigned, Event, ModelsMerged, RunStarted, SumPerturbed
from covey.base.history import history_of
from covey.dp.accountant import epsilon_bound, gaussian
from covey.dp.status import guarantee_status

BEGAN = RunStarted(
    covey_version="",
    method="fedavg",
    config_hash="",
    data_hash="",
    num_clusters=1,
    rounds=9,
    group_names=(),
    groups={},
    risk_thresholds={},
    risk_lifetime=0,
    notes=(),
    secrets="os",
    delta=1e-5,
)
ROUND: tuple[Event, ...] = (
    ClientsAssigned({"a": 0, "b": 0}, "shared"),
    SumPerturbed(0, 1.0, 2.0, 1.0),
    ModelsMerged("", (2,)),
)


def test_rounds_that_were_rolled_back_are_paid_as_those_that_count():
    for superseded in range(3):
        history = history_of([(0, (BEGAN, *ROUND)), (1, ROUND)], ROUND * superseded)
        cost = epsilon_bound([gaussian(2.0)] * (2 + superseded), 1e-5)
        found = guarantee_status(history).guarantee
        assert found is not None
        assert cost is not None
        assert found.epsilon == cost.epsilon
