"""A client that leaves: what is true afterwards, in the model and on the disk."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from covey import Config, ReferenceEngine, Run, RunError, Streams, load, resume, run, verify
from covey.base.events import AnonymitySetsFormed, ClientLeft, ClientsAssigned, RunStarted
from covey.ledger.requests import NewRequest
from covey.ledger.store import Ledger
from covey.models.build import ModelFunction, build_model
from covey.models.networks import Mlp
from covey.runtime.folder import RunFolder, rounds_in
from covey.runtime.planning import client_plans
from covey.runtime.states import read_updates
from covey.settings.algorithm import has_independent_clusters
from covey.settings.run import build_run
from recorded import assert_nowhere, events_of, requests_of

LEAVER = "client-00003"
HIDDEN = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3}
SMALL = {
    "rounds": 4,
    "population": {"clients": 12, "audit_examples": 0},
    "risk": {"every": 2, "name": "none"},
}


@pytest.fixture
def small(settings):
    def made(**sections):
        merged = {**SMALL, **sections}
        for name in ("population", "risk"):
            merged[name] = {**SMALL[name], **sections.get(name, {})}
        return settings(**merged)

    return made


def left(folder: Path, *clients: str, answer: str = "auto"):
    """Let clients leave a run."""
    held = load(folder)
    return [held.forget(client, answer)[0] for client in clients]


def hash_of(folder: Path) -> str:
    return resume(folder).summary.model_hash or ""


FEDAVG = {"method": {"name": "fedavg"}}
ISOLATED = {
    "method": {"name": "isolated", "num_clusters": 3},
    "risk": {"name": "federated"},
    "train": {"participation": 0.8},
}


@pytest.mark.parametrize(
    ("sections", "engine"),
    [
        (FEDAVG, "reference"),
        pytest.param(FEDAVG, "parallel", marks=pytest.mark.slow),
        # as the hidden one, in a plain mean
        pytest.param({"risk": {"name": "federated"}}, "parallel", marks=pytest.mark.slow),
        pytest.param(
            {"risk": {"name": "shadow", "shadows": 1}}, "parallel", marks=pytest.mark.slow
        ),
        ({"aggregation": HIDDEN, "risk": {"name": "federated"}}, "reference"),
        ({"aggregation": HIDDEN, **FEDAVG, "train": {"participation": 0.6}}, "parallel"),
    ],
    ids=["fedavg", "parallel", "federated", "shadow", "hidden", "hidden-and-sampled"],
)
def test_retraining_ends_where_a_run_without_the_client_ends(small, tmp_path, sections, engine):
    config = small(**sections, engine={"name": engine})
    met, never = tmp_path / "met", tmp_path / "never"
    first = run(config=config, out=met)
    assert LEAVER in first.names

    (answer,) = left(met, LEAVER, answer="retrain")

    population = {**config.model_dump()["population"], "exclude": [LEAVER]}
    excluded = Config.of({**config.model_dump(), "population": population})
    expected = run(config=excluded, out=never).summary
    assert hash_of(met) == answer.answered.model_hash == expected.model_hash
    again = resume(met).summary
    for figure in ("accuracy", "violations", "fairness", "clusters"):
        assert getattr(again, figure) == getattr(expected, figure)


PROGRAM = """
from covey import load

folder, answer, client = words
load(folder).forget(client, answer)
"""


@pytest.fixture(scope="module")
def retrained(tmp_path_factory, settings):
    """A run that can be copied, and where it ends once a client is taken out of it."""
    folder = tmp_path_factory.mktemp("retrained") / "run"
    config = settings(**SMALL | {"aggregation": HIDDEN})
    run(config=config, out=folder)
    shutil.copytree(folder, folder.with_name("without"))
    (answer,) = left(folder.with_name("without"), LEAVER, answer="retrain")
    return folder, answer.answered.model_hash


@pytest.mark.parametrize(
    ("where", "calls"),
    [
        # asked, and nothing done about it yet
        pytest.param("before serve", 0, marks=pytest.mark.slow),
        # answered, and every old state still there
        pytest.param("after serve", 0, marks=pytest.mark.slow),
        pytest.param("after delete", 0, marks=pytest.mark.slow),
        ("after append", 1),  # in the middle of the rounds that are played again
        # signed, and not closed
        pytest.param("before answered", 0, marks=pytest.mark.slow),
    ],
)
def test_a_kill_in_the_middle_of_an_answer_is_finished_by_resuming(
    retrained, killed, tmp_path, where, calls
):
    whole, expected = retrained
    folder = shutil.copytree(whole, tmp_path / "killed")
    killed(PROGRAM, where, calls, folder, "retrain", LEAVER)
    assert resume(folder).summary.model_hash == expected
    assert_answered_once(folder)


@pytest.mark.slow
def test_a_kill_is_survived_with_a_secret_of_the_system_too(small, killed, tmp_path):
    folder = tmp_path / "killed"
    run(config=small(aggregation=HIDDEN, secrets={"source": "os"}), out=folder)
    killed(PROGRAM, "after save", 2, folder, "retrain", LEAVER)
    resume(folder)
    assert_answered_once(folder)


def assert_answered_once(folder: Path) -> None:
    assert_nowhere(folder, LEAVER)
    assert [state for state, _ in requests_of(folder)] == ["done"]
    assert len(list((folder / "proofs").glob("*.json"))) == 1


@pytest.mark.parametrize("answer", ["deny", "retrain"])
def test_the_name_is_nowhere_in_the_run_folder_afterwards(small, copied, tmp_path, answer):
    folder = tmp_path / "run"
    copied(small(aggregation=HIDDEN, method={"name": "fedavg"}), folder)
    copied(small(method={"name": "fedavg"}), folder / "baseline")
    assert LEAVER.encode() in (folder / "ledger.sqlite").read_bytes()
    left(folder, LEAVER, answer=answer)
    assert_nowhere(folder, LEAVER)
    with pytest.raises(RunError, match="has no client 'client-00003'") as again:
        left(folder, LEAVER)
    with pytest.raises(RunError, match="has no client 'nobody'") as never:
        left(folder, "nobody")
    assert str(again.value) == str(never.value).replace("nobody", LEAVER)


def test_a_denial_changes_no_model_and_counts_for_the_next(small, copied, tmp_path):
    folder = tmp_path / "run"
    before = copied(small(aggregation=HIDDEN, method={"name": "fedavg"}), folder)
    (one,) = left(folder, LEAVER)
    assert one.answered.option.answer == "deny"
    assert one.answered.model_hash == hash_of(folder) == before.summary.model_hash
    # sets have four members at least and keep three: a second one from the same set
    # of any round cannot be denied any more
    handle = before.names[LEAVER]
    sets = [
        members
        for _, event in events_of(folder)
        if isinstance(event, AnonymitySetsFormed)
        for members in event.sets
        if handle in members and len(members) == 4
    ]
    names = {handle: name for name, handle in before.names.items()}
    beside = next(name for h in sets[-1] if (name := names[h]) != LEAVER)
    existing = RunFolder.existing(folder)
    (plan,) = client_plans(existing, [beside], "auto")
    assert plan.chosen is not None
    assert plan.chosen.answer in ("roll_back", "retrain")


def test_a_roll_back_keeps_the_others_choices_and_the_rounds_before(small, tmp_path):
    folder = tmp_path / "run"
    config = small(
        rounds=6,
        population={"clients": 24, "minority_share": 0.4},
        aggregation=HIDDEN,
        method={"initialisation": "groups"},
        risk={"name": "federated"},
        train={"participation": 0.8},
    )
    names = run(config=config, out=folder).names

    def answers():
        for name in sorted(names):
            before = events_of(folder)
            (answer,) = left(folder, name)
            yield names[name], before, answer.answered

    leaver, before, answer = next(
        found for found in answers() if found[2].option.answer == "roll_back"
    )
    first = answer.option.first_replayed_round
    assert first is not None
    assert first > 0
    after = events_of(folder)
    rounds_before = [(t, e) for t, e in before if t is not None and t < first]
    assert [(t, e) for t, e in after if t is not None and t < first] == rounds_before

    gone = {event.handle for _, event in after if isinstance(event, ClientLeft)}

    def choices(events):
        return {
            t: {h: j for h, j in e.clusters.items() if h not in gone}
            for t, e in events
            if isinstance(e, ClientsAssigned) and e.by != "final"
        }

    assert choices(after) == choices(before)
    assert not any(
        leaver in (h for members in event.sets for h in members)
        for t, event in after
        if isinstance(event, AnonymitySetsFormed) and t is not None and t >= first
    )
    assert answer.model_changed


def test_calibrating_keeps_lengths_and_loses_the_leaver(small, tmp_path):
    folder = tmp_path / "run"
    config = small(
        method={"name": "fedavg"}, leaving={"store_updates": 1}, train={"local_epochs": 2}
    )
    before = run(config=config, out=folder)
    handle = before.names[LEAVER]
    stored = sorted((folder / "updates").iterdir())
    assert len(stored) == config.rounds
    (answer,) = left(folder, LEAVER, answer="calibrate")
    assert answer.answered.model_changed
    assert answer.answered.option.rounds_replayed == 4
    assert all(handle.encode() not in p.read_bytes() for p in stored)
    accuracy, earlier = resume(folder).summary.accuracy.overall, before.summary.accuracy.overall
    assert accuracy is not None
    assert earlier is not None
    assert accuracy > earlier - 0.15


STORED = {**FEDAVG, "leaving": {"store_updates": 1}}


def updates_of(folder: Path):
    place = RunFolder(folder).updates
    noted = Ledger.read(place.parent / "ledger.sqlite").files
    return {t: read_updates(place, t, noted) for t in rounds_in(place)}


@pytest.fixture(scope="module")
def stored(tmp_path_factory, settings):
    """A run with raw updates, and the handle of who trained in it."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    merge = HIDDEN | {"deniability_threshold": 4}
    config = settings(**SMALL | STORED | {"aggregation": merge, "train": {"participation": 0.8}})
    return folder, run(config=config, out=folder).names[LEAVER]


def test_beside_anonymity_sets_raw_updates_are_stored_and_nothing_is_denied(
    small, stored, tmp_path
):
    plain, (hidden, _) = tmp_path / "plain", stored
    run(config=small(**STORED, rounds=1, train={"participation": 0.8}), out=plain)
    sent, kept = updates_of(plain)[0], updates_of(hidden)[0]
    assert sent.keys() == kept.keys()
    for handle, update in sent.items():  # not the representatives'
        torch.testing.assert_close(kept[handle], update, rtol=0, atol=0)
    told = load(hidden).summary.deniability
    assert told.budget is None
    assert "raw updates are stored" in told.budget_reason


@pytest.mark.parametrize(("answer", "first"), [("roll_back", 3), ("retrain", 0), ("calibrate", 0)])
def test_a_leavers_raw_updates_go_and_the_others_stay(stored, tmp_path, answer, first):
    whole, handle = stored
    folder = shutil.copytree(whole, tmp_path / "run")
    before = updates_of(folder)
    assert handle in before[0]
    (done,) = left(folder, LEAVER, answer=answer)
    assert done.answered.option.first_replayed_round == first
    after = updates_of(folder)
    assert {t: set(sent) for t, sent in after.items()} == {
        t: set(sent) - {handle} for t, sent in before.items()
    }
    for t, sent in after.items():
        if answer == "calibrate" or t < first:
            for other, update in sent.items():
                torch.testing.assert_close(update, before[t][other], rtol=0, atol=0)
    proof = json.loads(done.answered.proof.read_text())
    assert proof["raw_updates_deleted"]["value"] is True


def test_requests_drawn_while_a_run_goes_on_are_served_between_rounds(small, tmp_path):
    config = small(
        aggregation=HIDDEN, method={"name": "fedavg"}, leaving={"request_probability": 0.9}
    )
    result = run(config=config, out=tmp_path / "run")
    answers = [each.answer for each in result.history.left]
    assert len(answers) >= 3
    assert len(list((tmp_path / "run" / "proofs").glob("*.json"))) == len(answers)
    gone = {each.handle for each in result.history.left}
    assert not gone & result.history.assignment.keys()
    assert result.summary.left["deny"] >= 1
    assert result.history.finished is not None
    same = run(config=config, out=tmp_path / "same")
    assert same.summary.model_hash == result.summary.model_hash


def test_a_secret_of_the_system_hides_who_spoke_for_a_set(small, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    config = small(aggregation=HIDDEN, method={"name": "fedavg"}, secrets={"source": "os"})
    one, other = (run(config=config, out=tmp_path / name) for name in ("a", "b"))
    assert one.summary.model_hash != other.summary.model_hash
    assert not set(one.names.values()) & set(other.names.values())
    kept = list((tmp_path / "config" / "covey" / "runs").glob("*.json"))
    assert len(kept) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
    # four rounds, and the last choice
    assert all(json.loads(path.read_text())["round"] == 5 for path in kept)
    secret = next(each for each in kept)
    assert secret.stem in {(tmp_path / n / "secret").read_text() for n in ("a", "b")}


class Recording(ReferenceEngine):
    """Remembers whom it trained in which round."""

    def __init__(self, module) -> None:
        super().__init__(module)
        self.trained: list[tuple[int, str]] = []

    def train(self, jobs):
        known = list(jobs)
        for job in known:
            _, t, _, name = job.streams.path
            self.trained.append((int(t), str(name)))
        return super().train(known)


def rounds_of(folder: Path):
    """Return what was recorded of every round, but for the hash of the settings."""
    return [
        (t, replace(each, config_hash="") if isinstance(each, RunStarted) else each)
        for t, each in events_of(folder)
        if t is not None
    ]


@pytest.fixture(scope="module")
def apart(tmp_path_factory, settings):
    """A run in isolated clusters, and one that never met the client."""
    folder = tmp_path_factory.mktemp("apart") / "run"
    config = settings(**SMALL | ISOLATED).model_dump()
    first = run(config=Config.of(config), out=folder)
    config["population"]["exclude"] = [LEAVER]
    never = run(config=Config.of(config), out=folder.with_name("never"))
    return first, never


@pytest.mark.parametrize("stored", [(0, 1, 2, 3), (1, 3), (3,)], ids=str)
def test_isolated_clusters_are_trained_alone_and_to_the_same_story(apart, tmp_path, stored):
    first, never = apart
    folder = shutil.copytree(first.folder, tmp_path / "run")
    for t in set(range(4)) - set(stored):
        (folder / "checkpoints" / f"round-{t:05d}.safetensors").unlink()
    names = {handle: name for name, handle in first.names.items()}
    others = [
        (t, names[handle], j)
        for t, event in events_of(folder)
        if isinstance(event, ClientsAssigned) and event.by == "chance"
        for handle, j in event.clusters.items()
        if names[handle] != LEAVER
    ]
    assert len({j for *_, j in others}) == 3

    engine = Recording(build_model(ModelFunction(function=Mlp), (1, 8, 8), 10, Streams(0)))
    watched = Run(folder, parts=replace(build_run(RunFolder(folder).config()), engine=engine))
    watched.forget(LEAVER, "retrain")

    own = first.history.assignment[first.names[LEAVER]]
    assert sorted(engine.trained) == sorted(
        (t, name) for t, name, j in others if j == own or t not in stored
    )
    assert watched.history.finished is not None
    assert not (folder / "superseded").exists()
    assert rounds_of(folder) == rounds_of(never.folder)


@pytest.mark.parametrize(
    ("where", "calls"),
    [
        # everything set aside, and nothing of it used
        pytest.param("before delete", 0, marks=pytest.mark.slow),
        ("after append", 1),
    ],
)
def test_a_kill_while_one_isolated_cluster_is_trained_again(apart, killed, tmp_path, where, calls):
    first, never = apart
    folder = shutil.copytree(first.folder, tmp_path / "killed")
    killed(PROGRAM, where, calls, folder, "retrain", LEAVER)
    assert (folder / "superseded").exists()
    assert resume(folder).summary.model_hash == never.summary.model_hash
    assert not (folder / "superseded").exists()
    assert_answered_once(folder)


def test_who_asks_while_an_isolated_cluster_is_trained_again_is_out_as_well(apart, tmp_path):
    first, _ = apart
    cluster = {name: first.history.assignment[h] for name, h in first.names.items()}
    other = next(name for name in cluster if cluster[name] != cluster[LEAVER])
    together, in_turn = tmp_path / "together", tmp_path / "in turn"
    for folder in (together, in_turn):
        shutil.copytree(first.folder, folder)
    *_, last = left(in_turn, LEAVER, other, answer="retrain")
    with Ledger.open(RunFolder(together).ledger, lambda: "2026-01-01T00:00:00.000+00:00") as ledger:
        for name in (LEAVER, other):
            ledger.ask_all([NewRequest(first.names[name], "retrain")])
    assert resume(together).summary.model_hash == last.answered.model_hash


@pytest.mark.parametrize(
    ("sections", "kept"),
    [
        ({}, True),
        ({"engine": {"name": "vmap"}}, False),
        ({"aggregation": HIDDEN}, False),
        ({"privacy": {"record_clip": 1.0}}, False),
        ({"method": {"name": "fedavg"}}, False),
    ],
    ids=["isolated", "vmap", "hidden", "private", "fedavg"],
)
def test_only_clusters_that_share_nothing_are_kept(small, sections, kept):
    config = small(**{**ISOLATED, **sections})
    assert has_independent_clusters(config, build_run(config).engine) == kept


def test_sound_noise_denies_without_a_distance_and_rolls_back(small, tmp_path):
    folder = tmp_path / "run"
    sound = {**HIDDEN, "noise": "sound", "partition": "public-random", "epsilon": 8.0}
    config = small(aggregation=sound, method={"name": "fedavg"}, secrets={"source": "os"})
    before = run(config=config, out=folder)
    spent = before.summary.privacy.guarantee
    assert spent is not None
    assert spent.epsilon is not None
    assert spent.epsilon <= 8.0
    (denied,) = left(folder, LEAVER)
    assert denied.answered.option.answer == "deny"
    proof = json.loads(denied.answered.proof.read_text())
    reasons = {(each["diameter"]["value"], each["diameter"]["reason"]) for each in proof["rounds"]}
    assert reasons == {(None, "no-distances")}
    assert proof["refutation"]["value"] is None
    promised = proof["guarantee"]["value"]
    assert promised["epsilon"] == spent.epsilon
    assert promised["does_not_cover"]
    found = verify(denied.answered.proof, folder)
    assert [each.name for each in found.checks if not each.ok] == ["trust"]
    (rolled,) = left(folder, "client-00007", answer="retrain")
    assert rolled.answered.model_changed
    again = json.loads(rolled.answered.proof.read_text())["guarantee"]["value"]
    assert again["epsilon"] > promised["epsilon"]  # those rounds were released twice
    assert hash_of(folder) == rolled.answered.model_hash != before.summary.model_hash


def test_who_has_a_model_of_its_own_is_stopped_and_no_other_model_changes(play, cut):
    held = play(method={"name": "local"}, risk={"name": "none"}, rounds=3)
    whole = [held.params(j) for j in range(6)]
    cut(held.folder, 1)
    held = load(held.folder)
    own = held.cluster_of("client-00002")
    at_the_stop = held.params(own)
    assert [held.plan("client-00002", basis=each).chosen for each in ("none", "erasure")] == [
        None
    ] * 2
    with pytest.raises(RunError, match="Delete that client's model"):
        held.forget("client-00002", basis="erasure")
    (left,) = held.forget("client-00002", basis="objection")
    assert left.answered.option.answer == "stop"
    assert verify(left.answered.proof, run=held.folder).valid
    resume(held.folder)
    ended = load(held.folder)
    assert ended.explain("client-00002").rounds_trained == (0,)
    assert ended.summary.model_hash is not None
    for j, before in enumerate(whole):
        expected = at_the_stop if j == own else before
        assert all(torch.equal(ended.params(j)[name], each) for name, each in expected.items())
    assert load(held.folder).resume().summary.model_hash == ended.summary.model_hash
