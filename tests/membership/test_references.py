"""Who is judged, and what each reference learns: no record without both kinds of model."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from covey import Examples, Params, Recipe, Streams
from covey.data.examples import Client
from covey.membership.references import RetrainRecipe, halves, reference_sets, train_references
from covey.membership.truth import Candidates, Reference, strata_of

STREAMS = Streams(0)


def numbered(start: int, count: int) -> Examples:
    """Examples that can be told apart."""
    numbers = torch.arange(start, start + count)
    return Examples(numbers[:, None].float(), numbers % 3)


def numbers(examples: Examples) -> list[int]:
    return examples.inputs[:, 0].int().tolist()


@pytest.fixture
def mixed(make_client: Callable[..., Client]) -> tuple[Client, ...]:
    """Two clients of group 0 with 20 and 30 records, one of group 1 with 25."""
    return (
        make_client("a", numbered(0, 20), group=0),
        make_client("b", numbered(100, 25), group=1),
        make_client("c", numbered(200, 30), group=0),
    )


NON_MEMBERS = Reference((numbered(1000, 90), numbered(2000, 90)))


def candidates_of(clients: tuple[Client, ...], reference: Reference) -> Candidates:
    found = Candidates.of(strata_of(clients, reference, STREAMS))
    assert found is not None
    return found


def test_members_meet_as_many_non_members_of_their_group(mixed: tuple[Client, ...]):
    found = candidates_of(mixed, NON_MEMBERS)
    names = np.array(numbers(found.examples))
    assert (found.member == (names < 1000)).all()
    for place, low in ((0, 1000), (1, 2000)):
        here = found.stratum == place
        others = names[here & ~found.member]
        assert ((low <= others) & (others < low + 90)).all()
        assert len(set(others)) == len(others) == (here & found.member).sum()


def test_an_image_shared_by_groups_serves_one_of_them(mixed: tuple[Client, ...]):
    found = candidates_of(mixed, NON_MEMBERS)
    names = np.array(numbers(found.examples))[~found.member]
    assert len(set(names % 1000)) == len(names)


def test_suspects_are_the_holders(mixed: tuple[Client, ...]):
    found = candidates_of(mixed, NON_MEMBERS)
    held = [set(numbers(client.train)) for client in mixed]
    names = numbers(found.examples)
    for name, suspect, member in zip(names, found.suspects, found.member, strict=True):
        assert (name in held[suspect]) == member
    inside, outside = found.suspects[found.member], found.suspects[~found.member]
    assert (np.bincount(inside) == np.bincount(outside)).all()


def test_own_data_meet_their_own_holdout(make_client: Callable[..., Client]):
    clients = tuple(
        make_client(name, numbered(start, 40), numbered(start + 50, 10))
        for name, start in (("a", 0), ("b", 100))
    )
    found = candidates_of(clients, Reference(()))
    assert found.member.sum() == 20
    assert sum(len(stratum.background) for stratum in found.strata) == 60


def test_groups_with_too_few_records_are_not_judged(mixed: tuple[Client, ...]):
    few = Reference((numbered(1000, 12), numbered(2000, 12)))
    assert Candidates.of(strata_of(mixed, few, STREAMS)) is None


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_candidate_has_models_that_learnt_it_and_models_that_did_not(
    mixed: tuple[Client, ...], count: int
):
    found = candidates_of(mixed, NON_MEMBERS)
    inside = halves(found, count, STREAMS)
    assert inside.shape == (len(found.examples), count)
    assert (inside.any(axis=1) & ~inside.all(axis=1)).all()
    for place, stratum in enumerate(found.strata):
        own = inside[found.stratum == place]
        assert (own.sum(axis=0) == stratum.pairs).all()
    if count == 4:
        assert (inside.sum(axis=1) == 2).all()


def test_a_reference_is_as_large_as_the_cluster_and_learns_its_half(mixed: tuple[Client, ...]):
    found = candidates_of(mixed, Reference((numbered(1000, 60), numbered(2000, 60))))
    assert any(len(stratum.background) for stratum in found.strata)
    (inside,) = halves(found, 2, STREAMS).T[:1]
    sets = reference_sets(found, inside, STREAMS)
    assert [len(each) for each in sets] == [20, 30, 25]
    learnt = [number for each in sets for number in numbers(each)]
    half = np.array(numbers(found.examples))[inside].tolist()
    rest = [n for stratum in found.strata for n in numbers(stratum.background)]
    assert sorted(learnt) == sorted([*half, *rest])
    assert not {n for n in numbers(sets[2]) if n < 100 or 200 <= n < 2000}


def test_references_start_afresh_and_play_every_round(mixed: tuple[Client, ...]):
    found = candidates_of(mixed, NON_MEMBERS)
    seen: list[tuple[float, int, int]] = []

    def init(streams: Streams) -> Params:
        return {"w": torch.tensor(streams.generator().random())}

    def play_round(index: int, params: Params, sets: tuple[Examples, ...], _: Streams) -> Params:
        seen.append((float(params["w"]), index, len(sets)))
        return {"w": params["w"] + 1}

    retrial = RetrainRecipe(init, play_round, Recipe(), rounds=3)
    ends = list(train_references(retrial, found, halves(found, 2, STREAMS), STREAMS))
    starts = [seen[0][0], seen[3][0]]
    assert starts[0] != starts[1]
    assert [float(e["w"]) for e in ends] == pytest.approx([s + 3 for s in starts])
    assert [index for _, index, _ in seen] == [0, 1, 2, 0, 1, 2]
    assert [count for *_, count in seen] == [3] * 6
