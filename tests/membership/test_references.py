"""Who is judged, and exposure per record, by hand."""

import numpy as np
import pytest
import torch
from numpy import ndarray
from scipy.stats import norm

from covey import ConfigError, Examples, Signals, Streams
from covey.data.examples import Client
from covey.membership.references import exposed_counts, halves, record_exposures, reference_sets
from covey.membership.truth import Candidates, NonMembers, strata_of

STREAMS = Streams(0)


def numbered(start: int, count: int) -> Examples:
    """Examples that can be told apart."""
    numbers = torch.arange(start, start + count)
    return Examples(numbers[:, None].float(), numbers % 3)


def numbers(examples: Examples) -> list[int]:
    return examples.inputs[:, 0].int().tolist()


@pytest.fixture
def mixed(make_client) -> tuple[Client, ...]:
    """Two clients of group 0 with 20 and 30 records, one of group 1 with 25."""
    return (
        make_client("a", numbered(0, 20), group=0),
        make_client("b", numbered(100, 25), group=1),
        make_client("c", numbered(200, 30), group=0),
    )


NON_MEMBERS = NonMembers((numbered(1000, 90), numbered(2000, 90)))


def candidates_of(clients: tuple[Client, ...], reference: NonMembers) -> Candidates:
    candidates = Candidates.of(strata_of(clients, reference, STREAMS))
    assert candidates is not None
    return candidates


def test_members_meet_as_many_non_members_of_their_group_and_suspects_are_the_holders(mixed):
    candidates = candidates_of(mixed, NON_MEMBERS)
    names = np.array(numbers(candidates.examples))
    assert (candidates.member == (names < 1000)).all()
    for place, low in ((0, 1000), (1, 2000)):
        here = candidates.stratum == place
        others = names[here & ~candidates.member]
        assert ((low <= others) & (others < low + 90)).all()
        assert len(set(others)) == len(others) == (here & candidates.member).sum()
    held = [set(numbers(client.train)) for client in mixed]
    for name, suspect, member in zip(names, candidates.suspects, candidates.member, strict=True):
        assert (name in held[suspect]) == member
    inside, outside = (
        candidates.suspects[candidates.member],
        candidates.suspects[~candidates.member],
    )
    assert (np.bincount(inside) == np.bincount(outside)).all()


@pytest.mark.parametrize("count", [3, 4])
def test_every_candidate_has_models_that_learnt_it_and_models_that_did_not(mixed, count):
    candidates = candidates_of(mixed, NON_MEMBERS)
    inside = halves(candidates, count, STREAMS)
    assert inside.shape == (len(candidates.examples), count)
    assert (inside.any(axis=1) & ~inside.all(axis=1)).all()
    for place, stratum in enumerate(candidates.strata):
        own = inside[candidates.stratum == place]
        assert (own.sum(axis=0) == stratum.pairs).all()
    if count == 4:
        assert (inside.sum(axis=1) == 2).all()


def test_a_reference_is_as_large_as_the_cluster_and_learns_its_half(mixed):
    candidates = candidates_of(mixed, NonMembers((numbered(1000, 60), numbered(2000, 60))))
    assert any(len(stratum.background) for stratum in candidates.strata)
    (inside,) = halves(candidates, 2, STREAMS).T[:1]
    sets = reference_sets(candidates, inside, STREAMS)
    assert [len(examples) for examples in sets] == [20, 30, 25]
    learnt = [number for examples in sets for number in numbers(examples)]
    half = np.array(numbers(candidates.examples))[inside].tolist()
    rest = [n for stratum in candidates.strata for n in numbers(stratum.background)]
    assert sorted(learnt) == sorted([*half, *rest])
    assert not {n for n in numbers(sets[2]) if n < 100 or 200 <= n < 2000}


def log_probs(phi: ndarray) -> ndarray:
    """Two classes whose logit-scaled confidence in the first is phi."""
    both = np.stack([phi, np.zeros_like(phi)], axis=-1)
    return both - np.logaddexp.reduce(both, axis=-1, keepdims=True)


def signals(phi: ndarray, inside: ndarray) -> Signals:
    n = len(phi)
    return Signals(np.zeros(n, dtype=int), log_probs(phi[:, 0]), log_probs(phi), inside)


OWNERS = np.arange(300) % 3
INSIDE = np.array([[True, True, False, False]] * 2)


def test_by_hand():
    # first record: inside 4 and 6, outside 0 and 2: means 5 and 1; second: no difference.
    # All eight are 1 from their means, with 8 - 4 degrees of freedom: sigma = sqrt(2)
    phi = np.array([[4.0, 6.0, 0.0, 2.0], [1.0, 3.0, 1.0, 3.0]])
    expected = [norm.cdf(4 / (2 * np.sqrt(2))), 0.5]
    np.testing.assert_allclose(record_exposures(signals(phi, INSIDE)), expected)


def test_a_record_that_every_model_learnt_has_no_exposure():
    with pytest.raises(ConfigError, match="outside"):
        record_exposures(signals(np.zeros((2, 4)), np.ones((2, 4), dtype=bool)))


def test_only_counts_are_reported():
    # 150 members: 1% are two. Two records give themselves away to every reference
    draw = np.random.default_rng(0)
    inside = np.stack([draw.permutation(300) < 150 for _ in range(4)], axis=1)
    inside = np.stack([s for half in inside.T for s in (half, ~half)], axis=1)
    weak = np.isin(np.arange(300), [10, 32, 200])
    phi = draw.normal(size=inside.shape) + 9 * (inside & weak[:, None])
    counts = exposed_counts(signals(phi, inside), np.arange(300) < 150, OWNERS)
    assert counts is not None
    assert (counts.records, counts.held) == (2, (1, 1))
    assert counts.exposure > 0.99
    assert counts.everybody == pytest.approx(0.5, abs=0.05)


def test_the_highest_of_many_figures_by_chance_is_not_believed():
    draw = np.random.default_rng(1)
    inside = np.tile([[True, False]], (300, 2))
    noise = signals(draw.normal(size=inside.shape), inside)
    counts = exposed_counts(noise, np.arange(300) < 150, OWNERS)
    assert counts is not None
    assert abs(counts.exposure - 0.5) < 0.4  # two records, one pair of references
    assert record_exposures(noise).max() > 0.95
