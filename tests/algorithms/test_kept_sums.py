"""A server that keeps each client's own sums: the same bits, and nobody's records again."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from covey import Config, ConfigError, RoundResult, load, run
from covey.algorithms.sums import OwnSums
from covey.base.params import model_hash
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums
from covey.runtime.folder import RunFolder
from covey.runtime.states import load_state
from covey.settings.run import BuiltRun, build_run
from runtime.solved_runs import SOLVED


def settings(**options: object) -> dict[str, Any]:
    method = SOLVED["method"]
    return SOLVED | {"method": {**method, **options}}


def built(**options: object) -> BuiltRun:
    return build_run(Config.of(settings(**options)))


def played(run: BuiltRun) -> Iterator[RoundResult]:
    state = run.algorithm.init(run.streams)
    for t in range(run.config.rounds):
        there, streams = run.clients(run.population.clients, t), run.streams
        found = run.algorithm.round(state, there, streams.at("round", t))
        yield found
        state = found.state


def test_heads_have_the_same_bits_and_everybodys_own_sums_are_kept():
    keeping, usual = built(keep_sums=True), built()
    by_handle = {client.handle: client for client in keeping.population.clients}
    assert keeping.records is not None
    for one, other in zip(played(keeping), played(usual), strict=True):
        assert model_hash(one.state.clusters) == model_hash(other.state.clusters)
        sums, own = one.state.kept(ClusterSums), one.state.kept(OwnSums)
        assert sums.sums == other.state.kept(ClusterSums).sums
        assert other.state.kept(OwnSums) == OwnSums()
        assert own.gram.keys() == own.targets.keys() == sums.counted.keys()
        d = sums.targets[0].shape[0]
        for handle, gram in own.gram.items():
            once = keeping.records.sums([(by_handle[handle].train, 1)], d)
            assert Sums(gram, own.targets[handle]) == once


@pytest.mark.parametrize("keeps", [True, False])
def test_who_leaves_is_subtracted_without_its_records(keeps):
    run = built(keep_sums=keeps)
    *_, last = played(run)
    leaver, *stay = run.population.clients
    lost = replace(leaver, train=leaver.train.first(1))  # no longer what is in the sums
    forgotten = run.with_clients((lost, *stay))
    right = run.algorithm.without(last.state, run.clients((leaver,)))
    left = forgotten.algorithm.without(last.state, forgotten.clients((lost,)))
    same = right.kept(ClusterSums).sums == left.kept(ClusterSums).sums
    assert same == keeps
    assert leaver.handle not in left.kept(OwnSums).gram
    assert len(left.kept(OwnSums).gram) == keeps * len(stay)


@pytest.mark.parametrize(
    "privacy",
    [
        {"secure_sums": True},
        {"client_clip": 0.3, "client_noise": 1.0},
        {"record_clip": 1.0, "record_noise": 1.0},
    ],
    ids=str,
)
def test_it_is_refused_beside_what_hides_single_sums(privacy):
    given = settings(keep_sums=True) | {"privacy": privacy}
    with pytest.raises(ConfigError, match="keep_sums"):
        Config.of(given)
    del given["method"]["keep_sums"]
    Config.of(given)


def test_a_whole_run_says_so_and_changes_as_any_other(tmp_path, monkeypatch, digits):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    models: list[list[object]] = []
    new = digits.inputs[:9].numpy(), digits.labels[:9].numpy()
    for name, options in (("kept", {"keep_sums": True}), ("usual", {})):
        made = run(config=Config.of(settings(**options)), out=tmp_path / name)
        told: list[object] = [made.update("client-00003", new).model_hash]
        told.append(made.join("newcomer", new).model_hash)
        told += [each.answered.model_hash for each in made.forget("client-00003", "subtract")]
        models.append([*told, load(made.folder).summary.model_hash])
        notes = made.history.started.notes if made.history.started else ()
        assert ("The server keeps every client's own sums." in notes) == bool(options)
    assert models[0] == models[1]
    last = RunFolder(tmp_path / "kept").checkpoints / "round-00002.safetensors"
    state = load_state(last)[0]
    assert state.kept(OwnSums).gram.keys() == state.kept(ClusterSums).counted.keys()
    assert len(state.kept(OwnSums).gram) == 8
