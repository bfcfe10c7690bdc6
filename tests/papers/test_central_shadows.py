"""The paper's red team: central shadows of digits with random labels, and Shokri's attack."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey import (
    ConfigError,
    Examples,
    Proximal,
    Recipe,
    RiskContext,
    RiskEstimate,
    Streams,
    Target,
)
from covey.data.examples import Brightness, NoShift, ShiftRange
from covey_papers.central_shadows import (
    AttackData,
    CentralShadows,
    attack_model,
    centrally,
    judge,
    split_pool,
    trained_shadows,
)
from membership.memorising import Federation, mlp, noisy, part
from support.runs import tiny

RECIPE = Recipe(local_epochs=60, batch_size=5, learning_rate=0.1)
HERE = Federation(RECIPE, hidden=32)
STREAMS = Streams(0).at("round", 2)
SHIFTS = tuple(ShiftRange(NoShift(), 0.0, 0.0) for _ in range(2))


@pytest.fixture(scope="module")
def context(digits) -> RiskContext:
    return RiskContext(
        engine=HERE.engine,
        pool=part(noisy(digits, seed=1), 600, 1000),
        shifts=SHIFTS,
        init=HERE.init,
        recipe=lambda _: RECIPE,
    )


@pytest.fixture
def cluster(digits, make_client) -> Callable[..., Target]:
    """Six clients of 15 images before a round; the shadows play as many."""
    images = noisy(digits, seed=2)
    members = tuple(
        make_client(f"c{i}", part(images, 15 * i, 15 * i + 15), group=i // 4) for i in range(6)
    )
    return lambda rounds=1, members=members: Target(0, HERE.init(Streams(1)), members, rounds)


def measured(target: Target, context: RiskContext) -> RiskEstimate:
    return CentralShadows().estimate(target, context, STREAMS)


def test_shadows_that_learn_by_heart_say_so_and_clients_may_act_on_it(cluster, context):
    estimate = measured(cluster(), context)
    assert 0.65 < estimate.risk <= 1
    assert (estimate.members, estimate.non_members) == (90, 310)
    assert (estimate.calibrated, estimate.steers, estimate.counts) == (False, True, True)
    assert estimate.reason.startswith("as published, not calibrated: 3 central shadow models of 90")
    # theta_j is untrained, and all of the pool look like non-members
    assert float(estimate.reason.split("right on ")[1].split()[0]) > 0.9
    assert measured(cluster(members=cluster().members[::-1]), context) == estimate


def test_shadows_that_have_not_trained_show_nothing(cluster, context):
    estimate = measured(cluster(rounds=0), context)
    assert abs(estimate.risk - 0.5) < 2 * estimate.standard_error


@pytest.mark.parametrize(
    ("size", "clients", "words"),
    [(400, 0, "no client"), (0, 6, "pool 0"), (60, 6, "needs 10 members and 10 non-members")],
)
def test_it_says_what_is_missing(cluster, context, size, clients, words):
    small = replace(context, pool=context.pool.first(size))
    estimate = measured(cluster(members=cluster().members[:clients]), small)
    assert not estimate.counts
    assert words in estimate.reason


def test_one_shadow_that_diverged_withholds_the_figure(cluster, context):
    draws: list[covey.Params] = []

    def init(streams: Streams) -> covey.Params:
        lost = len(draws) == 1
        draws.append({k: v * torch.nan if lost else v for k, v in HERE.init(streams).items()})
        return draws[-1]

    estimate = measured(cluster(rounds=1), replace(context, init=init))
    assert estimate.reason == "its shadow models diverged"
    assert len(draws) == 3


@given(count=st.integers(1, 39), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_shadow_deals_all_of_the_pool_in_the_clusters_mix_of_groups(make_client, count, sizes):
    # each image is its own index, which the second group's shift doubles
    index = torch.arange(40, dtype=torch.uint8).view(-1, 1, 1, 1)
    members = tuple(
        make_client(f"c{i}", Examples(index[:n], torch.zeros(n, dtype=torch.int64)), group=i % 2)
        for i, n in enumerate(sizes)
    )
    shifts = tuple(ShiftRange(Brightness(), factor, factor) for factor in (1.0, 2.0))
    pool = Examples(index, torch.arange(40))
    context = RiskContext(HERE.engine, pool=pool, shifts=shifts)
    split = split_pool(Target(0, {}, members, 1), context, count, Streams(0))
    assert (len(split.members), len(split.non_members)) == (count, 40 - count)
    both = torch.cat([split.members.labels, split.non_members.labels])
    assert sorted(both.tolist()) == list(range(40))
    of_second = sum(sizes[1::2]) / sum(sizes)
    for side in (split.members, split.non_members):
        factors = side.inputs.flatten()[side.labels > 0] / side.labels[side.labels > 0]
        assert set(factors.tolist()) <= {1.0, 2.0}
        assert abs(int((factors == 2).sum()) - of_second * len(side)) < 2  # 0 stays 0


def test_a_shadow_makes_as_many_passes_as_a_client(make_client, cluster, context):
    # three steps of five examples are one pass over 15; over 90 it takes 18
    by_steps = replace(RECIPE, local_steps=3, objective=Proximal())
    assert centrally(by_steps, 6.0) == replace(RECIPE, local_steps=18)
    assert centrally(RECIPE, 6.0) == RECIPE  # passes are passes
    assert centrally(replace(RECIPE, local_steps=3), 0.1).local_steps == 1  # 0 would be epochs
    noted: list[covey.TrainingJob] = []

    class Spy(covey.ReferenceEngine):
        def train(self, jobs):
            noted.extend(jobs := list(jobs))
            return (job.start for job in jobs)

    spying = replace(
        context,
        engine=Spy(mlp(Streams(0), 32)),
        recipe=lambda t: replace(by_steps, learning_rate=t + 1.0),
    )
    streams = [Streams(k) for k in range(2)]
    splits = [split_pool(cluster(), spying, 90, at) for at in streams]
    trained_shadows(splits, cluster(rounds=2), spying, streams)
    assert [(job.recipe.local_steps, job.recipe.learning_rate) for job in noted] == [
        (18, 1.0), (18, 1.0), (18, 2.0), (18, 2.0)
    ]  # fmt: skip
    assert [len(job.examples) for job in noted] == [90] * 4


def data(sure: float, unsure: float, records: int = 60) -> AttackData:
    """Members of two classes are answered with one confidence, and others with another."""
    labels, member = np.arange(records) % 2, np.arange(records) < records / 3
    of_label = np.where(member, sure, unsure)
    confidences = np.where(
        np.arange(2) == labels[:, None], of_label[:, None], 1 - of_label[:, None]
    )
    return AttackData(confidences, labels, member)


def test_the_attack_learns_from_some_shadows_and_is_judged_on_another():
    a = attack_model([data(0.95, 0.55), data(0.9, 0.6)], Streams(0))
    assert judge(a, data(0.92, 0.58)).risk == 1.0
    assert judge(a, data(0.58, 0.92)).risk == 0.0  # it learned nothing of the judged one
    seen = data(0.92, 0.58)
    assert np.array_equal(a(seen), a(replace(seen, member=~seen.member)))
    # a class of which only members are known is answered by 1/2
    none = replace(seen, member=seen.labels == 0)
    assert set(attack_model([none], Streams(0))(seen)) == {0.5}


@pytest.mark.parametrize(
    "settings",
    [
        {"method": {"name": "ridge"}},
        {"model": {"task": "tokens", "name": "transformer"}},
        {"risk": {"shadows": 1}},
    ],
)
def test_settings_without_confidences_or_training_are_refused(settings):
    with pytest.raises(ConfigError, match=r"risk"):
        covey.Config.of(settings | {"risk": {"name": "paper"} | settings.get("risk", {})})


@pytest.mark.slow
def test_a_run_acts_on_the_figure_and_counts_it_nowhere(tmp_path):
    config = tiny(
        rounds=2,
        model={"name": "linear"},
        risk={"name": "paper", "shadows": 2, "every": 1},
        population={"pool": 150},
    )
    played = covey.run(config=config, out=tmp_path / "run")
    history = played.history
    assert {e.cluster for e in history.measured if e.estimate.counts} == {0, 1}
    for cluster_summary in played.summary.clusters:
        assert str(cluster_summary.measured).endswith(", not calibrated")
        assert (cluster_summary.risk, cluster_summary.calibrated) == (None, False)
    assert not history.figures
