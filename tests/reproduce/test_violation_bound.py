"""The largest factor that the printed risks allow, and the runs in which they are put in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import Config, run
from covey_papers.reproduce.federations import Seen
from covey_papers.reproduce.specification import experiment, printed_table
from covey_papers.reproduce.violation_bound import largest_factor, violating_share

risks = st.floats(0.51, 0.99)


def test_the_largest_factors_by_hand():
    # F(.761) = .261 / .3 = .87, F(.521) = .07: (.1 * .87 + .9 * .07) / .07 = 2.143
    assert violating_share(0.761) == pytest.approx(0.87)
    assert largest_factor(0.761, 0.521, 0.1) == pytest.approx(2.1428571)
    assert largest_factor(0.761, 0.521, 0.5) == pytest.approx(6.7142857)
    table = printed_table("ifca-mir", "Table 2")
    printed = (table["IFCA, Minor", "CIFAR-10"].value, table["IFCA, Major", "CIFAR-10"].value)
    assert largest_factor(*printed, 0.5) == pytest.approx((0.95 + 0.3466667) / 2 / 0.3466667)


@given(minor=risks, major=risks, share=st.floats(0, 1), moved=st.floats(0, 1))
def test_no_assignment_has_a_larger_one(minor, major, share, moved):
    """Whatever share of each group moves to the other's model."""
    stays = 1 - moved
    ifca = share * violating_share(minor) + (1 - share) * violating_share(major)
    own = share * (stays * violating_share(minor) + moved * violating_share(major))
    others = (1 - share) * (stays * violating_share(major) + moved * violating_share(minor))
    assert ifca / (own + others) <= largest_factor(minor, major, share) * (1 + 1e-9)


def test_risks_that_are_put_in_steer_clients_and_are_counted_apart(tmp_path):
    settings = {
        "rounds": 3,
        "population": {"clients": 10, "examples_per_client": 20, "minority_share": 0.2},
        "method": {"name": "ifca-mir", "initialisation": "groups", "selection": "threshold"},
        "model": {"name": "mlp"},
        "risk": {"name": "printed", "every": 1, "minority": 0.99, "majority": 0.5},
    }
    played = run(config=Config.of(settings), out=tmp_path / "run")
    seen = Seen.of(played.folder)
    assert seen.summary.group_models["minority"].clients == 0  # nobody accepts .99
    assert seen.reported_risk(-1) == 0.5
    assert seen.measured_violations == 0
    assert not any(each.calibrated for each in seen.summary.clusters)


def test_the_experiment_names_every_red_team():
    names = {row.settings["risk"]["name"] for row in experiment("ifca-mir-violations").rows}
    assert names == {"printed", "paper", "shadow", "federated", "client", "oracle"}
