"""Cohorts of a fixed size: who is drawn, how often, and what leaving changes."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, compress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from covey.base.events import CohortSampled
from covey.settings.algorithm import has_independent_clusters
from covey.settings.risk import retrain_recipe
from covey.settings.run import build_run
from covey.settings.schema import TrainConfig
from recorded import facts
from runtime.conftest import tiny

DRAWS = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=12)


def test_the_smallest_draws_by_hand():
    draws = [0.5, 0.1, 0.9, 0.1]
    assert TrainConfig(cohort_size=1).takes_part(draws) == [False, True, False, False]
    assert TrainConfig(cohort_size=3).takes_part(draws) == [True, True, False, True]
    assert TrainConfig(cohort_size=9).takes_part(draws) == [True] * 4
    assert TrainConfig(participation=0.5).takes_part(draws) == [False, True, False, True]


@given(DRAWS, st.integers(1, 12))
def test_exactly_so_many_take_part_or_all(draws, size):
    assert sum(TrainConfig(cohort_size=size).takes_part(draws)) == min(size, len(draws))


@given(DRAWS, st.integers(1, 12), st.data())
def test_who_leaves_moves_nobody_else_out(draws, size, data):
    """Who was not drawn changes nothing, and who was is followed by at most one other."""
    gone = data.draw(st.integers(0, len(draws) - 1))
    train = TrainConfig(cohort_size=size)
    before = train.takes_part(draws)
    after = train.takes_part(draws[:gone] + draws[gone + 1 :])
    others = before[:gone] + before[gone + 1 :]
    came = [new and not old for old, new in zip(others, after, strict=True)]
    assert not any(old and not new for old, new in zip(others, after, strict=True))
    assert sum(came) <= before[gone]


def test_every_cohort_is_equally_likely():
    generator, train = np.random.default_rng(0), TrainConfig(cohort_size=2)
    drawn = Counter(
        tuple(compress("abcd", train.takes_part(draws)))
        for draws in generator.random((6_000, 4)).tolist()
    )
    assert set(drawn) == set(combinations("abcd", 2))
    assert chisquare(list(drawn.values())).pvalue > 0.001


@pytest.mark.parametrize("method", ["fedavg", "ifca"])
def test_every_round_has_so_many_and_rounds_differ(whole, method):
    run = whole(tiny(method={"name": method}, train={"cohort_size": 2}))
    cohorts = [fact.handles for fact in facts(run.folder, CohortSampled)]
    assert {len(each) for each in cohorts} == {2}
    assert len(set(cohorts)) > 1


def test_a_cluster_is_not_kept_as_another_client_takes_the_place_of_one_that_leaves():
    alone = {"name": "isolated", "num_clusters": 2}
    for size, independent in ((0, True), (2, False)):
        config = tiny(method=alone, train={"cohort_size": size}, engine={"name": "reference"})
        engine = build_run(config).engine
        assert has_independent_clusters(config, engine) is independent


def test_a_size_that_is_not_reached_is_everybody(whole):
    plain = whole(tiny(method={"name": "fedavg"}))
    large = whole(tiny(method={"name": "fedavg"}, train={"cohort_size": 100}))
    assert large.summary.model_hash == plain.summary.model_hash


@pytest.mark.parametrize(("sets", "drawn"), [(6, {2}), (9, {2}), (3, {0, 1, 2})])
def test_shadows_and_references_draw_the_same_way(sets, drawn):
    """So many of all; of a part of the clients, which have others beside them, their share."""
    run = build_run(tiny(method={"name": "fedavg"}, train={"cohort_size": 2}))
    engine = Counting(run.engine)
    recipe = retrain_recipe(replace(run, engine=engine))
    clients = (*run.population.clients, *run.population.clients)[:sets]
    params, examples = run.init(run.streams), tuple(client.train for client in clients)
    sizes = []
    for place in range(60):
        engine.jobs.clear()
        recipe.play_round(place, params, examples, run.streams.at("test", place))
        sizes.append(len(engine.jobs))
    assert set(sizes) == drawn
    assert sizes.count(1) / len(sizes) == pytest.approx(0.6 if sets == 3 else 0, abs=0.2)


class Counting:
    """An engine that keeps the jobs that it was given."""

    def __init__(self, engine) -> None:
        self.engine, self.jobs = engine, []

    def train(self, jobs):
        jobs = list(jobs)
        self.jobs += jobs
        return self.engine.train(jobs)

    def score(self, jobs):
        return self.engine.score(jobs)
