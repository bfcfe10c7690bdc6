"""Laws of the table of releases: every kind of event stands in it once, and it fails closed."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.base import events
from covey.base.events import Event
from covey.base.guarantee import NoGuarantee, Term
from covey.dp.releases import FREE, OPEN, PAID, is_accounted_for
from covey.dp.run_guarantees import guarantees

DELTA = 1e-5
CLIENTS = ("a", "b")
ASSIGNED = events.ClientsAssigned(dict.fromkeys(CLIENTS, 0), "shared")
MERGED = events.ModelsMerged("", (2,))
NOISE = {
    "sum": lambda z: events.SumPerturbed(0, 1.0, z, 1.0),
    "records": lambda z: events.SumPerturbed(0, 1.0, z, 1.0, "record"),
    "sampled": lambda z: events.SumPerturbed(0, 1.0, z, 0.5, "record"),
    "shares": lambda z: events.SharesPerturbed("updates", 0, 1.0, z, 4),
    "sets": lambda z: events.RepresentativesPerturbed(0, (5, 6), 1.0, z),
    "updates": lambda z: events.UpdatesPerturbed(1.0, z, CLIENTS),
    "steps": lambda z: events.StepsPerturbed(
        z, dict.fromkeys(CLIENTS, 3), dict.fromkeys(CLIENTS, 0.1)
    ),
}
OWN = {kind for kind in Event.__subclasses__() if kind.__module__ == events.__name__}
kinds = st.sampled_from(sorted(NOISE))
multipliers = st.sampled_from([1.5, 2.0, 4.0])


def played(kind: str, zs: list[float]) -> list[Event]:
    return [*chain.from_iterable((ASSIGNED, NOISE[kind](z), MERGED) for z in zs)]


def promised(facts: list[Event]):
    return guarantees(facts, DELTA, secret=True)


def test_an_event_stands_in_the_table_once():
    assert len({*PAID, *OPEN, *FREE}) == len(PAID) + len(OPEN) + len(FREE)
    assert {*PAID, *OPEN, *FREE} < OWN


@pytest.mark.parametrize("kind", sorted(OWN - {*PAID, *OPEN, *FREE}, key=str))
def test_an_event_that_is_not_in_the_table_ends_every_guarantee(kind: type[Event]):
    if kind in (events.ComponentsUsed, events.RunEndedEarly):
        return  # by what they hold
    unknown = kind.__new__(kind)
    assert not is_accounted_for(unknown)
    (held,) = promised([*played("sum", [2.0]), unknown])
    assert held.reason_code == NoGuarantee.UNKNOWN_EVENT


class Renamed(events.SumPerturbed):
    """An event of a user's own."""


def test_an_event_of_a_users_own_is_not_the_one_that_it_derives_from():
    (held,) = promised([*played("sum", [2.0]), Renamed(0, 1.0, 2.0, 1.0)])
    assert held.epsilon is None


@settings(max_examples=30)
@given(kinds, st.lists(multipliers, min_size=1, max_size=3), multipliers)
def test_a_further_round_costs_no_less_and_a_bare_one_all(kind, zs, z):
    fewer, more = promised(played(kind, zs)), promised(played(kind, [*zs, z]))
    assert [each.relation for each in fewer] == [each.relation for each in more]
    for before, after in zip(fewer, more, strict=True):
        assert before.epsilon is not None
        assert after.epsilon is not None
        assert before.epsilon <= after.epsilon
    bare = promised([*played(kind, zs), ASSIGNED, MERGED])
    assert {each.epsilon for each in bare} == {None}


@settings(max_examples=20)
@given(kinds, multipliers)
def test_a_replacement_costs_no_less_than_an_absence(kind, z):
    epsilons = [each.epsilon or 0.0 for each in promised(played(kind, [z]))]
    assert epsilons == sorted(epsilons)


@settings(max_examples=20)
@given(st.tuples(kinds, kinds), multipliers)
def test_other_noise_beside_it_promises_nothing_more(pair, z):
    one, other = pair
    alone = {each.relation for kind in pair for each in promised(played(kind, [z]))}
    both = promised([ASSIGNED, NOISE[one](z), NOISE[other](z), MERGED])
    assert {each.relation for each in both} <= alone
    views = {each.adversary for kind in pair for each in promised(played(kind, [z]))}
    assert {each.adversary for each in both} <= views | {Term.SEES_MODELS}


def test_noise_that_no_client_added_is_no_account():
    facts = [
        events.ClientsAssigned({}, "shared"),
        events.StepsPerturbed(2.0, {}, {}),
        events.ModelsMerged("", (0,)),
    ]
    (held,) = promised(facts)
    assert held.reason_code == NoGuarantee.NOT_ACCOUNTED
