"""Whom a user's own algorithm is handed is on record; what its rounds return is checked."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
import torch

import covey
from covey import Algorithm, Clients, ConfigError, RoundResult, ServerState, Setup, Streams
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.state import Cohort
from covey.base.events import ClientsAssigned, ClientsHandedOut, CohortSampled, Event, ModelsMerged
from covey.base.params import add, scale
from covey.data.examples import Client
from recorded import events_of
from support.runs import small

E = TypeVar("E", bound=Event)

ROUNDS = 2
SETTINGS = small(
    rounds=ROUNDS, train={"learning_rate": 0.5}, risk={"every": 2}, checkpoints={"every": 1}
)
LEAVER = "client-00003"


@pytest.fixture(autouse=True)
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def settings(method: Algorithm, **more: object) -> covey.Config:
    return covey.Config.of({**SETTINGS, "method": method, **more})


def played(method: Algorithm, out: Path, **more: object) -> covey.Run:
    return covey.run(config=settings(method, **more), out=out)


def without(method: Algorithm, out: Path) -> covey.Run:
    """Play the run that never met the leaver."""
    population = {**SETTINGS["population"], "exclude": [LEAVER]}
    return played(method, out, population=population)


def facts(run: covey.Run, kind: type[E]) -> list[tuple[int, E]]:
    events = events_of(run.folder)
    return [(t, event) for t, event in events if t is not None and isinstance(event, kind)]


class WithoutEvents(Algorithm):
    """Trains, and says nothing of it: scenario one."""

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        model = state.clusters[0]
        all_clients = clients.all_in_one("shared").clusters
        updates = [*clients.train(state.clusters, all_clients, streams)]
        for update in updates:
            model = add(model, scale(update.update, 1 / len(updates)))
        return RoundResult(state.with_models((model,)), events=())


class Weighed(Algorithm):
    """Trains half of them with their events, and scales the step by everybody's losses."""

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        half = clients.among(clients.cohort[::2])  # the leaver is in the other half
        result = half.train_and_aggregate(state, half.all_in_one("shared"), streams)
        losses = clients.evaluate(state.clusters, streams)
        old, new = state.clusters[0], result.state.clusters[0]
        share = float(losses.mean()) / 10
        moved = {n: old[n] + share * (new[n] - old[n]) for n in old}
        return result._replace(state=replace(result.state, clusters=(moved,)))


class Peeking(Algorithm):
    """Trains all but one, whose examples it only counts."""

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        first = clients.among(clients.cohort[:1])
        share = sum(int(c.train.labels.sum()) for c in clients.cohort) / 1000
        result = first.train_and_aggregate(state, first.all_in_one("shared"), streams)
        old, new = state.clusters[0], result.state.clusters[0]
        moved = {n: old[n] + share * (new[n] - old[n]) for n in old}
        return result._replace(state=replace(result.state, clusters=(moved,)))


class PartlyDrained(Algorithm):
    """Takes the fourth update that comes, which is the leaver's, and asks for no more."""

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        all_clients = clients.all_in_one("shared").clusters
        updates = clients.train(state.clusters, all_clients, streams)
        *_, last = islice(updates, 4)
        return RoundResult(state.with_models((add(state.clusters[0], last.update),)), ())


class Foreseeing(FedAvg):
    """Looks at all clients of the run, and trains one of the cohort in every round."""

    traits: ClassVar[covey.Traits] = covey.Traits(reads_population=True)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        share = sum(len(client.train) for client in clients.setup.population) / 1000
        one = clients.among(clients.cohort[:1])
        result = one.train_and_aggregate(state, one.all_in_one("shared"), streams)
        moved = scale(result.state.clusters[0], 1 - share)
        return result._replace(state=replace(result.state, clusters=(moved,)))


HANDED_OUT = [WithoutEvents(), Weighed(), Peeking(), PartlyDrained(), Foreseeing()]


@pytest.mark.parametrize("method", HANDED_OUT, ids=lambda method: type(method).__name__)
def test_whoever_is_handed_out_has_to_be_taken_out_from_the_first_round_on(method, tmp_path):
    run = played(method, tmp_path / "run")
    chosen = run.plan(LEAVER, basis="erasure").chosen
    assert chosen is not None
    assert (chosen.answer, chosen.rounds_replayed) == ("retrain", ROUNDS)
    assert chosen.first_affected_round == 0


def test_whoever_is_only_evaluated_leaves_by_a_retraining_without_it(tmp_path: Path):
    run = played(Weighed(), tmp_path / "run")
    before, handles = run.summary.model_hash, dict(run.names)
    assert run.history.reached == {0: frozenset(handles.values())}
    (done,) = run.forget(LEAVER, basis="erasure")
    assert done.answered.option.answer == "retrain"
    assert done.answered.option.rounds_replayed == ROUNDS
    never = without(Weighed(), tmp_path / "never")
    assert done.answered.model_hash == never.summary.model_hash != before
    signed = json.loads(done.answered.proof.read_text())
    assert "No round that counts" not in json.dumps(signed)
    assert signed["first_round"] == signed["first_affected_round"] == 0
    assert covey.verify(done.answered.proof, run.folder).failed == ()
    stay = {handle for name, handle in handles.items() if name != LEAVER}
    again = [(t, set(event.handles)) for t, event in facts(run, ClientsHandedOut)]
    assert again == [(t, stay) for t in range(ROUNDS)]


def test_who_was_only_evaluated_is_taken_out_from_its_first_round_on(tmp_path: Path):
    shares = {"train": {"learning_rate": 0.5, "participation": 0.5}}
    run = played(Weighed(), tmp_path / "run", rounds=4, **shares)
    first_rounds = {h: t for t, event in facts(run, CohortSampled)[::-1] for h in event.handles}
    chosen = [(t, e) for t, e in facts(run, ClientsAssigned) if e.by != "final"]
    trained = {h: t for t, event in chosen[::-1] for h in event.clusters}
    leaver = next(
        name for name, h in run.names.items() if 0 < first_rounds.get(h, 0) < trained.get(h, 4)
    )
    planned = run.plan(leaver, basis="erasure").chosen
    assert planned is not None
    assert planned.first_affected_round == first_rounds[run.names[leaver]] > 0


def test_a_run_records_who_trained_where_its_algorithm_does_not(tmp_path: Path):
    run = played(WithoutEvents(), tmp_path / "run")
    all_clients = dict.fromkeys(run.names.values(), 0)
    chosen = [event for _, event in facts(run, ClientsAssigned) if event.by != "final"]
    assert [(dict(event.clusters), event.by) for event in chosen] == (
        [(all_clients, "algorithm")] * ROUNDS
    )
    merged = [event for _, event in facts(run, ModelsMerged)]
    assert [event.participants for event in merged] == [(len(all_clients),)] * ROUNDS
    assert merged[-1].model_hash == run.summary.model_hash


def test_nobody_is_denied_whom_an_algorithm_of_ones_own_was_handed(tmp_path: Path):
    merge = {"name": "anonymity-sets", "min_anonymity": 2, "deniability_threshold": 1}
    run = played(Weighed(), tmp_path / "run", aggregation=merge)
    by_name = {option.answer: option for option in run.plan(LEAVER).options}
    assert "found the client handed to your own algorithm" in by_name["deny"].reason
    (done,) = run.forget(LEAVER, answer="auto")
    assert done.answered.option.answer == "retrain"


class Peeping(FedAvg):
    """Would like to know somebody's examples that it was not handed."""

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        assert not any(len(client.train) + len(client.holdout) for client in setup.population)
        return super().init(setup, streams)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        known = clients.setup.population
        assert known
        assert not any(len(client.train) + len(client.holdout) for client in known)
        return super().round(state, clients, streams)

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        assert not any(len(client.train) for client in clients.setup.population)
        return super().finalize(state, clients, streams)


def test_a_first_model_is_made_without_anybodys_data(tmp_path: Path):
    assert played(Peeping(), tmp_path / "run").summary.finished


class Placing(FedAvg):
    """Says of everybody in the run which model it uses; a red team then attacks them."""

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        fresh = super().init(setup, streams)
        return fresh.with_choices({client.handle: 0 for client in setup.population})


def test_whoever_is_placed_is_on_record_though_it_never_came(tmp_path: Path):
    rare = {"train": {"learning_rate": 0.5, "participation": 0.1}}
    run = played(Placing(), tmp_path / "run", **rare)
    (first, _), *_ = [(set(e.handles), t) for t, e in facts(run, ClientsHandedOut)]
    assert first == set(run.names.values())


class Remembering(FedAvg):
    """Asks clients of earlier rounds by name, and as a group."""

    met: ClassVar[dict[str, Client]] = {}

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        self.met.update((client.handle, client) for client in clients.cohort)
        all_clients = tuple(self.met.values())
        self.ask(clients, state, all_clients, streams)
        return super().round(state, clients, streams)

    def ask(self, clients: Clients, state: ServerState, cohort: Cohort, streams: Streams) -> None:
        clients.federation.evaluate(models=state.clusters, cohort=cohort, streams=streams)


class Summing(Remembering):
    """Asks them for sums."""

    met: ClassVar[dict[str, Client]] = {}

    def ask(self, clients: Clients, state: ServerState, cohort: Cohort, streams: Streams) -> None:
        clients.federation.sums(state, [cohort])


@pytest.mark.parametrize("method", [Remembering(), Summing()])
def test_clients_are_on_record_however_they_are_asked(method: Remembering, tmp_path: Path):
    own_settings = {"learning_rate": 0.5, "participation": 0.4}
    model = {"name": "linear-head", "features": {"filters": 4, "size": 3, "pool": 2}}
    run = played(method, tmp_path / "run", rounds=4, train=own_settings, model=model)
    *_, last = (set(event.handles) for _, event in facts(run, ClientsHandedOut))
    *_, cohort = (set(event.handles) for _, event in facts(run, CohortSampled))
    assert last == method.met.keys() > cohort


class Hoarding(FedAvg):
    """Keeps clients from its first round, as no algorithm may."""

    cohorts: ClassVar[list[Clients]] = []

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        self.cohorts.append(clients)
        clients.among(self.cohorts[0].cohort).evaluate(state.clusters, streams)
        return super().round(state, clients, streams)


def test_who_has_left_is_not_asked_again(tmp_path: Path):
    run = played(Hoarding(), tmp_path / "run")
    said = "found client h-.*, which this run does not have"
    with pytest.raises(ConfigError, match=said):
        run.forget(LEAVER, basis="erasure")
    Hoarding.cohorts.clear()
    assert covey.resume(run.folder).summary.finished


Change = Callable[[RoundResult], RoundResult]


class Changing(Algorithm):
    """A FedAvg, whose outcome a test changes."""

    change: ClassVar[Change]

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        together = clients.all_in_one("shared")
        result = clients.train_and_aggregate(state, together, streams)
        return type(self).change(result)


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Play a run whose round is changed; return what is said, in front of no run."""

    def refused(change: Change) -> str:
        monkeypatch.setattr(Changing, "change", staticmethod(change), raising=False)
        with pytest.raises(ConfigError) as caught:
            played(Changing(), tmp_path / "run", rounds=1)
        said = str(caught.value)
        assert f"Your algorithm {__name__}:Changing" in said
        return said

    return refused


def assigned(clusters: Callable[[dict[str, int]], dict[str, int]], by: str = "shared") -> Change:
    def change(result: RoundResult) -> RoundResult:
        events = tuple(
            ClientsAssigned(clusters(dict(event.clusters)), by)
            if isinstance(event, ClientsAssigned)
            else event
            for event in result.events
        )
        return result._replace(events=events)

    return change


def model_of(result: RoundResult) -> dict[str, torch.Tensor]:
    return dict(result.state.clusters[0])


def with_models(*models: object) -> Change:
    return lambda r: r._replace(state=replace(r.state, clusters=models))


def with_entry(make: Callable[[torch.Tensor], object]) -> Change:
    def change(result: RoundResult) -> RoundResult:
        model = model_of(result)
        name = sorted(model)[0]
        return with_models({**model, name: make(model[name])})(result)

    return change


WRONG = {
    "None": (lambda _: None, "must return a covey.RoundResult in `round`, found None"),
    "a word": (lambda r: r._replace(events=("x",)), "covey.base.events alone .* a str"),
    "too many clusters": (
        lambda r: with_models(*r.state.clusters * 2)(r),
        "must return 1 models, one per cluster, found 2",
    ),
    "one is reshaped": (with_entry(lambda v: v.reshape(1, -1)), "expected shape"),
    "float64": (with_entry(lambda v: v.double()), "found torch.float64 instead of"),
    "the same round": (
        lambda r: r._replace(state=replace(r.state, round_index=0)),
        "must return the state before round 1, found that before 0",
    ),
    "events leave one out": (
        assigned(lambda c: dict(list(c.items())[1:])),
        "do not name client h-.* trained",
    ),
    "events name a stranger": (
        assigned(lambda c: {**c, "h-nobody": 0}),
        "name client h-nobody, which this round",
    ),
    "events name another cluster": (
        assigned(lambda c: dict.fromkeys(c, 1)),
        "clusters 0 to 0, found 1 for",
    ),
}


@pytest.mark.parametrize(("change", "expected"), WRONG.values(), ids=WRONG)
def test_what_a_round_returns_is_checked(changing, change, expected):
    assert re.search(expected, changing(change))


def raising(_: RoundResult) -> RoundResult:
    raise KeyError("velocity")


def test_an_exception_is_reported_with_file_and_line(changing: Callable[..., str]):
    line = raising.__code__.co_firstlineno + 1
    assert f"raised KeyError: 'velocity' in {__file__}, line {line}: " in changing(raising)


class Moving(FedAvg):
    """Writes into the models that it is handed when clients choose for the last time."""

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        for value in state.clusters[0].values():
            value.add_(1)
        return super().finalize(state, clients, streams)


def test_last_choices_leave_the_models_as_they_are(tmp_path: Path):
    with pytest.raises(ConfigError, match="must leave the models as they are in `finalize`"):
        played(Moving(), tmp_path / "run")
