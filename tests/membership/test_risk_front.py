"""The most accurate head that clients accept."""

from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.build import build_run
from covey.events import HeadChosen, HeadsSolved
from covey.membership import FrontPoint, best_point

SHARES = st.floats(0, 1)
FRONTS = st.lists(st.builds(FrontPoint, SHARES, SHARES, SHARES, SHARES), min_size=1)


@given(FRONTS, SHARES, SHARES)
def test_who_accepts_less_gets_nothing_riskier_unless_nothing_is_accepted(
    front: list[FrontPoint], one: float, other: float
):
    low, high = sorted((one, other))
    strict, loose = best_point(front, low), best_point(front, high)
    assert strict in front
    if strict.risk <= low:
        assert strict.accuracy <= loose.accuracy
    else:
        assert strict.risk == min(each.risk for each in front)
    able = [each for each in front if each.risk <= low]
    assert not able or strict.accuracy == max(each.accuracy for each in able)


def played(thresholds: list[float]) -> tuple[HeadChosen, HeadsSolved]:
    run = build_run(
        covey.Config.of(
            {
                "rounds": 1,
                "population": {
                    "clients": 8,
                    "examples_per_client": 20,
                    "thresholds": thresholds,
                },
                "model": {
                    "name": "linear-head",
                    "options": {
                        "feature_options": {"filters": 8, "size": 3, "pool": 2}
                    },
                },
                "method": {
                    "name": "solved",
                    "num_clusters": 1,
                    "options": {"regularisation": "risk"},
                },
                "redteam": {"source": "none"},
            }
        )
    )
    there = run.clients(run.population.clients)
    state = run.strategy.init(run.streams)
    events = run.strategy.play_round(state, there, run.streams.at("round", 0)).events
    (chosen,) = (each for each in events if isinstance(each, HeadChosen))
    (solved,) = (each for each in events if isinstance(each, HeadsSolved))
    return chosen, solved


def test_clients_that_accept_everything_get_the_most_accurate_head():
    chosen, solved = played([1.0, 1.0])
    assert chosen.accepted == 1.0
    best = chosen.front[chosen.chosen]
    assert best[3] == max(point[3] for point in chosen.front)
    assert solved.regularisation == (best[1],)


def test_clients_that_accept_nothing_get_the_safest():
    chosen, _ = played([0.5, 0.5])
    safest = min(point[2] for point in chosen.front)
    assert chosen.front[chosen.chosen][2] == safest
    risks = [point[2] for point in chosen.front]
    assert risks == sorted(risks, reverse=True)  # the more regular, the safer
