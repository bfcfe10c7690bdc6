"""Shadow federations on digits with random labels, where there is something to find.

Six clients of 15 images play a few rounds; 1,210 parameters learn most of them by heart.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from covey import (
    ComponentState,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    Streams,
    Target,
    with_state,
)
from covey.base.params import model_hash
from covey.data.examples import Client, NoShift, Rotation, ShiftRange
from covey.engine.optimizers import Sgd
from covey.membership.estimators import RiskContext
from covey.membership.shadow import (
    MOST_GAP,
    MOST_LEVEL,
    ShadowEstimator,
    ShadowFederation,
    ShadowFederations,
    ShadowResult,
    _mismatch,  # pyright: ignore[reportPrivateUsage]
    leave_one_out,
    plan_shadows,
)
from covey.membership.truth import Assessment, NonMembers, true_risk
from membership.memorising import Federation, mlp, noisy, part

RECIPE = Recipe(local_epochs=6, batch_size=5, learning_rate=0.1, optimizer=Sgd(momentum=0.9))
HERE = Federation(RECIPE, hidden=16)
ROUNDS = 5
SIZES = (15,) * 6
ROUND_STREAMS = Streams(0).at("round", ROUNDS)
SHIFTS = (ShiftRange(NoShift(), 0.0, 0.0), ShiftRange(Rotation(), 25.0, 50.0))


def shadows_of(assessment: Assessment) -> tuple[ShadowFederation, ...]:
    assert isinstance(assessment.state, ShadowFederations)
    return assessment.state.clusters[0]


def look(target: Target, setup: RiskContext, shadows: int = 3) -> Assessment:
    return ShadowEstimator(shadows=shadows).assess(target, setup, ROUND_STREAMS)


@dataclass(frozen=True)
class World:
    members: tuple[Client, ...]
    setup: RiskContext
    reference: NonMembers


@pytest.fixture(scope="module")
def world(digits, make_client) -> World:
    images = noisy(digits, seed=1)
    members = tuple(
        make_client(f"c{i}", part(images, 15 * i, 15 * i + 15), group=0) for i in range(len(SIZES))
    )
    setup = RiskContext(
        engine=HERE.engine,
        pool=part(images, 600, 1000),
        shifts=SHIFTS,
        start=(HERE.init(Streams(0).at("model")),),
        play_round=HERE.play_round,
        streams=Streams(0),
    )
    return World(members, setup, NonMembers((part(images, 1000, 1400),)))


@pytest.fixture(scope="module")
def trained(world) -> Target:
    params = HERE.played(tuple(client.train for client in world.members), ROUNDS)
    return Target(0, params, world.members, ROUNDS)


@pytest.mark.slow
def test_the_figure_is_near_the_truth_and_of_shadows_like_the_cluster(world, trained):
    truth = true_risk(HERE.engine, trained.params, world.members, world.reference, ROUND_STREAMS)
    assert truth is not None
    assert truth.risk > 0.7  # there is something to find
    assessed = look(trained, world.setup)
    figure = assessed.estimate
    assert figure.is_known, figure.reason
    assert figure.calibrated
    # The truth rests on 90 members (SE 0.03 or so), and the shadows differ by about as
    # much among each other; 0.1 is three such deviations.
    assert abs(figure.risk - truth.risk) < 0.1
    assert 0.01 < figure.standard_error < 0.1
    assert (figure.members, figure.non_members) == (90, 310)  # all that the pool has
    assert "3 shadow federations of 6 pseudo-clients" in figure.reason
    shadows = shadows_of(assessed)
    for federation in shadows:
        assert federation.profile == tuple((0, size) for size in SIZES)
        assert (federation.rounds, federation.place[1]) == (ROUNDS, ROUNDS)
    assert len({model_hash([shadow.params]) for shadow in shadows}) == 3


class Diary:
    """Counts the rounds that shadows play; their models stay as they are."""

    def __init__(self, setup: RiskContext) -> None:
        self.played: list[tuple[int, ...]] = []
        self.sets: list[tuple[Examples, ...]] = []
        self.setup = replace(setup, play_round=self.note)

    def note(self, _: int, params: Params, sets: tuple[Examples, ...], __: Streams) -> Params:
        self.played.append(tuple(len(examples) for examples in sets))
        self.sets.append(sets)
        return params


@pytest.fixture
def diary(world) -> Diary:
    return Diary(world.setup)


@pytest.fixture
def many(world) -> Callable[..., tuple[Client, ...]]:
    """Clients of three images."""
    one = world.members[0]
    few = one.train.first(3)
    return lambda count=20: tuple(
        replace(one, name=f"m{i}", handle=f"M{i}", train=few) for i in range(count)
    )


def looked(diary: Diary, members: tuple[Client, ...], at: int, *before: ComponentState | None):
    """Look at an untrained model of these clients in a round."""
    states = with_state({}, before[0]) if before and before[0] else {}
    return look(Target(0, HERE.init(Streams(0)), members, at, states), diary.setup, 2)


def test_shadows_play_on_while_the_clients_stay(diary, many):
    first = looked(diary, many(), 2)
    assert diary.played == [(3,) * 20] * 4  # two shadows, rounds 0 and 1
    shadows = shadows_of(looked(diary, many(), 5, first.state))
    assert [(shadow.place[1], shadow.rounds) for shadow in shadows] == [(2, 5)] * 2
    assert len(diary.played) == 4 + 6  # rounds 2, 3 and 4
    inputs = [[examples.inputs for examples in sets] for sets in diary.sets]
    same = zip(inputs[0], inputs[4], strict=True)
    assert all(torch.equal(*pair) for pair in same)  # the same members throughout


def test_shadows_are_rebuilt_when_more_than_one_client_in_ten_changes(diary, many):
    first = looked(diary, many(), 2)
    swapped = (*(replace(client, group=1) for client in many(2)), *many()[2:])
    for members in (many(17), many(23), swapped):  # two leave and two others come
        diary.played.clear()
        shadows = shadows_of(looked(diary, members, 3, first.state))
        assert [(shadow.place[1], shadow.rounds) for shadow in shadows] == [(3, 3)] * 2
        assert diary.played == [(3,) * len(members)] * 6  # from round 0 on


def test_members_and_non_members_of_a_shadow_share_no_image(world, many):
    # The pool's images are told apart by their index, written into the first pixels.
    pool = Examples(
        torch.zeros(200, 1, 8, 8, dtype=torch.uint8), torch.zeros(200, dtype=torch.int64)
    )
    pool.inputs[:, 0, 0, 0] = torch.arange(200, dtype=torch.uint8)
    scored: list[list[int]] = []

    class Spy(ReferenceEngine):
        def score(self, jobs):  # pyright: ignore
            scored.extend(job.examples.inputs[:, 0, 0, 0].tolist() for job in jobs)
            return super().score(jobs)

    diary = Diary(replace(world.setup, pool=pool, engine=Spy(mlp(Streams(0), 16))))
    looked(diary, many(), 1)
    members, others, others_again = scored[:3]
    assert (len(set(members)), len(set(others))) == (60, 140)
    assert not set(members) & set(others)
    assert others == others_again
    trained_on = [int(x) for examples in diary.sets[0] for x in examples.inputs[:, 0, 0, 0]]
    assert trained_on == members


def pooled(world: World, size: int) -> RiskContext:
    return replace(world.setup, pool=world.setup.pool.first(size))


def test_a_figure_is_extrapolated_when_the_pool_cannot_match_the_cluster(world, trained):
    # 90 members and 10 more are needed; half of 99 holds 3 clients of 15, then 2, then 1.
    assessment = look(trained, pooled(world, 99))
    figure = assessment.estimate
    assert figure.is_known
    assert figure.reason.startswith("extrapolated: 9 shadow federations of up to 45")
    assert not figure.calibrated
    assert not figure.counts
    estimator = ShadowEstimator(use_extrapolated=True)
    steering = estimator.assess(trained, pooled(world, 99), ROUND_STREAMS).estimate
    assert steering == replace(figure, steers=True)
    assert steering.counts
    sizes = [len(shadow.profile) for shadow in shadows_of(assessment)]
    assert sizes == [3, 3, 3, 2, 2, 2, 1, 1, 1]
    profile = tuple((0, size) for size in SIZES)
    assert plan_shadows(profile, 100, 3) == (profile,) * 3


def test_the_gap_must_agree_and_the_level_need_not_by_hand():
    """After a warm start: .594 of the shadows' members are right, .680 of the cluster's."""
    alike = [0.594, 0.594, 0.594]
    assert not _mismatch("train accuracy", alike, 0.68, 0.012, MOST_LEVEL)
    assert _mismatch("train accuracy", alike, 0.70, 0.012, MOST_LEVEL)
    gaps = [0.02, 0.03, 0.04]
    assert not _mismatch("gap", gaps, 0.055, 0.005, MOST_GAP)
    said = _mismatch("gap", gaps, 0.065, 0.005, MOST_GAP)
    assert said == (
        "the shadows' gap is 0.030 and the cluster model's 0.065, further apart than 0.030"
    )
    # s^2 = (4 * .02^2 + 2 * .01^2) / 6, and below .02^2: SE = .02 sqrt(4 / 3), twice that .046
    assert not _mismatch("gap", gaps, 0.075, 0.02, MOST_GAP)
    assert _mismatch("gap", gaps, 0.077, 0.02, MOST_GAP)


def test_a_figure_is_withheld_when_the_shadows_learn_less_than_the_cluster(diary, trained):
    assessment = look(trained, diary.setup, 2)
    assert not assessment.estimate.is_known
    assert "train accuracy" in assessment.estimate.reason
    assert len(shadows_of(assessment)) == 2  # they play on: they may catch up


def test_a_shadow_is_judged_by_the_thresholds_of_others():
    """Two whose losses lie apart: the threshold of either says one thing of all the other's."""
    low, high = (
        ShadowResult({0: np.full(10, 1.0 + at)}, {0: np.full(10, 0.0 + at)}, 1.0, 0.5, 0.5)
        for at in (0.0, 10.0)
    )
    assert [estimate.risk for estimate in leave_one_out([low, high])] == [0.5, 0.5]
    assert [estimate.risk for estimate in leave_one_out([low])] == [1.0]


@pytest.mark.parametrize("which", [0, 2])
def test_one_shadow_that_diverged_withholds_the_figure(world, trained, which):
    played: list[Params] = []

    def play(_: int, params: Params, *__: object) -> Params:
        diverged = len(played) == which
        played.append({k: v * torch.nan if diverged else v for k, v in params.items()})
        return played[-1]

    setup = replace(world.setup, play_round=play)
    estimate = look(replace(trained, round_index=1), setup).estimate
    assert not estimate.is_known
    assert "diverged" in estimate.reason
    assert len(played) == 3
