"""`covey guarantee`: an epsilon before a run is played, and what it is about."""

import pytest

ASPECTS = {
    "epsilon",
    "epsilon_claimed",
    "noise_multiplier",
    "relation",
    "covers",
    "does_not_cover",
    "holds_if",
}


def test_the_papers_noise_delivers_less_than_it_claims(answer):
    told = answer(
        *("guarantee", "--noise", "paper", "--sigma", "25.788"),
        *("--rounds", "50", "--delta", "1e-5"),
    )
    assert told["epsilon"] == pytest.approx(2.21, abs=0.01)
    assert told["epsilon_claimed"] == pytest.approx(1.0, abs=0.01)
    assert len(told["holds_if"]) == 3
    assert set(told) >= ASPECTS


def test_the_papers_noise_for_an_epsilon_is_the_one_it_prints(answer):
    told = answer("guarantee", "--noise", "paper", "--epsilon", "8")
    assert told["sigma"] == pytest.approx(3.2235, abs=1e-3)
    assert told["epsilon"] == pytest.approx(27.64, abs=0.01)


@pytest.mark.parametrize("noise", ["client", "record"])
def test_noise_is_found_for_an_epsilon_and_keeps_it(answer, noise):
    found = answer("guarantee", "--noise", noise, "--epsilon", "2", "--rounds", "10")
    assert found["epsilon_claimed"] == 2
    assert found["epsilon"] <= 2
    z = found["noise_multiplier"]
    back = answer("guarantee", "--noise", noise, "--sigma", z, "--rounds", "10")
    assert back["epsilon"] == pytest.approx(found["epsilon"])
    assert set(found) >= ASPECTS


def test_an_unusable_setting_looks_unusable(covey):
    code, out, _ = covey("guarantee", "--noise", "client", "--sigma", "4.24")
    assert code == 0
    assert "mostly noise" in out
    _, out, _ = covey(
        *("guarantee", "--noise", "client", "--sigma", "4.24"),
        *("--clients", "5000", "--coordinates", "650"),
    )
    assert "mostly noise" not in out
    assert "does not cover" in out


def test_sound_noise_tells_the_epsilon_of_every_view(answer, covey):
    words = ("guarantee", "--noise", "sound", "--sigma", "2", "--sets", "4")
    told = answer(*words, "--rounds", "5")
    assert told["epsilon"] == told["views"]["their mean"]
    assert len(told["views"]) == 4
    assert "if an adversary sees" in covey(*words, "--rounds", "5")[1]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--noise", "client"),
        ("--noise", "client", "--sigma", "1", "--epsilon", "1"),
        ("--noise", "paper", "--sigma", "0"),
        ("--noise", "paper", "--sigma", "1", "--deniability"),
    ],
)
def test_half_a_question_is_refused(covey, words):
    code, out, err = covey("guarantee", *words)
    assert (code, out) == (2, "")
    assert "covey guarantee" in err
