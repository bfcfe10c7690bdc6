"""Models that a round's anonymity sets allow instead of the released one, compared with it."""

from typing import Any

import numpy as np
import pytest
import torch

import covey
from covey import Config, Run, RunError
from covey.auditor.plausible import PlausibleModels, plausible_models
from covey.ledger.store import Ledger
from covey.runs.states import load_checkpoint, read_updates

SETS = {"name": "anonymity-sets", "min_anonymity": 2, "deniability_threshold": 1}
SMALL: dict[str, Any] = {
    "rounds": 1,
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
    "train": {"learning_rate": 0.5, "batch_size": 20, "local_epochs": 2},
    "population": {"holdout": 0.0},
}


def points(seed: int, count: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, generator=draws), torch.randint(2, (count,), generator=draws)


def clients(seeds: list[int]) -> dict[str, Any]:
    """Clients with the data of these seeds, and the same test examples."""
    return {f"c{i}": (points(seed), points(1000, 50)) for i, seed in enumerate(seeds)}


def line() -> torch.nn.Linear:
    model = torch.nn.Linear(3, 2)
    model.load_state_dict({"weight": torch.eye(2, 3) / 4, "bias": torch.zeros(2)})
    return model


def played(out: Any, seeds: list[int], aggregation: dict[str, Any] = SETS, **more: Any) -> Run:
    config = Config.of({**SMALL, "aggregation": aggregation, **more})
    return covey.run(line(), clients(seeds), config, out)


def measured(run: Run) -> PlausibleModels:
    with run.open_finished("open_finished()", "A test") as session:
        return plausible_models(session)


def losses_of(model: dict[str, torch.Tensor], seed: int, count: int = 20) -> np.ndarray:
    inputs, labels = points(seed, count)
    logits = inputs @ model["weight"].T + model["bias"]
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none").numpy()


def test_a_set_of_two_by_hand(tmp_path):
    run = played(tmp_path / "run", [1, 2], leaving={"store_updates": 1})
    with Ledger.read(run.folder / "ledger.sqlite") as ledger:
        stored = read_updates(run.folder / "updates", 0, ledger.files)
    updates = [stored[run.names[name]] for name in ("c0", "c1")]
    tensors = load_checkpoint(run.folder / "checkpoints" / "round-00000.safetensors").tensors
    released = {key.rpartition("/")[2]: value for key, value in tensors.items()}
    start = line().state_dict()
    made = [{k: start[k] + update[k] for k in start} for update in updates]
    (speaker,) = (
        i for i in (0, 1) if all(torch.allclose(made[i][k], released[k], atol=1e-6) for k in start)
    )
    other = made[1 - speaker]

    def length(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
        return float(sum((one[k] - two[k]).square().sum() for k in start) ** 0.5)

    inside = np.concatenate([losses_of(released, 1), losses_of(released, 2)])
    outside = losses_of(released, 1000, 50)
    cuts = np.unique(np.concatenate([inside, outside]))
    right = [np.mean(inside <= c) + np.mean(outside > c) for c in cuts]
    best = cuts[np.flatnonzero(np.isclose(right, max(right)))[-1]]  # the lowest score of these
    shares = [
        np.mean((losses_of(released, s) <= best) != (losses_of(other, s) <= best)) for s in (1, 2)
    ]
    plausible = measured(run)
    assert (plausible.round_index, plausible.sets, plausible.alternatives, plausible.records) == (
        0,
        1,
        1,
        40,
    )
    assert plausible.distance.median == pytest.approx(
        length(released, other) / length(released, start), rel=1e-4
    )
    assert plausible.differing_nearest == plausible.differing_any
    assert plausible.differing_nearest.largest == pytest.approx(max(shares))
    assert plausible.differing_nearest.median == pytest.approx(np.mean(shares))
    assert max(shares) > 0


def test_where_all_updates_are_the_same_no_answer_differs(tmp_path):
    plausible = measured(played(tmp_path / "run", [5] * 6))
    assert (plausible.sets, plausible.alternatives, plausible.records) == (3, 3, 120)
    assert plausible.equivalent_sets == 3
    assert plausible.differing_any.largest == 0
    assert plausible.distance.largest == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    "aggregation",
    [
        {"noise": "paper", "radius": 0.01},
        {"noise": "released", "noise_shape": "laplace", "distance": "cosine"},
        {"max_relative_norm": 0.5, "partition": "kmeans"},
        {"max_distance": 3.0, "limit_sets": True},
    ],
)
def test_the_last_round_is_repeated_to_the_bit_and_nothing_is_written(tmp_path, aggregation):
    changes = {"rounds": 3, "train": {"learning_rate": 0.5, "batch_size": 5}}
    run = played(tmp_path / "run", [*range(7)], SETS | aggregation, **changes)
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    plausible = measured(run)
    assert plausible.round_index == 2
    assert 0 < plausible.sets <= plausible.alternatives
    assert plausible.distance.median > 0
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


def test_the_latest_round_with_a_state_before_it_is_taken(tmp_path):
    run = played(tmp_path / "run", [*range(4)], rounds=4, checkpoints={"every": 2})
    assert measured(run).round_index == 2


def test_what_cannot_be_measured_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(RunError, match=r"secrets\.source = 'os'.*measure a run with the same"):
        measured(played(tmp_path / "os", [1, 2], secrets={"source": "os"}))
    with pytest.raises(RunError, match="found 'mean' and none"):
        measured(played(tmp_path / "mean", [1, 2], {"name": "mean"}))
    with pytest.raises(RunError, match="set of the last round must have a second member"):
        measured(played(tmp_path / "alone", [1, 2], {**SETS, "min_anonymity": 1}))
    own = {**SETS, "server_optimizer": "momentum"}
    with pytest.raises(RunError, match="a server optimizer"):
        measured(played(tmp_path / "momentum", [1, 2], own, rounds=2))
    left = played(tmp_path / "left", [1, 2, 3], {**SETS, "min_anonymity": 3})
    left.forget("c0", "deny")
    with pytest.raises(RunError, match="found 1 of round 1 gone"):
        measured(left)
