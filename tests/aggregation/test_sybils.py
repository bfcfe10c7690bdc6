"""Clients of one organisation around a victim: whose sets are whose, and what is denied."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aggregation.hiding import hiding
from covey import ClientUpdate, Streams
from covey.aggregation.anonymity import anonymity_aggregator
from covey.aggregation.partition import joined_sets, public_random
from covey.base.events import (
    AnonymitySetsFormed,
    ClientsAssigned,
    ClusterWaited,
    Event,
    OrganisationsAttested,
)
from covey.unlearning.participation import participation_of
from covey.unlearning.plan import AnswerRules, at_risk, options

K, X, ROUNDS = 4, 3, 6
VICTIM, SYBILS = "victim", ("sybil-0", "sybil-1", "sybil-2")
HONEST = tuple(f"honest-{i}" for i in range(8))
WHOSE = {VICTIM: "v", **dict.fromkeys(SYBILS, "s"), **{name: name for name in HONEST}}
RULES = AnswerRules(X, stored_updates=False, restorable=(0,), next_round=ROUNDS)


def updates(round_index: int) -> list[ClientUpdate]:
    """Honest updates point anywhere; those of Sybils are near what the victim sends."""
    draws = np.random.default_rng(round_index)
    sent = {name: draws.normal(size=20) for name in (VICTIM, *HONEST)}
    sent[VICTIM] += 3  # few are like it, and whoever wants to be near it knows so
    near = {name: sent[VICTIM] + 0.01 * draws.normal(size=20) for name in SYBILS}
    return [
        ClientUpdate(name, 0, {"w": torch.tensor(each)}, 1.0)
        for name, each in sorted({**sent, **near}.items())
    ]


def played(least: int, whose: Mapping[str, str]) -> list[tuple[int, Sequence[Event]]]:
    """Return each round's events."""
    merge = anonymity_aggregator(replace(hiding(K, min_organisations=least), organisations=whose))
    start = ({"w": torch.zeros(20, dtype=torch.float64)},)
    found: list[tuple[int, Sequence[Event]]] = []
    for t in range(ROUNDS):
        sent = updates(t)
        merged = merge(start, sent, Streams(1).at("round", t))
        chosen = ClientsAssigned({each.handle: 0 for each in sent}, "shared")
        found.append((t, (chosen, *merged.events)))
    return found


def story(least: int, whose: Mapping[str, str]):
    return participation_of((t, each) for t, events in played(least, whose) for each in events)


def owners_beside_the_victim(least: int, whose: Mapping[str, str]) -> list[set[str]]:
    sets = story(least, whose).sets_of(VICTIM)
    return [{WHOSE[each] for each in held.members} - {"v"} for held in sets]


def test_with_three_organisations_the_set_is_never_the_sybils_alone():
    assert owners_beside_the_victim(1, {}) == [{"s"}] * ROUNDS
    assert options(story(1, {}), VICTIM, RULES)[0].possible  # and it was denied
    beside = owners_beside_the_victim(3, WHOSE)
    assert len(beside) == ROUNDS
    assert all(len(each) >= 2 and each - {"s"} for each in beside)


def test_what_is_denied_counts_organisations_other_than_the_leavers():
    known = story(1, WHOSE)
    assert not options(known, VICTIM, RULES)[0].possible
    assert VICTIM in at_risk(known, X)
    strict = replace(RULES, min_organisations=3)
    apart = story(3, WHOSE)
    (deny, *_) = options(apart, VICTIM, strict)
    sets = apart.sets_of(VICTIM)
    fewest = min(each.plausible_members(VICTIM, frozenset()) for each in sets)
    assert deny.possible == (fewest >= X)
    assert fewest >= 2
    if not deny.possible:
        assert "other attested organisations" in deny.reason


def test_a_cluster_of_too_few_organisations_waits():
    only = dict.fromkeys((VICTIM, *HONEST, *SYBILS), "one")
    # who is not attested is no organisation, and many such are none
    for whose in (only, {}, {**only, VICTIM: "v"}, {VICTIM: "v", HONEST[0]: "one"}):
        for t, (_, *events) in played(3, whose):
            assert events == [ClusterWaited(0, 12, K)], t


def test_the_ledger_says_who_shares_an_organisation_and_not_which():
    (_, (_, formed, attested)) = played(3, {**WHOSE, HONEST[0]: "s"})[0]
    assert isinstance(formed, AnonymitySetsFormed)
    assert isinstance(attested, OrganisationsAttested)
    whose = {**WHOSE, HONEST[0]: "s"}
    for members, numbers in zip(formed.sets, attested.organisations, strict=True):
        assert numbers[0] == 0
        assert len(set(numbers)) == max(n for n in numbers if n is not None) + 1
        for (a, i), (b, j) in pairwise(zip(members, numbers, strict=True)):
            assert (i == j) == (whose[a] == whose[b])


@st.composite
def partitions(draw: st.DrawFn):
    n = draw(st.integers(1, 24))
    k = draw(st.integers(1, n))
    owners = draw(st.lists(st.sampled_from([None, *"abcdef"]), min_size=n, max_size=n))
    return n, k, draw(st.integers(1, k)), owners, draw(st.integers(0, 2**32 - 1))


@given(partitions())
def test_every_set_has_k_members_and_m_organisations_or_none_is_formed(drawn):
    n, k, least, owners, seed = drawn
    before = public_random(n, k, np.random.default_rng(seed))
    if len({*owners} - {None}) < least:
        with pytest.raises(ValueError, match="owners"):
            joined_sets(before, owners, least)
        return
    sets = joined_sets(before, owners, least)
    assert sorted(i for each in sets for i in each) == list(range(n))
    for each in sets:
        assert len(each) >= k
        assert len({owners[i] for i in each} - {None}) >= least
        assert any(set(each) >= set(own) for own in before)
    if all(len({owners[i] for i in own} - {None}) >= least for own in before):
        assert sets == before
