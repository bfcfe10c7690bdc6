"""What is old goes, and nothing that somebody still waits for."""

import os
import shutil
import signal
import warnings
from datetime import UTC, datetime, timedelta

import pytest

from covey import RunError, load
from covey.api.listing import PRUNED, find_runs
from covey.api.pruning import prune, retention
from covey.ledger.requests import LeaveRequest
from covey.ledger.store import Ledger
from covey.runs.folder import now

LATER = datetime.now(UTC) + timedelta(days=100)
OLD = timedelta(days=90)


def files(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_states_go_but_for_the_newest_and_the_run_still_answers(put, roots):
    folder = put("one")
    (folder / "updates").mkdir()
    (folder / "updates" / "round-00000.safetensors").write_bytes(b"x" * 10)
    (retained,) = retention(find_runs([roots], at=LATER), OLD)
    before = files(folder)
    assert retained.size_bytes == sum(path.stat().st_size for path in retained.paths)
    assert any("calibrate" in sentence for sentence in retained.lost)
    assert any("first one" in sentence for sentence in retained.lost)
    assert files(folder) == before  # nothing goes until it is said
    assert prune([retained]) == (retained,)
    assert before - files(folder) == {
        "checkpoints/round-00000.safetensors",
        "checkpoints/round-00001.safetensors",
        "updates/round-00000.safetensors",
    }
    run = load(folder)
    chosen = run.plan("client-00001", "retrain").chosen
    assert chosen is not None
    assert chosen.first_replayed_round == 0
    assert run.forget("client-00001", "retrain")[0].answered.proof.is_file()


def test_a_whole_run_goes_with_the_run_inside_it(put, roots):
    put("one")
    put("one/baseline")
    retained = retention(find_runs([roots], at=LATER), OLD, "whole")
    assert retained[0].size_bytes == 2 * retained[1].size_bytes
    assert any("no request of its 4 clients" in sentence for sentence in retained[0].lost)
    prune(retained)
    assert list(roots.iterdir()) == []


def with_a_request(folder):
    with Ledger.open(folder / "ledger.sqlite", now) as ledger:
        ledger.add_requests([LeaveRequest(next(iter(ledger.names())), "auto")])


def with_a_word(folder):
    load(folder)._folder.queue_request("client-00001", "auto")


def with_an_answer(folder):
    load(folder).forget("client-00001", "retrain")


def with_damage(folder):
    (folder / "ledger.sqlite").write_bytes(b"x" * 5000)


@pytest.mark.parametrize("what", ["states", "whole"])
@pytest.mark.parametrize("why", [with_a_request, with_a_word, with_an_answer, with_damage])
def test_what_somebody_waits_for_stays(put, roots, why, what):
    folder = put("one")
    why(folder)
    before = files(folder)
    at = LATER + timedelta(days=1)
    retained = retention(find_runs([roots], at=at), timedelta(0), what, with_proofs=True)
    assert all(entry.kept or why is with_damage for entry in retained)
    assert prune(retained) == ()
    assert files(folder) == before


def test_proofs_go_only_if_that_is_said(put, roots):
    folder = put("one")
    with_an_answer(folder)
    load(folder).acknowledge(next((folder / "proofs").glob("*.json")).stem)
    entries = find_runs([roots], at=LATER)
    (entry,) = retention(entries, OLD, "whole")
    assert "1 proofs" in entry.kept
    (with_proofs,) = retention(entries, OLD, "whole", with_proofs=True)
    assert any("1 proofs are gone" in sentence for sentence in with_proofs.lost)
    prune([with_proofs])
    assert not folder.exists()


def test_a_request_that_comes_between_looking_and_deleting_is_seen(put, roots):
    folder = put("one")
    retained = retention(find_runs([roots], at=LATER), OLD)
    with_a_request(folder)
    with pytest.raises(RunError, match="must not be needed"):
        prune(retained)
    assert len(list((folder / "checkpoints").iterdir())) == 3


def test_a_deletion_that_is_killed_leaves_no_half_of_a_run(put, roots):
    folder = put("one")
    put("two")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pytest-xdist's thread
        child = os.fork()
    if child == 0:
        shutil.rmtree = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        prune(retention(find_runs([roots], at=LATER), OLD, "whole"))
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert not folder.exists()
    assert len(list(roots.glob(f"{PRUNED}*"))) == 1
    entries = find_runs([roots], at=LATER)
    assert [entry.name for entry in entries] == ["two"]
    prune(retention(entries, OLD, "whole"))
    assert list(roots.iterdir()) == []
