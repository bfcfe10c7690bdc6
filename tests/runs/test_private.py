"""Runs with noise on clients or on records: what reaches the ledger, and what is carried on."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest

import recorded
from covey import Config, Engine, Params, Scored, ScoringJob, Streams, TrainingJob, resume
from covey.base.events import (
    AnonymitySetsFormed,
    CohortSampled,
    Event,
    RepresentativesPerturbed,
    StepsPerturbed,
    SumPerturbed,
)
from covey.base.params import model_hash
from covey.dp.run_guarantees import representative_noise
from covey.engine.protocol import num_steps
from covey.runs.folder import RunFolder, rounds_in
from covey.settings.run import build_run

FEDAVG = {"name": "fedavg"}
NO_RISK = {"name": "none"}
NO_AUDIT = {"audit_examples": 0}
Kind = TypeVar("Kind", bound=Event)
NOISY = {"client_clip": 0.5, "client_noise": 0.25}
SOUND = {
    "name": "anonymity-sets",
    "noise": "sound",
    "partition": "public-random",
    "min_anonymity": 2,
    "deniability_threshold": 2,
    "radius": 0.5,
    "epsilon": 8.0,
}


def facts(result, kind: type[Kind]) -> list[Kind]:
    return recorded.facts(result.folder, kind)


@pytest.fixture
def quick(play):
    """Play without an audit at the end, and without a red team unless one is named."""

    def played(**sections):
        return play(**{"population": NO_AUDIT, "risk": NO_RISK, **sections})

    return played


def test_sound_noise_is_what_epsilon_takes(quick):
    result = quick(aggregation=SOUND, method=FEDAVG)
    perturbed = facts(result, RepresentativesPerturbed)
    formed = facts(result, AnonymitySetsFormed)
    assert [event.sizes for event in perturbed] == [tuple(map(len, event.sets)) for event in formed]
    assert all(set(event.diameters) == {None} for event in formed)
    z = representative_noise(8.0, 1e-5, 4, (2, 2, 2))
    assert {(e.radius, e.noise_multiplier) for e in perturbed} == {(0.5, z)}


def test_sums_are_hidden_and_survive_a_restart(quick, tmp_path):
    result = quick(privacy=NOISY)
    perturbed = facts(result, SumPerturbed)
    assert {(event.noise_multiplier, event.sampling) for event in perturbed} == {(0.25, 1.0)}
    assert {len(cohort) for cohort in cohorts(result)} == {6}
    cut = tmp_path / "cut"
    shutil.copytree(result.folder, cut)
    folder = RunFolder(cut).checkpoints
    assert rounds_in(folder) == (0, 1, 2, 3)
    for t in (2, 3):
        (folder / f"round-{t:05d}.safetensors").unlink()
    resume(cut)  # replayed rounds are compared with what is recorded
    last = "round-00003.safetensors"
    before = (RunFolder(result.folder).checkpoints / last).read_bytes()
    assert (folder / last).read_bytes() == before


def cohorts(result) -> list[set[str]]:
    """Who took part, round by round, by name."""
    names = {handle: name for name, handle in result.names.items()}
    return [{names[h] for h in event.handles} for event in facts(result, CohortSampled)]


def test_who_came_is_hidden_where_privacy_rests_on_it(quick):
    sections = {"method": FEDAVG, "train": {"participation": 0.5}}
    public = quick(**sections)
    private = quick(**sections, privacy=NOISY)
    secret = quick(**sections, privacy=NOISY, secrets={"source": "os"})
    perturbed = facts(private, SumPerturbed)
    assert [event.sampling for event in perturbed] == [0.5] * 4  # where nobody came, too
    assert {event.clip for event in perturbed} == {0.5}
    # two of them are equal by chance with 2^-24
    assert cohorts(public) != cohorts(private)
    assert cohorts(secret) != cohorts(private)


DP_SGD = {"record_clip": 1.0, "record_noise": 1.0, "noise_model": "local"}


@pytest.mark.parametrize(
    "sections",
    [
        {"method": FEDAVG, "privacy": NOISY, "train": {"participation": 0.99}},
        {"method": FEDAVG, "aggregation": SOUND},
        {
            "method": {"name": "ifca", "initialisation": "random"},
            "privacy": {**DP_SGD, "selection_noise": 4.0},
        },
    ],
    ids=["coins-sums", "speakers-representatives", "batches-gradients-choices"],
)
def test_no_secret_draw_comes_from_numpy(quick, monkeypatch, sections):
    right = Streams.generator

    def refusing(streams: Streams) -> np.random.Generator:
        if streams.path[0] == "hidden":
            raise AssertionError(streams.path)
        return right(streams)

    monkeypatch.setattr(Streams, "generator", refusing)
    quick(**sections, secrets={"source": "os"}, rounds=1)
    with pytest.raises(AssertionError, match="hidden"):
        quick(**sections, rounds=1)


PRIVATE = {"record_clip": 1.0, "record_noise": 0.5, "noise_model": "local"}


class Witness:
    """An engine that counts, by client name, the steps that it was asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.steps: Counter[str] = Counter()
        self.draws: list[Sequence[str | int]] = []

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        return self._engine.train(map(self._seen, jobs))

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        return self._engine.score(jobs)

    def _seen(self, job: TrainingJob) -> TrainingJob:
        path = job.streams.path
        name = str(path[path.index("local training") + 1])
        self.steps[name] += num_steps(len(job.examples), job.recipe)
        self.draws.append(path)
        return job


def steps_in(events: Iterable[Event]) -> list[StepsPerturbed]:
    return [event for event in events if isinstance(event, StepsPerturbed)]


def first_round(config: Config, secret: int | None = None) -> tuple[str, tuple[Event, ...]]:
    """The hash of the models after a first round, and its events."""
    run = build_run(config)
    streams = replace(run.streams, secret=secret)
    state = run.algorithm.init(run.streams)
    all_clients = run.clients(run.population.clients)
    state, events, *_ = run.algorithm.round(state, all_clients, streams)
    return model_hash(state.clusters), events


@pytest.mark.parametrize(
    "method", [{"name": "fedavg"}, {"name": "ifca-mir", "initialisation": "random"}]
)
def test_the_events_record_the_steps_that_the_engine_was_asked_for(
    settings, method: dict[str, Any]
):
    config = settings(
        method=method, privacy=PRIVATE, train={"batch_size": 8}, risk={"name": "none"}
    )
    run = build_run(config)
    witness = Witness(run.engine)
    watched = replace(run, engine=witness).with_clients(run.population.clients)
    algorithm, clients = watched.algorithm, watched.no_clients
    state = algorithm.init(run.streams)
    for t in range(3):
        cohort = run.population.clients[t % 2 :]
        witness.steps.clear()
        state, events, *_ = algorithm.round(
            state, clients.among(cohort), run.streams.at("round", t)
        )
        (fact,) = steps_in(events)
        assert fact.steps == {c.handle: witness.steps[c.name] for c in cohort}
        assert fact.sampling == {c.handle: 8 / len(c.train) for c in cohort}
        assert fact.noise_multiplier == 0.5
    assert len(set(witness.draws)) == len(witness.draws)  # no noise is drawn twice


def test_the_secret_decides_the_noise(settings):
    config = settings(privacy=PRIVATE)
    seeded, again, one, other = (first_round(config, secret)[0] for secret in (None, None, 1, 2))
    assert seeded == again
    assert len({seeded, one, other}) == 3
