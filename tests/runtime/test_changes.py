"""Clients join a solved run, or change their records: heads are those of today's sums."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covey import Config, CoveyError, DataError, Examples, Run, RunError, load, resume, run, verify
from covey.base.events import ClientsAssigned, HeadsSolved, RecordsChanged, RunRolledBack
from covey.base.params import model_hash
from covey.engine.fixed_features import params_of
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import WEIGHT_STEPS
from covey.runs.repair import damages
from covey.runtime.folder import RunFolder, rounds_in
from covey.runtime.states import load_state
from covey.settings.run import build_run
from recorded import facts
from runtime import solved_runs as runs
from runtime.solved_runs import LAMBDA, POOLING, model_of

OLD, OTHER, NEW = "client-00003", "client-00005", "late-client"
SOLVED: dict[str, Any] = {
    **runs.SOLVED,
    "rounds": 2,
    "population": {**runs.SOLVED["population"], "holdout": 0},
}
Held = dict[str, Examples]
SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def config():
    return Config.of(SOLVED)


@pytest.fixture
def solved(config, copied, tmp_path) -> Run:
    return copied(config, tmp_path / "run")


@pytest.fixture
def some(digits):
    """So many digits that no client has, from a place on."""

    def taken(count: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
        part = slice(start, start + count)
        return digits.inputs[part].numpy(), digits.labels[part].numpy()

    return taken


def held_by(config: Config) -> Held:
    return {c.name: c.train for c in build_run(config).population.clients}


def examples(brought: tuple[np.ndarray, np.ndarray]) -> Examples:
    x, y = brought
    return Examples(torch.from_numpy(x), torch.from_numpy(y))


def computed(folder: Path, held: Mapping[str, Examples]) -> str:
    """The heads of sums over these records, in the clusters that are recorded."""
    built, names = build_run(RunFolder.existing(folder).config()), load(folder).names
    chosen: dict[str, int] = {}
    for each in facts(folder, ClientsAssigned):
        chosen |= each.clusters if each.by != "final" else {}
    assert set(names) == set(held)
    fresh = built.algorithm.init(built.streams).clusters
    d, records = fresh[0]["head.weight"].shape[1] + 1, built.records
    assert records is not None
    by_handle = {names[name]: examples for name, examples in held.items()}
    counted = {h: (chosen[h], WEIGHT_STEPS) for h in by_handle}
    sums = tuple(
        records.sums(((by_handle[h], w) for h, (c, w) in counted.items() if c == j), d)
        for j in range(2)
    )
    known = ClusterSums(pooling=(POOLING,) * 2, regularisation=(LAMBDA,) * 2)
    known = known.of(sums, counted)
    in_each = known.clients_per_cluster()
    heads = (params_of(known.head(j).theta) if in_each[j] else fresh[j] for j in range(2))
    return model_hash(tuple(heads))


def losses(solved: Run, brought: Examples) -> list[float]:
    built = build_run(RunFolder.existing(solved.folder).config())
    assert built.records is not None
    found = []
    for j in range(2):
        params = solved.params(j)
        rows = built.records.rows(brought)
        features = rows.features[:, :-1].float() / 2**10
        scores = features @ params["head.weight"].T + params["head.bias"]
        found.append(float(built.records.losses(scores, rows.labels).mean()))
    return found


def test_who_joins_chooses_among_heads_that_never_met_it_and_is_in_the_sums(solved, config, some):
    brought = some(12)
    expected = losses(solved, examples(brought))
    before = facts(solved.folder, HeadsSolved)[-1]
    done = solved.join(NEW, brought, threshold=0.6)
    assert done.cluster == expected.index(min(expected))
    assert done.examples == 12
    held = {**held_by(config), NEW: examples(brought)}
    assert done.model_hash == model_of(solved.folder) == computed(solved.folder, held)
    after = facts(solved.folder, HeadsSolved)[-1]
    changed = [j for j in range(2) if before.sums[j] != after.sums[j]]
    assert changed == [done.cluster]
    assert (done.sums_before, done.sums_after) == (
        before.sums[done.cluster],
        after.sums[done.cluster],
    )
    history = load(solved.folder).history
    assert history.finished is not None
    assert history.assignment[done.handle] in (0, 1)
    assert history.started is not None
    assert history.started.risk_thresholds[done.handle] == 0.6
    (rewind,) = facts(solved.folder, RunRolledBack)
    assert rewind == RunRolledBack(1, 2, "changed")


@pytest.mark.parametrize("add", [False, True])
def test_new_records_take_the_place_of_the_old_ones_or_join_them(solved, config, some, add):
    held, brought = held_by(config), some(7, 20)
    solved.update(OLD, brought, add=add)
    new = examples(brought)
    held[OLD] = Examples.joined((held[OLD], new)) if add else new
    assert model_of(solved.folder) == computed(solved.folder, held)
    kept = RunFolder(solved.folder)
    assert rounds_in(kept.checkpoints) == (1,)
    assert not kept.superseded.exists()
    assert not kept.subtracted.exists()
    (event,) = facts(solved.folder, RecordsChanged)
    assert event.examples == len(held[OLD])
    resume(solved.folder)
    assert model_of(solved.folder) == computed(solved.folder, held)


def test_who_leaves_is_subtracted_with_the_records_that_it_has_now(solved, config, some):
    solved.update(OLD, some(7, 20))
    solved.update(OLD, some(3, 30), add=True)
    solved.join(NEW, some(5, 40))
    held = held_by(config)
    held[NEW] = examples(some(5, 40))
    (done,) = solved.forget(OLD, "subtract")
    del held[OLD]
    assert model_of(solved.folder) == computed(solved.folder, held)
    found = verify(done.answered.proof, solved.folder, name_and_salt=(OLD, done.answered.salt))
    assert [c.name for c in found.checks if not c.ok] == ["trust"]
    told = json.loads(done.answered.proof.read_text())
    assert told["model_after"] == computed(solved.folder, held)
    (left,) = (solved.folder / "records").iterdir()
    assert left.name.startswith(load(solved.folder).names[NEW])
    with pytest.raises(RunError, match="stays out"):
        solved.join(OLD, some(5))
    explained = load(solved.folder).explain(NEW)
    assert any("records" in each.what for each in explained.places)
    solved.forget(NEW, "subtract")
    del held[NEW]
    assert model_of(solved.folder) == computed(solved.folder, held)
    for path in solved.folder.rglob("*"):
        if path.is_file():
            assert NEW.encode() not in path.read_bytes(), path


@SLOW
def test_a_retraining_is_a_run_of_all_who_are_there_with_their_records_of_today(
    solved, config, some, tmp_path
):
    held = held_by(config)
    held[OLD], held[NEW] = examples(some(7, 20)), examples(some(5, 40))
    solved.update(OLD, some(7, 20))
    solved.join(NEW, some(5, 40))
    (done,) = solved.forget(OTHER, "retrain")
    del held[OTHER]
    never = run(
        config=Config.of(SOLVED),
        clients={name: (each.inputs, each.labels) for name, each in held.items()},
        out=tmp_path / "never",
    )
    assert done.answered.model_hash == never.summary.model_hash


def test_a_run_that_is_not_over_goes_on_with_who_joined(solved, cut, config, some):
    cut(solved.folder, 1)
    unfinished = load(solved.folder)
    unfinished.join(NEW, some(9))
    assert load(solved.folder).history.finished is None
    resume(solved.folder)
    last = load_state(RunFolder(solved.folder).checkpoints / "round-00001.safetensors")
    known = last[0].kept(ClusterSums)
    assert known.is_whole
    assert load(solved.folder).names[NEW] in known.counted
    held = {**held_by(config), NEW: examples(some(9))}
    assert model_of(solved.folder) == computed(solved.folder, held)


def test_what_does_not_fit_is_refused_and_nothing_is_done(solved, some):
    images, labels = some(6)
    head = solved.ledger_head
    for name, brought, error, said in (
        (OLD, (images, labels), RunError, "takes part"),
        (NEW, (images[:, :, :4], labels), DataError, "like those"),
        (NEW, (images, labels + 20), DataError, "classes"),
    ):
        with pytest.raises(error, match=said):
            solved.join(name, brought)
    with pytest.raises(CoveyError, match=r"in \[0, 1\]"):
        solved.join(NEW, (images, labels), threshold=2.0)
    with pytest.raises(RunError, match="has no client"):
        solved.update("nobody", (images, labels))
    assert load(solved.folder).ledger_head == head


def test_where_models_are_trained_nobody_joins(play, some):
    trained = play(method={"name": "fedavg"})
    for change in (trained.join, trained.update):
        with pytest.raises(RunError, match="solved from sums"):
            change("client-00001", some(5))


def test_sums_that_were_released_under_noise_do_not_change(some, tmp_path):
    told = json.loads(json.dumps(SOLVED))
    told |= {"rounds": 1, "privacy": {"client_clip": 0.5, "client_noise": 1.0}}
    told["method"] |= {"num_clusters": 1, "regularisation": 0.5}
    made = run(config=Config.of(told), out=tmp_path / "run")
    for change, name in ((made.join, NEW), (made.update, OLD)):
        with pytest.raises(RunError, match="second release"):
            change(name, some(5))


def test_records_that_were_damaged_are_named(solved, some):
    solved.update(OLD, some(7, 20))
    (path,) = (solved.folder / "records").iterdir()
    written = bytearray(path.read_bytes())
    written[-1] ^= 1
    path.write_bytes(written)
    (found,) = damages(RunFolder.existing(solved.folder))
    assert found.path == path
    with pytest.raises(RunError, match="not those that were written"):
        resume(solved.folder)


PROGRAM = """
from pathlib import Path
from covey import load

folder, what, name, data = words
getattr(load(Path(folder)), what)(name, data)
"""


@pytest.mark.parametrize(
    ("where", "happened"),
    [
        pytest.param("after records", False, marks=SLOW),
        pytest.param("after state", False, marks=SLOW),
        ("after change", True),  # recorded, and nothing solved
        pytest.param("after aside", True, marks=SLOW),
        pytest.param("after append", True, marks=SLOW),  # and no state of it
        pytest.param("after save", True, marks=SLOW),
        pytest.param("after settle", True, marks=SLOW),  # and the end is not recorded
    ],
)
@pytest.mark.parametrize(("what", "name"), [("join", NEW), pytest.param("update", OLD, marks=SLOW)])
def test_a_kill_leaves_the_old_sums_or_resuming_brings_the_new_ones(  # noqa: PLR0913, PLR0917
    solved, config, some, killed, tmp_path, where, happened, what, name
):
    data, folder, held = tmp_path / "new.npz", solved.folder, held_by(config)
    brought, before = some(9, 50), model_of(folder)
    np.savez(data, x=brought[0], y=brought[1])
    killed(PROGRAM, where, 0, folder, what, name, data)
    data.unlink()
    resume(folder)
    held |= {name: examples(brought)} if happened else {}
    assert model_of(folder) == computed(folder, held)
    assert (model_of(folder) == before) is not happened
    kept = RunFolder(folder)
    assert not kept.subtracted.exists()
    assert not kept.superseded.exists()
    assert len(list(kept.records.glob("*"))) == happened
    assert load(folder).history.finished is not None
    assert list(damages(kept)) == []
    if not happened:
        getattr(load(folder), what)(name, brought)
        held[name] = examples(brought)
        assert model_of(folder) == computed(folder, held)


@SLOW
@pytest.mark.parametrize("lost", ["subtracted", "both"])
@pytest.mark.parametrize(("what", "name"), [("update", OLD), ("join", NEW)])
def test_a_state_that_is_lost_on_the_way_is_made_anew_or_missed(
    solved, config, some, killed, tmp_path, lost, what, name
):
    data, brought, held = tmp_path / "new.npz", some(9, 50), held_by(config)
    np.savez(data, x=brought[0], y=brought[1])
    killed(PROGRAM, "before append", 0, solved.folder, what, name, data)
    kept = RunFolder(solved.folder)
    shutil.rmtree(kept.subtracted)
    if lost == "both":
        shutil.rmtree(kept.superseded)
        with pytest.raises(RunError, match="Restore one of them"):
            resume(solved.folder)
        return
    resume(solved.folder)
    held[name] = examples(brought)
    assert model_of(solved.folder) == computed(solved.folder, held)


@SLOW
@pytest.mark.parametrize("seed", range(3))
def test_in_whatever_order_clients_come_change_and_go_heads_are_those_of_today(
    solved, config, some, seed
):
    drawn, held = np.random.default_rng(seed), held_by(config)
    for step in range(5):
        what = ("join", "update", "add", "forget")[int(drawn.integers(4))]
        brought = some(int(drawn.integers(1, 9)), 10 * step)
        name = sorted(held)[int(drawn.integers(len(held)))]
        new = examples(brought)
        if what == "join":
            solved.join(f"new-{step}", brought)
            held[f"new-{step}"] = new
        elif what == "forget":
            solved.forget(name, "subtract")
            del held[name]
        else:
            solved.update(name, brought, add=what == "add")
            held[name] = Examples.joined((held[name], new)) if what == "add" else new
        assert model_of(solved.folder) == computed(solved.folder, held), (step, what)
