"""Whoever has a ridge head and candidates sees who was in it."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import covey
from covey.base.as_json import json_of
from covey.membership.attacks import auc
from covey.membership.weights_attack import Equations, membership_weights, population_scores

SOLVED = {
    "rounds": 1,
    "model": {"name": "linear-head", "features": {"filters": 30, "size": 3, "pool": 2}},
    "method": {"name": "solved", "selection": "loss", "initialisation": "groups", "pooling": 0.3},
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


def test_fewer_equations_than_candidates_tell_less():
    """The only thing that hides anybody without noise: more unknowns than equations."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(800, 40, generator=generator, dtype=torch.float64)
    labels = torch.randint(6, (800,), generator=generator)
    z = (torch.arange(800) < 400).double()
    theta = head_of(features, labels, z, 1.0)
    found = membership_weights(Equations.of_ridge(theta, features, labels))
    ranked = auc(found[:400].numpy(), found[400:].numpy())
    assert 0.55 < ranked < 0.95


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("solved") / "run"
    return covey.run(config=covey.Config.of(SOLVED), out=folder)


def test_everybody_is_found_in_a_head_without_noise(solved):
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


def notes_of(played: covey.Run) -> str:
    started = played.history.started
    assert started is not None
    return " ".join(started.notes)


def test_a_run_says_so_unless_there_is_noise(solved, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "sees who was in it" in notes_of(solved)
    noisy = {
        **SOLVED,
        "model": SOLVED["model"] | {"norm": 3.8},
        "method": {"name": "solved", "num_clusters": 1},
        "privacy": {"client_clip": 0.3, "client_noise": 1.0},
        "risk": {"name": "none"},
    }
    hidden = covey.run(config=covey.Config.of(noisy), out=tmp_path / "hidden")
    assert "sees who was in it" not in notes_of(hidden)


def test_who_knows_no_other_member_tells_some():
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(1_200, 40, generator=generator, dtype=torch.float64)
    labels = torch.randint(6, (1_200,), generator=generator)
    z = (torch.arange(1_200) < 200).double()
    theta = head_of(features, labels, z, 1.0)

    def ranked(others: int) -> float:
        judged, rest = slice(0, 400), slice(400, 400 + others)
        found = population_scores(
            Equations.of_ridge(theta, features[judged], labels[judged]),
            Equations.of_ridge(theta, features[rest], labels[rest]),
        )
        return auc(found[:200].numpy(), found[200:].numpy())

    assert ranked(20) > 0.6
    assert ranked(800) > 0.68


def test_a_network_s_last_layer_is_attacked_too(tmp_path):
    settings = {
        "rounds": 4,
        "population": {"clients": 4, "examples_per_client": 40},
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
    }
    trained = covey.run(config=covey.Config.of(settings), out=tmp_path / "run")
    (cluster,) = json_of(trained.audit(attacks=["weights"]))["clusters"]
    assert set(cluster["attacks"]) == {"weights", "population"}
    for figures in cluster["attacks"].values():
        assert 0.3 < figures["overall"]["auc"]["value"] <= 1


def test_other_attacks_on_heads_that_lean_are_sent_to_this_one(solved):
    with pytest.raises(covey.ConfigError, match="--attack weights"):
        solved.audit(attacks=["lira"], references=2)


def test_its_page_and_answer_are_written(solved):
    solved.audit(attacks=["weights"])
    written = json.loads((solved.folder / "audit" / "audit.json").read_text())
    assert np.isclose(written["clusters"][0]["attacks"]["weights"]["overall"]["auc"]["value"], 1)
