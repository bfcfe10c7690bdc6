"""Whole runs on several labels, numbers, and models of several inputs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covey import (
    Config,
    DataError,
    Examples,
    ModelError,
    Params,
    PublishedData,
    ReferenceEngine,
    Run,
    Streams,
    audit_model,
    load,
    run,
)
from covey.api.pages import page_of
from covey.base.metrics import fairness
from covey.data.examples import NoShift, Preference, ShiftRange
from covey.data.population import Group, PopulationSpec, build_population
from covey.engine.recipe import MULTILABEL
from covey.report.comparison import client_rows
from covey.report.summary import Utility
from covey.runs.evaluation import ModelsInUse, accuracies, labelled_predictions
from covey.runs.folder import RunFolder
from covey.settings.clients import Overrides
from covey_flower.client_runtime import client_runtime_of
from covey_flower.node_file import NodeFile

MIXTURE = {
    "rounds": 3,
    "data": {"name": "linear-mixture", "dimension": 4},
    "population": {
        "clients": 6,
        "examples_per_client": 30,
        "shift": "none",
        "minority_share": 0.4,
        "audit_examples": 40,
    },
    "model": {"name": "linear-map", "task": "regression"},
    "train": {"learning_rate": 0.2},
    "method": {"initialisation": "random"},
    "risk": {"every": 1},
}


class NextWord(nn.Module):
    """Scores of nine words for every word of a sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.scores = nn.Embedding(9, 8), nn.Linear(8, 9)

    def forward(self, ids: Tensor) -> Tensor:
        return self.scores(self.embedding(ids))


def sentences(words: int = 8) -> dict[str, tuple[Tensor, Tensor]]:
    """Three clients; a word is followed by the next of seven, and sentences are padded."""
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(7, (3, 50, words), generator=draws)
    lengths = torch.randint(1, words + 1, (3, 50, 1), generator=draws)
    labels = ((ids + 1) % 7).where(torch.arange(words) < lengths, -100)
    return {f"c{i}": pair for i, pair in enumerate(zip(ids, labels, strict=True))}


SENTENCES: Mapping[str, Any] = {
    "rounds": 4,
    "model": {"task": "tokens"},
    "method": {"name": "fedavg"},
    "train": {"learning_rate": 1.0, "local_epochs": 4},
    "risk": {"every": 2},
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("tokens") / "run"
    return run(NextWord, sentences(), Config.of(SENTENCES), out=out)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("numbers") / "run"
    return run(config=Config.of(MIXTURE), out=out)


def test_words_are_learnt_and_their_risk_is_measured_by_one_loss_per_sentence(tokens: Run):
    assert (tokens.summary.accuracy.overall or 0) > 0.9
    (cluster,) = tokens.summary.clusters
    assert cluster.risk is not None
    assert cluster.true_risk is not None
    assert "120 members against 30 matched" in cluster.truth.reason
    assert any("means over each example's own unmasked tokens" in n for n in tokens.summary.notes)


def test_a_vocabulary_may_hold_words_that_no_client_has(tokens: Run, tmp_path: Path):
    assert (tokens.summary.accuracy.overall or 0) > 0.9  # nine words, of which clients have seven
    settings = {**SENTENCES, "rounds": 1}
    few = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 6))
    with pytest.raises(ModelError, match="at least 7 outputs"):
        run(few, sentences(), Config.of(settings), out=tmp_path / "run")
    one = nn.Sequential(nn.Embedding(9, 8), nn.Flatten(), nn.Linear(64, 7))
    with pytest.raises(ModelError, match=r"outputs \(2, 8, 7\)"):
        run(one, sentences(), Config.of(settings), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_sentence_of_padding_alone_is_refused_by_the_client_s_name(tmp_path: Path):
    clients = sentences()
    clients["c1"][1][3] = -100
    with pytest.raises(DataError, match=r"c1: model\.task = 'tokens' needs labels"):
        run(NextWord, clients, Config.of(SENTENCES), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("which", ["numbers", "tokens"])
def test_an_audit_withholds_what_needs_classes(which: str, request: pytest.FixtureRequest):
    result: Run = request.getfixturevalue(which)
    of_tokens = (NextWord, sentences()) if which == "tokens" else (None, None)
    audit = load(result.folder, *of_tokens).audit(["loss", "source"], references=2)
    used = [cluster for cluster in audit.clusters if cluster.clients]
    assert used
    for cluster in used:
        assert "need the log-probability of the true class" in cluster.reason
        assert cluster.attacks == {}


def test_several_labels_of_a_simulated_population_by_hand():
    draws = torch.Generator().manual_seed(0)
    images = torch.randint(256, (300, 1, 2, 2), dtype=torch.uint8, generator=draws)
    labels = (images.flatten(1)[:, :3] > 127).long()
    groups = tuple(Group(n, 0.5, ShiftRange(NoShift(), 0.0, 0.0), 20) for n in ("a", "b"))
    spec = PopulationSpec(4, groups, "image", 0.2, 20, -1, "matched")
    source = PublishedData("flags", Examples(images, labels), None, 3)
    population = build_population(source, spec, Streams(0), lambda _: Preference(0.0, 1.0))
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False))
    engine = ReferenceEngine(module, MULTILABEL)
    always = {"1.weight": torch.tensor([[1.0] * 4, [-1.0] * 4, [1.0] * 4])}  # says 1 0 1
    handles = {client.handle: 0 for client in population.clients}
    said = torch.tensor([1, 0, 1])
    accuracy = accuracies(engine, ModelsInUse((always,), handles), population)
    for client in population.clients:
        right = (population.test[client.group or 0].labels == said).float()
        assert accuracy[client.handle] == pytest.approx(float(right.mean()))
    answers = labelled_predictions(engine, ModelsInUse((always,), handles), population)
    assert answers is not None
    assert (answers.predictions == said.numpy()).all()
    assert answers.labels.shape == answers.predictions.shape
    gaps = fairness(answers, np.random.default_rng(0))
    assert [gap.mean.value for gap in gaps] == [0.0, 0.0, 0.0]  # the same answer to all
    assert all(gap.mean.low is None for gap in gaps)


def test_where_models_answer_a_number_their_squared_error_stands_for_an_accuracy(numbers: Run):
    summary = numbers.summary
    assert summary.accuracy == Utility(None, {})
    error = summary.squared_error
    assert 0 < error.by_group["minority"] < 10
    # of every client, from its model's answers in 64 bits, by the run's own data
    ends = numbers.history.exposures
    mean = np.mean([end.squared_error for end in ends if end.squared_error])
    assert mean == pytest.approx(error.overall, rel=1e-12)
    first, *_, last = numbers.history.rounds
    assert (last.squared_error or 0) < (first.squared_error or 0)
    page = page_of(RunFolder(numbers.folder)).read_text()
    assert "Mean squared error, all clients" in page
    assert "Accuracy, all clients" not in page
    rows = client_rows(numbers.history, numbers.names)
    assert all(row["squared_error"] > 0 and row["accuracy"] is None for row in rows)


SETTINGS: Mapping[str, Any] = {
    "rounds": 4,
    "method": {"num_clusters": 2, "initialisation": "random"},
    "train": {"learning_rate": 0.3, "local_epochs": 2},
    "risk": {"every": 2},
}


class Words(nn.Module):
    """Two scores of the words that are not masked, and of two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.scores = nn.Embedding(7, 4), nn.Linear(6, 2)

    def forward(self, ids: Tensor, mask: Tensor, numbers: Tensor) -> Tensor:
        words = (self.embedding(ids) * mask[..., None]).sum(dim=1)
        return self.scores(torch.cat([words, numbers], dim=1))


class Joined(Words):
    """The same, of one tensor."""

    def forward(self, inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ids, mask, numbers = inputs.split([5, 5, 2], dim=1)
        return super().forward(ids.long(), mask.bool(), numbers)


def parts(count: int = 40) -> dict[str, tuple[dict[str, Tensor], Tensor]]:
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(7, (4, count, 5), generator=draws)
    mask = torch.rand(4, count, 5, generator=draws) < 0.7
    numbers = torch.randn(4, count, 2, generator=draws)
    labels = (((ids > 2) & mask).sum(dim=2) + numbers[..., 0] > 2).long()
    return {
        f"c{i}": ({"ids": ids[i], "mask": mask[i], "numbers": numbers[i]}, labels[i])
        for i in range(4)
    }


def joined() -> dict[str, tuple[Tensor, Tensor]]:
    return {
        name: (torch.cat([tensor.float() for tensor in inputs.values()], dim=1), labels)
        for name, (inputs, labels) in parts().items()
    }


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("several") / "run"
    return run(Words, parts(), Config.of(SETTINGS), out=out)


def models(run: Run) -> list[Params]:
    return [run.params(j) for j in range(2)]


def test_the_models_are_those_of_one_tensor_to_the_bit(several: Run, tmp_path: Path):
    plain = run(Joined, joined(), Config.of(SETTINGS), out=tmp_path / "run")
    assert several.summary.accuracy == plain.summary.accuracy
    for own, other in zip(models(several), models(plain), strict=True):
        assert list(own) == list(other)  # and no name has a prefix
        assert all(torch.equal(own[name], other[name]) for name in own)
    risks = [[c.risk for c in trained.summary.clusters] for trained in (several, plain)]
    assert risks[0] == risks[1]
    assert any(risk is not None for risk in risks[0])


@pytest.mark.slow
def test_by_position_it_is_the_same_model_that_an_audit_attacks_and_a_client_leaves(
    several: Run, tmp_path: Path
):
    clients = {name: (tuple(inputs.values()), y) for name, (inputs, y) in parts().items()}
    again = run(Words, clients, Config.of(SETTINGS), out=tmp_path / "run")
    for own, other in zip(models(again), models(several), strict=True):
        assert all(torch.equal(own[name], other[name]) for name in own)
    audit = again.audit(["loss", "weights"], references=2)
    assert any(cluster.attacks for cluster in audit.clusters)
    (left,) = again.forget("c3", basis="erasure")
    assert left.answered.option.answer == "retrain"
    assert "c3" not in again.names


def test_what_reads_one_tensor_alone_refuses_several(tmp_path: Path):
    out = tmp_path / "run"
    with pytest.raises(DataError, match=r"'image' needs a tensor of .* found several"):
        run(Words, parts(), Config.of({**SETTINGS, "data": {"normalise": "image"}}), out=out)
    secrets = NodeFile(name="c0", seed=1)
    with pytest.raises(DataError, match="must bring one tensor of inputs"):
        client_runtime_of(
            Config.of(SETTINGS), secrets, Overrides(model=Words, clients={"c0": parts()["c0"]})
        )
    with pytest.raises(DataError, match="members must bring one tensor of inputs"):
        audit_model(Words(), parts()["c0"], parts()["c1"])
    assert not out.exists()
