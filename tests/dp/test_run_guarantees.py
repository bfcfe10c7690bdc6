"""From facts to guarantees: what is paid for, by whom, and what ends them all."""

from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.base import events
from covey.base.events import (
    AnonymitySetsFormed,
    ChoicesPerturbed,
    ClientsAssigned,
    ClusterWaited,
    ComponentsUsed,
    Event,
    GroupsSought,
    ModelsMerged,
    RepresentativesPerturbed,
    RiskMeasured,
    RoundMeasured,
    RunStarted,
    StepsPerturbed,
    SumPerturbed,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.guarantee import NoGuarantee, Term
from covey.base.history import history_of
from covey.dp.accountant import choice, epsilon_bound, gaussian, representative
from covey.dp.releases import FREE, OPEN, PAID, is_accounted_for
from covey.dp.run_guarantees import (
    NoisePlan,
    aggregate_multiplier,
    forecast,
    guarantees,
    representative_noise,
)
from covey.dp.status import Guarantee, guarantee_status

DELTA = 1e-5
CHOSEN = ClientsAssigned({"a": 0, "b": 1}, "clients")
SHARED = ClientsAssigned({"a": 0, "b": 0}, "shared")
MERGED = ModelsMerged("", (1, 1))
TOGETHER = ModelsMerged("", (2,))


def the_one(facts: Sequence[Event], *, secret: bool = True) -> Guarantee:
    (guarantee,) = guarantees(facts, DELTA, secret=secret)
    return guarantee


def epsilon_of(*mechanisms: object) -> float:
    cost = epsilon_bound(mechanisms, DELTA)  # pyright: ignore[reportArgumentType]
    assert cost is not None
    return cost.epsilon


def noisy_sums(z: float, *clusters: int, sampling: float = 1.0) -> list[Event]:
    return [SumPerturbed(j, 1.0, z, sampling) for j in clusters]


def test_rounds_of_noisy_sums_add_up():
    guarantee = the_one([SHARED, *noisy_sums(4.0, 0), TOGETHER] * 10)
    assert guarantee.epsilon == epsilon_of(*[gaussian(4.0)] * 10)
    assert (guarantee.unit, guarantee.reason, guarantee.noise_multiplier) == ("client", "", 4.0)
    assert guarantee.covers == ("every cluster model of every round",)
    assert any("the server itself" in sentence for sentence in guarantee.does_not_cover)


def test_a_client_is_in_one_cluster_a_round_at_worst_the_dearest():
    facts = [CHOSEN, SumPerturbed(0, 1.0, 4.0, 1.0), SumPerturbed(1, 2.0, 3.0, 1.0)]
    assert the_one([*facts, MERGED]).epsilon == epsilon_of(gaussian(3.0))


def test_sets_are_paid_as_a_secret_speaker_in_the_noise_of_all():
    noisy = RepresentativesPerturbed(0, (10, 10, 12), 1.0, 2.0)
    guarantee = the_one([SHARED, noisy, TOGETHER] * 5)
    z = aggregate_multiplier(2.0, (10, 10, 12))
    assert z == pytest.approx(2.0 * (344**0.5) / 12)
    assert guarantee.epsilon == epsilon_of(*[representative(z, 10)] * 5)
    assert "replaced" in guarantee.relation


def test_whoever_holds_the_seed_is_promised_nothing():
    guarantee = the_one([SHARED, *noisy_sums(4.0, 0), TOGETHER], secret=False)
    assert guarantee.epsilon is None
    assert "seed" in guarantee.reason


def test_one_bare_merge_ends_it():
    paid = [CHOSEN, *noisy_sums(4.0, 0, 1), MERGED]
    bare = [CHOSEN, *noisy_sums(4.0, 0), MERGED]
    guarantee = the_one([*paid, *bare, *paid])
    assert guarantee.epsilon is None
    assert "cluster 1" in guarantee.reason


def test_a_cluster_that_waited_merged_nothing():
    noisy = RepresentativesPerturbed(0, (6, 7), 1.0, 3.0)
    waited = ClusterWaited(1, 2, 6)
    assert the_one([CHOSEN, noisy, waited, MERGED]).epsilon is not None


def test_an_unknown_fact_never_gives_a_number():
    unheard = Event()  # no kind that anybody knows
    guarantee = the_one([SHARED, *noisy_sums(4.0, 0), TOGETHER, unheard])
    assert guarantee.epsilon is None
    assert guarantee.reason.endswith("reveals about clients: Event")


def test_choices_without_noise_are_open_and_those_with_noise_are_paid():
    bare = the_one([CHOSEN, *noisy_sums(4.0, 0, 1), MERGED] * 4)
    noisy = [CHOSEN, ChoicesPerturbed(0.5, ("a", "b")), *noisy_sums(4.0, 0, 1), MERGED]
    paid = the_one(noisy * 4)
    assert any("which cluster a client chose" in sentence for sentence in bare.does_not_cover)
    assert not any("client chose" in sentence for sentence in paid.does_not_cover)
    assert any(sentence.startswith("every choice of a cluster") for sentence in paid.covers)
    assert paid.epsilon == epsilon_of(*[gaussian(4.0), choice(0.5)] * 4)


@pytest.mark.parametrize(
    ("method", "by", "are_open"), [("local", "clients", False), ("ifca", "clients", True)]
)
def test_choices_are_named_only_where_somebody_chooses(method, by, *, are_open):
    began = RunStarted("0", method, "c", "d", 2, 1, (), {}, {}, 4, ())
    own = [ClientsAssigned({"a": 0, "b": 1}, why) for why in (by, "final")]
    guarantee = the_one([began, own[0], *noisy_sums(4.0, 0, 1), MERGED, own[1]])
    named = any("which cluster a client chose" in sentence for sentence in guarantee.does_not_cover)
    assert named == are_open


def test_who_chose_most_often_pays_most():
    facts = [SHARED, *noisy_sums(4.0, 0), TOGETHER]
    chosen = [ChoicesPerturbed(0.5, ("a",)), ChoicesPerturbed(0.5, ("a", "b"))]
    guarantee = the_one([*facts, *chosen])
    assert guarantee.epsilon == epsilon_of(gaussian(4.0), choice(0.5), choice(0.5))


def test_what_is_revealed_without_noise_is_named():
    extra = [
        GroupsSought({}, "updates", "nothing"),
        RiskMeasured(0, RiskEstimate(Figure(0.6, 0.1), 0.6, 5, 5)),
        RoundMeasured(0.5, {}, (2,)),
        AnonymitySetsFormed(0, (("a", "b"),), (0.5,)),
    ]
    guarantee = the_one([SHARED, *noisy_sums(4.0, 0), TOGETHER, *extra])
    named = " ".join(guarantee.does_not_cover)
    for words in ("split", "risk figures", "how many clients", "how far apart"):
        assert words in named
    silent = the_one([SHARED, *noisy_sums(4.0, 0), TOGETHER])
    assert "risk figures" not in " ".join(silent.does_not_cover)


def test_records_are_paid_by_the_client_with_the_dearest_steps():
    steps = StepsPerturbed(1.5, {"a": 3, "b": 10}, {"a": 0.2, "b": 0.1})
    guarantee = the_one([SHARED, steps, TOGETHER] * 4)
    assert guarantee.unit == "record"
    assert guarantee.epsilon == max(
        epsilon_of(*[gaussian(1.5, 0.2)] * 12), epsilon_of(*[gaussian(1.5, 0.1)] * 40)
    )
    assert not any("the server itself" in sentence for sentence in guarantee.does_not_cover)


def test_a_client_that_trained_without_noise_ends_it_for_records():
    steps = StepsPerturbed(1.5, {"a": 3}, {"a": 0.2})
    guarantee = the_one([SHARED, steps, TOGETHER])
    assert guarantee.epsilon is None
    assert "without noise" in guarantee.reason


def test_noise_for_unlike_sets_keeps_what_it_was_found_for():
    z = representative_noise(2.0, DELTA, 2, (5, 3))
    epsilon = the_one([SHARED, RepresentativesPerturbed(0, (5, 3), 1.0, z), TOGETHER] * 2).epsilon
    assert epsilon is not None
    assert epsilon <= 2.0


def test_a_forecast_is_the_account_of_what_will_be_recorded():
    steps = forecast(NoisePlan("steps", 4, DELTA, sampling=0.1, steps=10), 1.5)
    assert steps.epsilon == epsilon_of(*[gaussian(1.5, 0.1)] * 40)
    record = forecast(NoisePlan("record", 4, DELTA), 1.5)
    assert (record.unit, record.epsilon) == ("record", epsilon_of(*[gaussian(1.5)] * 4))
    client = forecast(NoisePlan("client", 4, DELTA, clients=100, sampling=0.5), 1.5)
    assert client.epsilon == epsilon_of(*[gaussian(1.5, 0.5)] * 4)


def test_raw_updates_that_are_kept_are_named():
    began = RunStarted("0", "fedavg", "c", "d", 1, 1, (), {}, {}, 4, (), updates_stored=True)
    guarantee = the_one([began, SHARED, *noisy_sums(4.0, 0), TOGETHER])
    assert any("raw updates" in sentence for sentence in guarantee.does_not_cover)


def test_rounds_that_were_rolled_back_are_paid_as_those_that_count():
    began = RunStarted("0", "fedavg", "c", "d", 1, 9, (), {}, {}, 0, (), secrets="os", delta=DELTA)
    round_ = [SHARED, *noisy_sums(2.0, 0), TOGETHER]
    for superseded in range(3):
        history = history_of([(0, [began, *round_]), (1, round_)], round_ * superseded)
        guarantee = guarantee_status(history).guarantee
        assert guarantee is not None
        assert guarantee.epsilon == epsilon_of(*[gaussian(2.0)] * (2 + superseded))


@pytest.mark.parametrize(
    ("key", "source", "known"),
    [
        ("model.name", "", True),
        ("model.features", "her own", True),
        ("method.name", "her own", False),
    ],
)
def test_what_is_a_user_s_own_is_accounted_for_only_as_features(key, source, known):
    used = ComponentsUsed({key: {"name": "", "options": {}, "source": source}})
    guarantee = the_one([used, SHARED, *noisy_sums(4.0, 0), TOGETHER])
    assert (guarantee.epsilon is not None) == known
    named = any("one record at a time" in sentence for sentence in guarantee.does_not_cover)
    assert named == (key == "model.features")


CLIENTS = ("a", "b")
ASSIGNED = events.ClientsAssigned(dict.fromkeys(CLIENTS, 0), "shared")
ALL_MERGED = events.ModelsMerged("", (2,))
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
    return [*chain.from_iterable((ASSIGNED, NOISE[kind](z), ALL_MERGED) for z in zs)]


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


@settings(max_examples=8)
@given(kinds, st.lists(multipliers, min_size=1, max_size=3), multipliers)
def test_a_further_round_costs_no_less_and_a_bare_one_all(kind, zs, z):
    fewer, more = promised(played(kind, zs)), promised(played(kind, [*zs, z]))
    assert [guarantee.relation for guarantee in fewer] == [guarantee.relation for guarantee in more]
    for before, after in zip(fewer, more, strict=True):
        assert before.epsilon is not None
        assert after.epsilon is not None
        assert before.epsilon <= after.epsilon
    bare = promised([*played(kind, zs), ASSIGNED, ALL_MERGED])
    assert {guarantee.epsilon for guarantee in bare} == {None}


@settings(max_examples=8)
@given(kinds, multipliers)
def test_a_replacement_costs_no_less_than_an_absence(kind, z):
    epsilons = [guarantee.epsilon or 0.0 for guarantee in promised(played(kind, [z]))]
    assert epsilons == sorted(epsilons)


@settings(max_examples=8)
@given(st.tuples(kinds, kinds), multipliers)
def test_other_noise_beside_it_promises_nothing_more(pair, z):
    one, other = pair
    alone = {guarantee.relation for kind in pair for guarantee in promised(played(kind, [z]))}
    both = promised([ASSIGNED, NOISE[one](z), NOISE[other](z), ALL_MERGED])
    assert {guarantee.relation for guarantee in both} <= alone
    views = {guarantee.adversary for kind in pair for guarantee in promised(played(kind, [z]))}
    assert {guarantee.adversary for guarantee in both} <= views | {Term.SEES_MODELS}


def test_noise_that_no_client_added_is_no_account():
    facts = [
        events.ClientsAssigned({}, "shared"),
        events.StepsPerturbed(2.0, {}, {}),
        events.ModelsMerged("", (0,)),
    ]
    (held,) = promised(facts)
    assert held.reason_code == NoGuarantee.NOT_ACCOUNTED
