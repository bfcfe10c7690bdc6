"""Shadow federations on digits with random labels, where there is something to find.

Six clients of 15 images play a few rounds; 1,210 parameters learn most of them by heart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from covey import (
    ClientUpdate,
    Engine,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    Scored,
    ScoringJob,
    Streams,
    Target,
    TrainingJob,
    keep,
    mean_per_cluster,
)
from covey.base.params import model_hash, subtract
from covey.data.examples import Client, NoShift, Rotation, ShiftRange
from covey.membership.estimators import RiskContext
from covey.membership.shadow import (
    ShadowEstimator,
    ShadowFederation,
    ShadowFederations,
    ShadowResult,
    leave_one_out,
    plan_shadows,
)
from covey.membership.truth import Assessment, Reference, true_risk
from covey.models.build import initial_params

RECIPE = Recipe(local_epochs=6, batch_size=5, learning_rate=0.1, momentum=0.9)
ROUNDS = 5
SIZES = (15,) * 6
ROUND_STREAMS = Streams(0).at("round", ROUNDS)
SHIFTS = (ShiftRange(NoShift(), 0.0, 0.0), ShiftRange(Rotation(), 25.0, 50.0))


def shadows_of(found: Assessment) -> tuple[ShadowFederation, ...]:
    assert isinstance(found.state, ShadowFederations)
    return found.state.clusters[0]


def look(target: Target, setup: RiskContext, shadows: int = 3) -> Assessment:
    return ShadowEstimator(shadows=shadows).assess(target, setup, ROUND_STREAMS)


def architecture() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def init(streams: Streams) -> Params:
    with streams.lent_to_torch():
        return initial_params(architecture())


@dataclass(frozen=True)
class World:
    engine: Engine
    members: tuple[Client, ...]
    setup: RiskContext
    reference: Reference

    def play_round(self, params: Params, sets: tuple[Examples, ...], streams: Streams) -> Params:
        jobs = [TrainingJob(params, each, streams.at(i), RECIPE) for i, each in enumerate(sets)]
        updates = (
            ClientUpdate(f"P{i}", 0, subtract(local, params), 1.0)
            for i, local in enumerate(self.engine.train(jobs))
        )
        return mean_per_cluster((params,), updates, streams).clusters[0]

    def target(self, rounds: int) -> Target:
        params = init(Streams(0).at("model"))
        sets = tuple(client.train for client in self.members)
        for index in range(rounds):
            params = self.play_round(params, sets, Streams(0).at("round", index))
        return Target(0, params, self.members, rounds)


@pytest.fixture(scope="module")
def world(digits: Examples, make_client: Callable[..., Client]) -> World:
    labels = np.random.default_rng(1).integers(10, size=len(digits))
    noisy = Examples(digits.inputs, torch.from_numpy(labels))

    def images(start: int, stop: int) -> Examples:
        return noisy.take(torch.arange(start, stop))

    starts = np.cumsum((0, *SIZES))
    members = tuple(
        make_client(f"c{i}", images(int(start), int(start) + size), group=0)
        for i, (start, size) in enumerate(zip(starts, SIZES, strict=False))
    )
    engine = ReferenceEngine(architecture())

    def play(_: int, params: Params, sets: tuple[Examples, ...], streams: Streams) -> Params:
        return here.play_round(params, sets, streams)

    setup = RiskContext(
        engine=engine,
        pool=images(600, 1000),
        shifts=SHIFTS,
        start=(init(Streams(0).at("model")),),
        play_round=play,
        streams=Streams(0),
    )
    here = World(engine, members, setup, Reference((images(1000, 1400),)))
    return here


@pytest.fixture(scope="module")
def trained(world: World) -> Target:
    return world.target(ROUNDS)


@pytest.fixture(scope="module")
def assessed(world: World, trained: Target) -> Assessment:
    return look(trained, world.setup)


def test_the_figure_is_near_the_truth(world: World, trained: Target, assessed: Assessment):
    truth = true_risk(world.engine, trained.params, world.members, world.reference, ROUND_STREAMS)
    assert truth is not None
    assert truth.risk > 0.7  # there is something to find
    figure = assessed.estimate
    assert figure.is_known, figure.reason
    assert figure.calibrated
    # The truth rests on 90 members (SE 0.03 or so), and the shadows differ by about as
    # much among each other; 0.1 is three such deviations.
    assert abs(figure.risk - truth.risk) < 0.1
    assert 0.01 < figure.standard_error < 0.1
    assert (figure.members, figure.non_members) == (90, 310)  # all that the pool has
    assert "3 shadow federations of 6 pseudo-clients" in figure.reason


def test_shadows_copy_the_clients_sizes_and_groups_and_have_played_as_many_rounds(
    assessed: Assessment,
):
    assert len(shadows_of(assessed)) == 3
    for federation in shadows_of(assessed):
        assert federation.profile == tuple((0, size) for size in SIZES)
        assert (federation.rounds, federation.place[1]) == (ROUNDS, ROUNDS)
    hashes = {model_hash([federation.params]) for federation in shadows_of(assessed)}
    assert len(hashes) == 3


def test_a_figure_is_deterministic(world: World, trained: Target, assessed: Assessment):
    again = look(trained, world.setup)
    assert again.estimate == assessed.estimate
    for one, other in zip(shadows_of(again), shadows_of(assessed), strict=True):
        assert model_hash([one.params]) == model_hash([other.params])


class Diary:
    """Counts the rounds that shadows play; their models stay as they are."""

    def __init__(self, setup: RiskContext) -> None:
        self.played: list[tuple[int, ...]] = []
        self.sets: list[tuple[Examples, ...]] = []
        self.setup = replace(setup, play_round=self.note)

    def note(self, _: int, params: Params, sets: tuple[Examples, ...], __: Streams) -> Params:
        self.played.append(tuple(len(each) for each in sets))
        self.sets.append(sets)
        return params


def kept(
    world: World, diary: Diary, members: tuple[Client, ...], at: int, before: Assessment
) -> tuple[ShadowFederation, ...]:
    """The shadows after a look at round `at` at an untrained model."""
    assert before.state is not None
    states = keep({}, before.state)
    target = Target(0, init(Streams(0)), members, at, states)
    return shadows_of(look(target, diary.setup, 2))


def many(world: World, count: int = 20) -> tuple[Client, ...]:
    one = world.members[0]
    return tuple(
        replace(one, name=f"m{i}", handle=f"M{i}", train=one.train.first(3)) for i in range(count)
    )


def looked(world: World, diary: Diary) -> Assessment:
    """Twenty clients of three images, first seen at round 2."""
    target = Target(0, init(Streams(0)), many(world), 2)
    return look(target, diary.setup, 2)


def test_shadows_play_on_while_the_clients_stay(world: World):
    diary = Diary(world.setup)
    first = looked(world, diary)
    assert diary.played == [(3,) * 20] * 4  # two shadows, rounds 0 and 1
    shadows = kept(world, diary, many(world), 5, first)
    assert [(each.place[1], each.rounds) for each in shadows] == [(2, 5)] * 2
    assert len(diary.played) == 4 + 6  # rounds 2, 3 and 4
    inputs = [[each.inputs for each in sets] for sets in diary.sets]
    same = zip(inputs[0], inputs[4], strict=True)
    assert all(torch.equal(*pair) for pair in same)  # the same members throughout


def test_shadows_stay_when_one_client_in_ten_comes_or_goes(world: World):
    diary = Diary(world.setup)
    first = looked(world, diary)
    regrouped = (*many(world, 19), replace(many(world)[-1], group=1))
    for members in (many(world, 19), many(world, 22), regrouped):
        shadows = kept(world, diary, members, 3, first)
        assert [each.place[1] for each in shadows] == [2, 2]
        assert shadows[0].profile == shadows_of(first)[0].profile


def test_shadows_are_rebuilt_when_more_than_one_client_in_ten_changes(world: World):
    diary = Diary(world.setup)
    first = looked(world, diary)
    swapped = tuple(
        replace(each, group=1) if index < 2 else each for index, each in enumerate(many(world))
    )  # two leave and two others come
    for members in (many(world, 17), many(world, 23), swapped):
        diary.played.clear()
        shadows = kept(world, diary, members, 3, first)
        assert [(each.place[1], each.rounds) for each in shadows] == [(3, 3)] * 2
        assert diary.played == [(3,) * len(members)] * 6  # from round 0 on


def test_members_and_non_members_of_a_shadow_share_no_image(world: World):
    # The pool's images are told apart by their index, written into the first pixels.
    pool = Examples(
        torch.zeros(200, 1, 8, 8, dtype=torch.uint8), torch.zeros(200, dtype=torch.int64)
    )
    pool.inputs[:, 0, 0, 0] = torch.arange(200, dtype=torch.uint8)
    scored: list[list[int]] = []

    class Spy(ReferenceEngine):
        def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
            scored.extend(job.examples.inputs[:, 0, 0, 0].tolist() for job in jobs)
            return super().score(jobs)

    diary = Diary(replace(world.setup, pool=pool))
    target = Target(0, init(Streams(0)), many(world), 1)
    look(target, replace(diary.setup, engine=Spy(architecture())), 2)
    members, others, others_again = scored[:3]
    assert (len(set(members)), len(set(others))) == (60, 140)
    assert not set(members) & set(others)
    assert others == others_again
    trained_on = [int(x) for each in diary.sets[0] for x in each.inputs[:, 0, 0, 0]]
    assert trained_on == members


def test_pseudo_clients_images_are_shifted_as_their_groups_are(world: World):
    diary = Diary(world.setup)
    turned = tuple(replace(each, group=1) for each in many(world, 4))
    target = Target(0, init(Streams(0)), turned, 1)
    look(target, diary.setup, 2)
    pool = {tuple(image.flatten().tolist()) for image in world.setup.pool.inputs}
    images = [image for each in diary.sets[0] for image in each.inputs]
    assert not any(tuple(image.flatten().tolist()) in pool for image in images)


def pooled(world: World, size: int) -> RiskContext:
    return replace(world.setup, pool=world.setup.pool.first(size))


def test_a_figure_is_withheld_when_the_pool_allows_no_three_sizes(world: World, trained: Target):
    # Half of 80 holds two clients of 15, and a line needs three sizes.
    assessment = look(trained, pooled(world, 80))
    assert not assessment.estimate.is_known
    assert "need 90 examples and at least 10 more" in assessment.estimate.reason
    assert "holds 80" in assessment.estimate.reason
    assert shadows_of(assessment) == ()


def test_a_figure_is_extrapolated_when_the_pool_cannot_match_the_cluster(
    world: World, trained: Target
):
    # 90 members and 10 more are needed; half of 99 holds 3 clients of 15, then 2, then 1.
    assessment = look(trained, pooled(world, 99))
    figure = assessment.estimate
    assert figure.is_known
    assert figure.reason.startswith("extrapolated: 9 shadow federations of up to 45")
    assert not figure.calibrated
    sizes = [len(each.profile) for each in shadows_of(assessment)]
    assert sizes == [3, 3, 3, 2, 2, 2, 1, 1, 1]
    truth = true_risk(world.engine, trained.params, world.members, world.reference, ROUND_STREAMS)
    assert truth is not None
    off = np.hypot(figure.standard_error, truth.standard_error)
    assert abs(figure.risk - truth.risk) < 3 * off  # one time in 370 by chance
    profile = tuple((0, size) for size in SIZES)
    assert plan_shadows(profile, 100, 3) == (profile,) * 3


def test_extrapolating_shadows_are_kept_too(world: World):
    small = pooled(world, 40)  # half of it: 6 of 20 clients with 3 images, then 3, then 2
    diary = Diary(world.setup)
    diary.setup = replace(diary.setup, pool=small.pool)
    first = looked(world, diary)
    assert [len(each.profile) for each in shadows_of(first)] == [6, 6, 3, 3, 2, 2]
    shadows = kept(world, diary, many(world), 4, first)
    assert [each.place for each in shadows] == [each.place for each in shadows_of(first)]


def test_everybody_trains_along_in_the_shared_rounds(world: World):
    diary = Diary(world.setup)
    diary.setup = replace(
        diary.setup, shared_rounds=2, population_profile=((0, 3),) * 30 + ((1, 4),) * 2
    )
    target = Target(0, init(Streams(0)), many(world), 3)
    hands = look(target, diary.setup, 2)
    # Two shadows; beside the cluster's 20 clients the 12 others, twice.
    shared, alone = (3,) * 30 + (4,) * 2, (3,) * 20
    assert diary.played == [shared, shared, alone] * 2
    assert shadows_of(hands)[0].profile == ((0, 3),) * 20


def test_a_figure_says_how_the_groups_are_known(world: World, assessed: Assessment):
    assert "as the clients report" in assessed.estimate.reason


def test_a_figure_is_withheld_when_the_shadows_learn_less_than_the_cluster(
    world: World, trained: Target
):
    lazy = Diary(world.setup).setup
    assessment = look(trained, lazy, 2)
    assert not assessment.estimate.is_known
    assert "train accuracy" in assessment.estimate.reason
    assert len(shadows_of(assessment)) == 2  # they play on: they may catch up


def test_a_cluster_without_clients_has_no_figure(world: World, trained: Target):
    nobody = replace(trained, members=())
    assessment = look(nobody, world.setup)
    assert "no client has chosen this cluster" in assessment.estimate.reason


def test_one_shadow_alone_is_judged_by_its_own_threshold(world: World, trained: Target):
    figure = look(trained, world.setup, 1).estimate
    assert figure.is_known, figure.reason
    assert figure.calibrated
    # the sampling error of 90 members and 90 non-members, at most sqrt(0.5 / 90) / 2
    assert 0 < figure.standard_error < 0.038 * np.sqrt(2)  # of one more draw


def test_a_shadow_is_judged_by_the_thresholds_of_others():
    """Two whose losses lie apart: the threshold of either says one thing of all the other's."""
    low, high = (
        ShadowResult({0: np.full(10, 1.0 + at)}, {0: np.full(10, 0.0 + at)}, 1.0, 0.5, 0.5)
        for at in (0.0, 10.0)
    )
    assert [each.risk for each in leave_one_out([low, high])] == [0.5, 0.5]
    assert [each.risk for each in leave_one_out([low])] == [1.0]


@pytest.mark.parametrize("which", range(3))
def test_one_shadow_that_diverged_withholds_the_figure(world: World, trained: Target, which: int):
    played: list[Params] = []

    def play(_: int, params: Params, *__: object) -> Params:
        diverged = len(played) == which
        played.append({k: v * torch.nan if diverged else v for k, v in params.items()})
        return played[-1]

    setup = replace(world.setup, play_round=play)
    found = look(replace(trained, round_index=1), setup).estimate
    assert not found.is_known
    assert "diverged" in found.reason
    assert len(played) == 3
