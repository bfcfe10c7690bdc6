"""A client that leaves: what is true afterwards, in the model and on the disk."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from covey import RunError, load, resume, run, verify
from covey.base.events import AnonymitySetsFormed
from covey.leaving.planning import client_plans
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, rounds_in
from covey.runs.states import read_updates
from recorded import assert_nowhere, events_of, requests_of
from runs.conftest import excluding

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
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("sections", "engine"),
    [
        ({"aggregation": HIDDEN}, "reference"),
        pytest.param(
            {"aggregation": HIDDEN, "risk": {"name": "federated"}}, "reference", marks=SLOW
        ),
        pytest.param({"risk": {"name": "shadow", "shadows": 1}}, "parallel", marks=SLOW),
        pytest.param(
            {"aggregation": HIDDEN, **FEDAVG, "train": {"participation": 0.6}},
            "parallel",
            marks=SLOW,
        ),
    ],
    ids=["hidden", "federated", "shadow", "hidden-and-sampled"],
)
def test_retraining_ends_where_a_run_without_the_client_ends(small, tmp_path, sections, engine):
    config = small(**sections, engine={"name": engine})
    met = tmp_path / "met"
    first = run(config=config, out=met)
    assert LEAVER in first.names

    (answer,) = left(met, LEAVER, answer="retrain")

    expected = run(config=excluding(config, LEAVER), out=tmp_path / "never").summary
    again = resume(met).summary
    assert again.model_hash == answer.answered.model_hash == expected.model_hash
    for figure in ("accuracy", "violations", "fairness", "clusters"):
        assert getattr(again, figure) == getattr(expected, figure)


PROGRAM = """
from covey import load

folder, answer, client = words
load(folder).forget(client, answer)
"""


@SLOW
@pytest.mark.parametrize(
    ("where", "calls"),
    [
        ("after serve", 0),  # answered, and every old state still there
        ("after append", 1),  # in the middle of the rounds that are played again
        ("before answered", 0),  # signed, and not closed
    ],
)
def test_a_kill_in_the_middle_of_an_answer_is_finished_by_resuming(
    small, copied, whole, killed, tmp_path, where, calls
):
    config = small(aggregation=HIDDEN)
    folder = copied(config, tmp_path / "killed").folder
    killed(PROGRAM, where, calls, folder, "retrain", LEAVER)
    never = whole(excluding(config, LEAVER))
    assert resume(folder).summary.model_hash == never.summary.model_hash
    assert_nowhere(folder, LEAVER)
    assert [state for state, _ in requests_of(folder)] == ["done"]
    assert len(list((folder / "proofs").glob("*.json"))) == 1


@pytest.mark.slow
def test_a_denial_changes_no_model_names_nobody_and_counts_for_the_next(small, copied, tmp_path):
    folder = tmp_path / "run"
    before = copied(small(aggregation=HIDDEN, **FEDAVG), folder)
    copied(small(**FEDAVG), folder / "baseline")
    assert LEAVER.encode() in (folder / "ledger.sqlite").read_bytes()
    (one,) = left(folder, LEAVER)
    assert_nowhere(folder, LEAVER)
    said = []
    for absent in (LEAVER, "client-99999"):
        with pytest.raises(RunError, match=f"records, found '{absent}'") as unknown:
            left(folder, absent)
        said.append(re.sub(r"client-\d+", "", str(unknown.value)))  # of both, the nearest
    assert said[0] == said[1]
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


def updates_of(folder: Path):
    place = RunFolder(folder).updates
    noted = Ledger.read(place.parent / "ledger.sqlite").files
    return {t: read_updates(place, t, noted) for t in rounds_in(place)}


@pytest.fixture(scope="module")
def stored(tmp_path_factory, settings):
    """A run with raw updates, and the handle of who trained in it."""
    folder = tmp_path_factory.mktemp("stored") / "run"
    merge = HIDDEN | {"deniability_threshold": 4}
    more = {"aggregation": merge, "train": {"participation": 0.8}, "leaving": {"store_updates": 1}}
    return folder, run(config=settings(**SMALL | FEDAVG | more), out=folder).names[LEAVER]


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        ("roll_back", 3),
        *(pytest.param(answer, 0, marks=SLOW) for answer in ("retrain", "calibrate")),
    ],
)
def test_a_leavers_raw_updates_go_and_the_others_stay(stored, tmp_path, answer, first):
    whole, handle = stored
    folder = shutil.copytree(whole, tmp_path / "run")
    before, events = updates_of(folder), events_of(folder)
    assert handle in before[0]
    (done,) = left(folder, LEAVER, answer=answer)
    assert done.answered.option.first_replayed_round == first
    untouched = [e for e in events if e[0] is not None and e[0] < first]
    assert untouched == [e for e in events_of(folder) if e[0] is not None and e[0] < first]
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


@pytest.mark.slow
def test_requests_drawn_while_a_run_goes_on_are_served_between_rounds(small, tmp_path):
    config = small(
        aggregation=HIDDEN, method={"name": "fedavg"}, leaving={"request_probability": 0.9}
    )
    result = run(config=config, out=tmp_path / "run")
    answers = [departure.answer for departure in result.history.left]
    assert len(answers) >= 3
    assert len(list((tmp_path / "run" / "proofs").glob("*.json"))) == len(answers)
    gone = {departure.handle for departure in result.history.left}
    assert not gone & result.history.assignment.keys()
    assert result.summary.left["deny"] >= 1
    assert result.history.finished is not None


def test_a_denial_names_the_distance_by_which_members_count(small, tmp_path):
    folder = tmp_path / "run"
    cosine = {**HIDDEN, "distance": "cosine", "max_distance": 0.5}
    run(config=small(rounds=2, aggregation=cosine, method={"name": "fedavg"}), out=folder)
    (denied,) = left(folder, LEAVER)
    assert denied.answered.option.answer == "deny"
    proof = json.loads(denied.answered.proof.read_text())
    assert (proof["max_distance"], proof["distance"]) == (0.5, "cosine")
    assert [c.name for c in verify(denied.answered.proof, folder).checks if not c.ok] == ["trust"]


@pytest.mark.slow
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
    reasons = {
        (facts_of_round["diameter"]["value"], facts_of_round["diameter"]["reason"])
        for facts_of_round in proof["rounds"]
    }
    assert reasons == {(None, "no-distances")}
    assert proof["refutation"]["value"] is None
    promised = proof["guarantee"]["value"]
    assert promised["epsilon"] == spent.epsilon
    assert promised["does_not_cover"]
    verification = verify(denied.answered.proof, folder)
    assert [check.name for check in verification.checks if not check.ok] == ["trust"]
    (rolled,) = left(folder, "client-00007", answer="retrain")
    assert rolled.answered.model_changed
    again = json.loads(rolled.answered.proof.read_text())["guarantee"]["value"]
    assert again["epsilon"] > promised["epsilon"]  # those rounds were released twice
    assert hash_of(folder) == rolled.answered.model_hash != before.summary.model_hash


@pytest.mark.slow
def test_who_has_a_model_of_its_own_is_stopped_and_no_other_model_changes(play, cut):
    held = play(method={"name": "local"}, risk={"name": "none"}, rounds=3)
    whole = [held.params(j) for j in range(6)]
    cut(held.folder, 1)
    held = load(held.folder)
    own = held.cluster_of("client-00002")
    at_the_stop = held.params(own)
    assert [held.plan("client-00002", basis=basis).chosen for basis in ("none", "erasure")] == [
        None
    ] * 2
    with pytest.raises(RunError, match="delete that client's model"):
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
        assert all(torch.equal(ended.params(j)[name], value) for name, value in expected.items())
    assert load(held.folder).resume().summary.model_hash == ended.summary.model_hash
