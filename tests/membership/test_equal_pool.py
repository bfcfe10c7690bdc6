"""All attacks on one overfit model: who wins where, as in the literature.

`.venv/bin/pytest -s tests/membership/test_equal_pool.py` prints the table.
"""

import numpy as np
import pytest
import torch
from torch import nn

from covey import Attack, Signals, Streams
from covey.base.built_ins import BUILT_INS
from covey.base.components import create
from covey.membership.attacks import auc, cross_fitted
from covey.membership.intervals import tpr_at

N, REFERENCES = 1000, 16
SEEN = tuple[torch.Tensor, torch.Tensor]


def gaussians(streams: Streams) -> SEEN:
    """2 N records of ten classes in 64 dimensions: half of them the target's members."""
    draw = streams.generator()
    labels = draw.integers(10, size=2 * N)
    centres = 0.3 * draw.normal(size=(10, 64))
    inputs = centres[labels] + draw.normal(size=(2 * N, 64))
    return torch.from_numpy(inputs).float(), torch.from_numpy(labels)


def memorised(seen: SEEN, inside: np.ndarray, streams: Streams) -> np.ndarray:
    """The log-probabilities of an MLP that learnt some records by heart."""
    inputs, labels = seen
    with streams.at("start").lent_to_torch():
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    draw, members = streams.at("order").generator(), np.flatnonzero(inside)
    for _ in range(15):
        for batch in torch.from_numpy(draw.permutation(members)).split(50):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return model(inputs).double().log_softmax(dim=1).numpy()


@pytest.fixture(scope="module")
def trial() -> tuple[Signals, np.ndarray]:
    streams = Streams(0)
    seen = gaussians(streams.at("data"))
    member = np.arange(2 * N) < N
    halves: list[np.ndarray] = []
    for index in range(REFERENCES // 2):
        half = streams.at("half", index).generator().permutation(2 * N) < N
        halves += [half, ~half]
    models = [
        memorised(seen, inside, streams.at(index)) for index, inside in enumerate([member, *halves])
    ]
    references = np.stack(models[1:], axis=1)
    signals = Signals(seen[1].numpy(), models[0], references, np.stack(halves, 1))
    return signals, member


@pytest.mark.slow
def test_the_order_of_the_attacks(trial: tuple[Signals, np.ndarray]):
    signals, member = trial
    right = signals.target.argmax(axis=1) == signals.labels
    assert right[member].all()
    assert right[~member].mean() < 0.8
    found: dict[str, float] = {}
    areas: dict[str, float] = {}
    print(f"\n{'attack':14} balanced accuracy   AUC  TPR at 1% FPR")  # noqa: T201
    for name in BUILT_INS["attack"]:
        scores = create("attack", name, "attack", Attack)(signals)
        sides = scores[member], scores[~member]
        accuracy = cross_fitted(*sides, np.random.default_rng(0)).risk
        rate = tpr_at(0.01, [sides]).value
        assert rate is not None
        found[name], areas[name] = rate, auc(*sides)
        print(f"{name:14} {accuracy:17.3f} {areas[name]:5.3f} {rate:14.3f}")  # noqa: T201
    assert max(found.values()) == found["lira"]
    assert found["lira"] > found["rmia"] > found["shokri"] > found["loss"]
    assert max(areas.values()) == areas["lira"]
    assert areas["lira"] > areas["lira-offline"]
    assert areas["shokri"] > areas["loss"]
    assert found["lira-offline"] > found["loss"]
