"""What parts of a run rest on: one check, one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import Capability, Claim
from covey.algorithms.fedavg import FedAvg, LocalTraining
from covey.algorithms.ifca import Ifca
from covey.components.registry import conflicts

Some = frozenset[Capability]
some = st.frozensets(st.sampled_from(Capability), max_size=5)


def test_a_conflict_is_one_sentence_with_both_parts_and_a_remedy():
    needy = Claim("unlearning.store_updates", frozenset({Capability.SHARED_MODEL}))
    other = Claim("method.name = 'ifca'", rules_out=frozenset({Capability.SHARED_MODEL}))
    assert list(conflicts([needy, other])) == [
        "unlearning.store_updates needs one model for everybody, but method.name = "
        "'ifca' rules it out. Change one of the two."
    ]
    assert list(conflicts([needy])) == list(conflicts([other])) == []


@pytest.mark.parametrize(
    ("needys", "others", "said"),
    [("Set a.", "Set b.", "Set a."), ("", "Set b.", "Set b."), ("", "", "Change one of the two.")],
)
def test_the_needy_parts_remedy_comes_first(needys: str, others: str, said: str):
    images = frozenset({Capability.IMAGES})
    claims = [
        Claim("a", requires=images, remedy=needys),
        Claim("b", rules_out=images, remedy=others),
    ]
    assert [each.endswith(f"rules it out. {said}") for each in conflicts(claims)] == [True]


@given(st.lists(st.tuples(some, some), max_size=4))
def test_every_pair_that_disagrees_is_told_once(claimed: list[tuple[Some, Some]]):
    claims = [Claim(f"part {i}", *each) for i, each in enumerate(claimed)]
    told = list(conflicts(claims))
    assert len(told) == len(set(told))
    assert len(told) == sum(
        len(one.requires & other.rules_out) for one in claims for other in claims
    )
    assert told == list(conflicts(claims))


def test_every_capability_completes_the_sentence():
    for each in Capability:
        assert each.value
        assert each.value[0].islower()
        assert not each.value.endswith(".")
    assert len({each.value for each in Capability}) == len(Capability)


def test_algorithms_claim_what_their_options_ask_for():
    chosen = [Claim("privacy", frozenset({Capability.COST_CHOICE}))]
    warm = Ifca(pooling=0.5, initialisation="warm").claims("method.name = 'ifca'")
    bare, updates, uncalibrated, start, pooling, everybody = warm
    assert updates.rules_out == {Capability.SUMS_ALONE}
    assert uncalibrated.rules_out == {Capability.STORED_UPDATES}
    assert bare.rules_out == {Capability.SHARED_MODEL}
    assert pooling.requires == {Capability.EXAMPLE_COUNTS}
    assert everybody.requires == {Capability.KNOWN_POPULATION}
    assert list(conflicts([*chosen, bare, start, pooling])) == [
        "privacy needs choices by the lowest cost of a round, but method.name = 'ifca' "
        "with initialisation = 'warm' rules it out. Set method.initialisation = 'random'."
    ]
    one = Ifca(num_clusters=1).claims("method")
    lost = frozenset[Capability]().union(*(each.rules_out for each in one))
    assert lost == {Capability.STORED_UPDATES, Capability.SUMS_ALONE}
    choice = Claim("selection", frozenset({Capability.CLUSTER_CHOICE}))
    alone = LocalTraining().claim("method.name = 'local'")
    assert [len(list(conflicts([choice, each]))) for each in (bare, alone)] == [0, 1]
    assert Capability.SHARED_MODEL not in FedAvg().claim("method").rules_out
