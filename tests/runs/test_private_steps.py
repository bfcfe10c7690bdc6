"""DP-SGD in a whole run: the ledger holds who took how many noised steps, and only that."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from covey import Config, Engine, Params, Scored, ScoringJob, TrainingJob
from covey.base.events import Event, StepsPerturbed
from covey.base.params import model_hash
from covey.engine.protocol import num_steps
from covey.settings.run import build_run

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


def told(events: Iterable[Event]) -> list[StepsPerturbed]:
    return [event for event in events if isinstance(event, StepsPerturbed)]


def first_round(config: Config, secret: int | None = None) -> tuple[str, tuple[Event, ...]]:
    """The hash of the models after a first round, and its events."""
    run = build_run(config)
    streams = replace(run.streams, secret=secret)
    state = run.algorithm.init(run.streams)
    everybody = run.clients(run.population.clients)
    state, events, *_ = run.algorithm.round(state, everybody, streams)
    return model_hash(state.clusters), events


@pytest.mark.parametrize("method", [{"name": "fedavg"}, {"name": "ifca-mir"}])
def test_the_events_tell_the_steps_that_the_engine_was_asked_for(settings, method: dict[str, Any]):
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
        (fact,) = told(events)
        assert fact.steps == {c.handle: witness.steps[c.name] for c in cohort}
        assert fact.sampling == {c.handle: 8 / len(c.train) for c in cohort}
        assert fact.noise_multiplier == 0.5
    assert len(set(witness.draws)) == len(witness.draws)  # no noise is drawn twice


def test_the_secret_decides_the_noise(settings):
    config = settings(privacy=PRIVATE)
    seeded, again, one, other = (first_round(config, secret)[0] for secret in (None, None, 1, 2))
    assert seeded == again
    assert len({seeded, one, other}) == 3
