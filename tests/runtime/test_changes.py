"""Clients join a solved run, or change their records: heads are those of today's sums."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from covey import Config, CoveyError, DataError, Examples, Run, RunError, load, resume, run, verify
from covey.base.events import HeadsSolved, RecordsChanged, RunRolledBack
from covey.runs.repair import damages
from covey.runtime.folder import RunFolder, rounds_in
from covey.settings.run import build_run
from recorded import facts
from runtime import solved_runs as runs
from runtime.solved_runs import computed, held_by, model_of

OLD, OTHER, NEW = "client-00003", "client-00005", "late-client"
SOLVED: dict[str, Any] = {
    **runs.SOLVED,
    "rounds": 2,
    "population": {**runs.SOLVED["population"], "holdout": 0},
}
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


def examples(brought: tuple[np.ndarray, np.ndarray]) -> Examples:
    x, y = brought
    return Examples(torch.from_numpy(x), torch.from_numpy(y))


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


@pytest.mark.slow
def test_new_records_take_the_place_of_the_old_ones_or_join_them(solved, config, some):
    held, (brought, more) = held_by(config), (some(7, 20), some(3, 30))
    solved.update(OLD, brought)
    held[OLD] = examples(brought)
    assert model_of(solved.folder) == computed(solved.folder, held)
    solved.update(OLD, more, add=True)
    held[OLD] = Examples.joined((held[OLD], examples(more)))
    kept = RunFolder(solved.folder)
    assert rounds_in(kept.checkpoints) == (1,)
    assert not kept.superseded.exists()
    assert not kept.subtracted.exists()
    assert [each.examples for each in facts(solved.folder, RecordsChanged)] == [7, 10]
    resume(solved.folder)
    assert model_of(solved.folder) == computed(solved.folder, held)


@pytest.mark.slow
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


def test_what_does_not_fit_is_refused_and_nothing_is_done(solved, some):
    images, labels = some(6)
    head = solved.ledger_head
    for name, brought, error, said in (
        (OLD, (images, labels), RunError, "takes part"),
        (NEW, (images[:, :, :4], labels), DataError, "of one kind"),
        (NEW, (images, labels + 20), DataError, "classes"),
    ):
        with pytest.raises(error, match=said):
            solved.join(name, brought)
    with pytest.raises(CoveyError, match=r"in \[0, 1\]"):
        solved.join(NEW, (images, labels), threshold=2.0)
    with pytest.raises(RunError, match="has no client"):
        solved.update("nobody", (images, labels))
    assert load(solved.folder).ledger_head == head


def test_sums_that_were_released_under_noise_do_not_change(some, tmp_path):
    told = json.loads(json.dumps(SOLVED))
    told |= {"rounds": 1, "privacy": {"client_clip": 0.5, "client_noise": 1.0}}
    told["method"] |= {"num_clusters": 1, "regularisation": 0.5}
    made = run(config=Config.of(told), out=tmp_path / "run")
    for change, name in ((made.join, NEW), (made.update, OLD)):
        with pytest.raises(RunError, match="second release"):
            change(name, some(5))


PROGRAM = """
from pathlib import Path
from covey import load

folder, what, name, data = words
getattr(load(Path(folder)), what)(name, data)
"""


@SLOW
@pytest.mark.parametrize(
    ("where", "happened", "what", "name"),
    [
        ("after state", False, "join", NEW),
        ("after change", True, "join", NEW),  # recorded, and nothing solved
        ("after aside", True, "update", OLD),
        ("after append", True, "join", NEW),  # and no state of it
        ("after settle", True, "update", OLD),  # and no end of the run
    ],
)
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
def test_in_whatever_order_clients_come_change_and_go_heads_are_those_of_today(
    solved, config, some
):
    drawn, held = np.random.default_rng(0), held_by(config)
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
