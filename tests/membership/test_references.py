"""Who is judged, and what each reference learns: no record without both kinds of model."""

import numpy as np
import pytest
import torch

from covey import Examples, Streams
from covey.data.examples import Client
from covey.membership.references import halves, reference_sets
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
    found = Candidates.of(strata_of(clients, reference, STREAMS))
    assert found is not None
    return found


def test_members_meet_as_many_non_members_of_their_group_and_suspects_are_the_holders(mixed):
    found = candidates_of(mixed, NON_MEMBERS)
    names = np.array(numbers(found.examples))
    assert (found.member == (names < 1000)).all()
    for place, low in ((0, 1000), (1, 2000)):
        here = found.stratum == place
        others = names[here & ~found.member]
        assert ((low <= others) & (others < low + 90)).all()
        assert len(set(others)) == len(others) == (here & found.member).sum()
    held = [set(numbers(client.train)) for client in mixed]
    for name, suspect, member in zip(names, found.suspects, found.member, strict=True):
        assert (name in held[suspect]) == member
    inside, outside = found.suspects[found.member], found.suspects[~found.member]
    assert (np.bincount(inside) == np.bincount(outside)).all()


@pytest.mark.parametrize("count", [3, 4])
def test_every_candidate_has_models_that_learnt_it_and_models_that_did_not(mixed, count):
    found = candidates_of(mixed, NON_MEMBERS)
    inside = halves(found, count, STREAMS)
    assert inside.shape == (len(found.examples), count)
    assert (inside.any(axis=1) & ~inside.all(axis=1)).all()
    for place, stratum in enumerate(found.strata):
        own = inside[found.stratum == place]
        assert (own.sum(axis=0) == stratum.pairs).all()
    if count == 4:
        assert (inside.sum(axis=1) == 2).all()


def test_a_reference_is_as_large_as_the_cluster_and_learns_its_half(mixed):
    found = candidates_of(mixed, NonMembers((numbered(1000, 60), numbered(2000, 60))))
    assert any(len(stratum.background) for stratum in found.strata)
    (inside,) = halves(found, 2, STREAMS).T[:1]
    sets = reference_sets(found, inside, STREAMS)
    assert [len(each) for each in sets] == [20, 30, 25]
    learnt = [number for each in sets for number in numbers(each)]
    half = np.array(numbers(found.examples))[inside].tolist()
    rest = [n for stratum in found.strata for n in numbers(stratum.background)]
    assert sorted(learnt) == sorted([*half, *rest])
    assert not {n for n in numbers(sets[2]) if n < 100 or 200 <= n < 2000}
