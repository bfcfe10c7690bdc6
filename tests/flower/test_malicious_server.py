"""What a server learns that breaks its own rules, of nodes that keep to theirs."""

import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from covey.ridge.sums import Sums
from covey.secure_sums.messages import Survivors
from covey_flower.masked import OpenedSum, OpenedSums, SumGuard
from flower.malicious import MaliciousServer, RefusedByNodeError, Summing, head
from flower.test_masked import LAST, averaged, masked

FEWER = ["client-00000", "client-00001", "client-00002"]
ALL = [*FEWER, LAST]
AT_ONCE = 3
FORKED = multiprocessing.get_context("fork")


@pytest.fixture
def server(build) -> MaliciousServer:
    return MaliciousServer(build(masked(1, num_clusters=1)))


def learnt(total: Sums, fewer: Summing) -> Sums | None:
    """Open a sum of fewer, and take it off: one client's own; None: it is refused."""
    try:
        return total - fewer.sums()
    except RefusedByNodeError as refused:
        if str(refused) != "SINGLED_OUT":
            raise
        return None


def test_one_class_more_under_another_run_is_no_other_sum(server):
    total = server.summing(ALL).sums()
    assert learnt(total, server.summing(FEWER, "second", classes=11)) is None


def test_of_two_runs_side_by_side_one_is_opened(server):
    first, second = server.summing(ALL), server.summing(FEWER, "second")
    first.until("agreements")
    second.until("agreements")
    assert learnt(first.sums(), second) is None


def test_the_same_records_at_another_node_are_in_the_same_sums(server):
    """Three nodes are set up once more, with new folders, and the records in another order."""
    here, folders = server.federation.path, dict[str, Path]()
    for name in FEWER:
        folders[name] = folder = here / "again" / name
        folder.mkdir(parents=True)
        with np.load(here / "data" / f"{name}.npz") as held:
            order = np.random.default_rng(0).permutation(len(held["y"]))
            np.savez(folder / "own.npz", x=held["x"][order], y=held["y"][order])
        settings = {"name": name, "seed": 0, "config": "../../covey.toml", "data": "own.npz"}
        (folder / "node.toml").write_text(tomli_w.dumps(settings))
        for file in ("key", "peers"):
            shutil.copy(here / name / file, folder / file)
    total = server.summing(ALL).sums()
    assert learnt(total, replace(server, folders=folders).summing(FEWER)) is None


def test_a_run_s_name_reaches_nothing_that_is_kept_of_all_runs(server):
    total = server.summing(ALL).sums()
    server.summing(FEWER, "sums").until("agreements")
    assert learnt(total, server.summing(FEWER, "second")) is None


def test_other_features_of_the_same_records_are_in_the_same_sums(server):
    """Fewer pools average those of more, under the same fingerprint."""
    server.summing(ALL).opened()
    settings = server.federation.path / "covey.toml"
    settings.write_text(settings.read_text().replace("pool = 2", "pool = 1"))
    with pytest.raises(RefusedByNodeError, match="SINGLED_OUT"):
        server.summing(FEWER, "second").opened()


def test_two_sums_of_the_same_clients_do_not_tell_whose_records_changed(server):
    server.summing(ALL).opened()
    here = server.federation.path
    with np.load(here / "data" / f"{LAST}.npz") as held:
        np.savez(here / "less.npz", x=held["x"][1:], y=held["y"][1:])
    server.federation.node(LAST, data="../less.npz")
    with pytest.raises(RefusedByNodeError, match="SINGLED_OUT"):
        server.summing(ALL, "second").opened()


@pytest.mark.slow
def test_processes_of_one_node_sign_one_list_of_survivors(server):
    played = server.summing(ALL).until("agreements")
    session, name = played.group.round.terms.session, FEWER[0]
    begin = FORKED.Barrier(2 * AT_ONCE)

    def sign(survivors: list[str]) -> None:
        begin.wait()
        try:
            played.ask(name, Survivors(session, tuple(survivors)).to_bytes())
        except RefusedByNodeError:
            os._exit(1)
        os._exit(0)

    processes = [FORKED.Process(target=sign, args=(names,)) for names in (ALL, FEWER) * AT_ONCE]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes].count(0) == 1


def test_a_node_that_is_killed_after_it_signed_signs_no_other_sum(server):
    first = server.summing(ALL).until("agreements")
    name = FEWER[0]

    def signs_and_dies() -> None:
        first.ask(name, first.group.letters[name])
        os.kill(os.getpid(), signal.SIGKILL)

    process = FORKED.Process(target=signs_and_dies)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    second = server.summing(FEWER, "second").until("agreements")
    with pytest.raises(RefusedByNodeError, match="SINGLED_OUT"):
        second.ask(name, second.group.letters[name])
    server.summing(ALL, "third").opened()


def test_the_same_sum_is_opened_as_often_as_it_is_asked_for(server):
    first = server.summing(ALL).opened()
    assert np.array_equal(first, server.summing(ALL, "second").opened())


def test_the_owner_s_word_that_a_client_left_opens_a_sum_without_it(server):
    total = server.summing(ALL).sums()
    for name in FEWER:
        server.federation.node(name, left=[LAST])
    assert learnt(total, server.summing(FEWER, "second")) == server.own(LAST)


def test_a_node_adds_up_nothing_that_its_settings_do_not_need(server):
    model = head(server.summing(ALL).question.request.width)
    with pytest.raises(RefusedByNodeError, match="NOT_NEEDED"):
        server.summing(ALL, of="counts", model=model).opened()


def test_a_node_that_knows_nobody_s_keys_sends_nothing_under_masks(server):
    for name in ALL:
        (server.federation.path / name / "peers").unlink()
    with pytest.raises(RefusedByNodeError, match="ConfigError"):
        server.summing(ALL).opened()


def test_updates_are_hidden_from_a_curious_server_and_from_no_other(build):
    """As the threat model says: a model that differs by one bit is another sum."""
    server = MaliciousServer(build(averaged()))
    start = server.first_model()
    moved = {name: value.clone() for name, value in start.items()}
    values = next(iter(moved.values())).view(-1)
    values[0] = float(np.nextafter(np.float32(values[0]), np.float32(np.inf)))
    total = server.summing(ALL, of="updates", model=start).opened()
    with pytest.raises(RefusedByNodeError, match="SINGLED_OUT"):
        server.summing(FEWER, "second", of="updates", model=start).opened()
    fewer = server.summing(FEWER, "second", of="updates", model=moved).opened()
    alone = server.update(LAST, start)
    assert np.abs(total - fewer - alone).max() < np.abs(alone).max() / 100


def test_what_one_node_opened_every_node_with_its_records_knows(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    opened = OpenedSum("sums", "ab" * 32, "one", ("one", "two", "three"))
    SumGuard.of(tmp_path / "one", "ab" * 32).add(opened)
    for folder, records, known in (
        ("one", "ab" * 32, (opened,)),
        ("one", "cd" * 32, (opened,)),  # its own folder holds all that it opened
        ("another", "ab" * 32, (opened,)),
        ("another", "cd" * 32, ()),
    ):
        with SumGuard.of(tmp_path / folder, records).locked() as guard:
            assert guard.sums == known, (folder, records)


@pytest.mark.parametrize(
    ("what", "records", "name", "left", "like"),
    [
        ("sums", "r", "a", "", [{"a", "b", "c"}]),
        ("sums", "r", "renamed", "", [{"renamed", "b", "c"}]),  # the same records
        ("sums", "other", "a", "", [{"r", "b", "c"}]),  # with others it is another client
        ("sums", "r", "a", "c", [{"a", "b"}]),
        ("counts", "r", "a", "", []),
    ],
)
def test_an_earlier_sum_is_over_its_clients_but_for_those_who_left(what, records, name, left, like):
    opened = OpenedSums((OpenedSum("sums", "r", "a", ("a", "b", "c")),))
    assert list(opened.like(what, records, name, left)) == like
