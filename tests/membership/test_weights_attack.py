"""Whoever has a ridge head and candidates sees who was in it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import covey
from covey.base.as_json import json_of
from covey.membership.weights_attack import Equations, membership_weights

RIDGE = {
    "rounds": 1,
    "model": {"name": "linear-head", "features": {"filters": 30, "size": 3, "pool": 2}},
    "method": {"name": "ridge", "selection": "loss", "initialisation": "groups", "pooling": 0.3},
    "risk": {"name": "none"},
    "population": {"clients": 8, "examples_per_client": 20, "minority_share": 0.5},
}


def head_of(
    features: torch.Tensor, labels: torch.Tensor, z: torch.Tensor, regularisation: float
) -> torch.Tensor:
    """Return (A + lambda I)^-1 B over records of these weights."""
    targets = torch.nn.functional.one_hot(labels, 6).double() - 1 / 6
    weighed = features * z[:, None]
    system = features.T @ weighed
    system.diagonal().add_(regularisation)
    return torch.linalg.solve(system, weighed.T @ targets)


@given(
    seed=st.integers(0, 10**6),
    regularisation=st.sampled_from([0.3, 3.0, 100.0]),
    half=st.booleans(),
)
@settings(max_examples=10)
def test_weights_come_back_whatever_the_regularisation(seed, regularisation, half):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(150, 60, generator=generator, dtype=torch.float64)
    features[:, -1] = 1
    labels = torch.randint(6, (150,), generator=generator)
    allowed = torch.tensor([0.0, 0.0, 0.0195, 1.0], dtype=torch.float64)
    z = allowed[torch.randint(4, (150,), generator=generator)]
    theta = head_of(features, labels, z, regularisation)
    theta = theta.half().double() if half else theta.float().double()
    found = membership_weights(Equations.of_ridge(theta, features, labels))
    found = found / found[z == 1].mean()
    assert (found - z).abs().max() < (0.05 if half else 0.0195 / 2)


@pytest.mark.slow
def test_everybody_is_found_in_a_head(tmp_path):
    solved = covey.run(config=RIDGE, out=tmp_path / "run")
    ended = solved.summary.violations.count
    clusters = json_of(solved.audit(attacks=["weights"]))["clusters"]
    assert len(clusters) == 2
    for cluster in clusters:
        assert set(cluster["attacks"]) == {"weights", "population"}
        assert set(cluster["accuracies"]) == {"members", "non_members"}
        figures = cluster["attacks"]["weights"]["overall"]
        assert figures["auc"]["value"] == 1.0
        # a threshold that is fitted without the lowest member may miss that one
        assert figures["balanced_accuracy"]["value"] > 0.95
    # all of them, and by the end of the run: nobody accepts a risk of 1
    assert ended == solved.summary.violations.count == 8
    assert any("finds who was in it" in note for note in solved.summary.notes)
    with pytest.raises(covey.ConfigError, match="--attack weights"):
        solved.audit(attacks=["lira"], references=2)


@pytest.mark.slow
def test_a_network_s_last_layer_is_attacked_too(tmp_path):
    settings = {
        "rounds": 4,
        "population": {"clients": 4, "examples_per_client": 40},
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
    }
    trained = covey.run(config=settings, out=tmp_path / "run")
    (cluster,) = json_of(trained.audit(attacks=["weights"]))["clusters"]
    assert set(cluster["attacks"]) == {"weights", "population"}
    for figures in cluster["attacks"].values():
        assert 0.3 < figures["overall"]["auc"]["value"] <= 1
