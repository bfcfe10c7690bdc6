"""No figure of privacy is ever told of a model that is none, and no such update is merged."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import covey
from covey import Config, Run, RunError, run
from covey.aggregation.base import NOT_FINITE
from covey.algorithms.client_requests import ClientRequest
from covey.algorithms.round import divergences
from covey.algorithms.state import initial_state
from covey.base.as_json import json_of
from covey.base.events import (
    AnswerRefused,
    ClientExposed,
    ClusterAudited,
    Event,
    ModelsMerged,
    RiskMeasured,
)
from covey.base.figure import Figure
from covey.report.summary import Summary
from covey.runs.ending import with_stalled_clusters
from covey_papers.game import play_game


def leaked(summary: Summary) -> Iterator[str]:
    """Yield every figure of privacy that rests on a model that diverged."""
    gone = {model.cluster for model in summary.diverged}
    for cluster in summary.clusters:
        if cluster.cluster in gone:
            yield from known(cluster.measured.figure, cluster.truth.figure, cluster.exposed_risk)
            yield from known(cluster.traced_risk, cluster.strongest_attack)
            yield from known(*(cluster.risk, cluster.true_risk, cluster.auc, cluster.blind_auc))
            if not (cluster.measured.diverged and cluster.truth.diverged) or cluster.calibrated:
                yield f"cluster {cluster.cluster} is not said to have diverged"
    if {c.cluster for c in summary.clusters if c.clients} & gone:
        yield from leaked_over_clients(summary)


def known(*figures: object) -> Iterator[str]:
    yield from (str(f) for f in figures if (f.value if isinstance(f, Figure) else f) is not None)


def leaked_over_clients(summary: Summary) -> Iterator[str]:
    """Yield what is told over all clients, though one of them uses such a model."""
    counts, exposure = summary.violations, summary.exposure
    yield from known(summary.fairness, counts.count, counts.count_lower, counts.count_exposed)
    yield from known(counts.by_group, counts.clients, exposure.mean, exposure.maximum)
    for reason in (counts.reason, exposure.mean.reason, exposure.maximum.reason):
        if "diverged" not in reason:
            yield f"reason: {reason}"


def recorded(result: Run) -> Iterator[Event]:
    """Yield every fact of the run's end that states such a figure."""
    gone, end = result.history.diverged, result.summary.rounds
    for fact in result.history.all_events:
        match fact:
            case RiskMeasured(cluster, estimate):
                figures = (estimate.figure.value,) if estimate.round_index == end else ()
            case ClusterAudited(cluster, truth):
                figures = (truth.figure.value, truth.auc, fact.exposed.value, fact.blind_auc)
            case ClientExposed(_, cluster):
                figures = (fact.exposure.value,)
            case _:
                continue
        if cluster in gone and any(figure is not None for figure in figures):
            yield fact


TINY = {
    "rounds": 3,
    "population": {"clients": 6, "examples_per_client": 30, "audit_examples": 60},
    "model": {"name": "mlp"},
    "risk": {"every": 1},
}
HIDDEN = {"name": "anonymity-sets", "min_anonymity": 3}
DEEP: list[dict[str, Any]] = [
    {"aggregation": HIDDEN},
    {"method": {"name": "ifca", "initialisation": "random"}, "aggregation": HIDDEN},
    {"method": {"name": "local"}},
    {"method": {"selection": "weighted"}, "risk": {"name": "federated"}},
    {"method": {"selection": "threshold"}, "risk": {"name": "client"}},
    {"method": {"selection": {"name": "priced", "target_share": 0.2}}, "risk": {"name": "oracle"}},
]


def diverging(rate: float, **sections: Any) -> Config:
    parts = {k: {**TINY.get(k, {}), **v} for k, v in sections.items() if v}  # type: ignore[dict-item]
    return Config.of({**TINY, **parts, "train": {"learning_rate": rate}})


def check(result: Run) -> None:
    json.dumps(json_of(result.summary), allow_nan=False)
    assert list(leaked(result.summary)) == []
    assert list(recorded(result)) == []


@pytest.mark.parametrize(
    ("rate", "sections"),
    [
        (5000.0, {}),
        (1e30, {"method": {"name": "fedavg"}, "risk": {"name": "oracle"}}),
        *(pytest.param(1e30, depth, marks=pytest.mark.slow) for depth in DEEP),
    ],
)
def test_no_figure_is_reported_of_a_model_that_diverged(tmp_path, rate, sections):
    result = run(config=diverging(rate, **sections), out=tmp_path / "run")
    gone = result.history.diverged
    assert result.summary.diverged
    assert all(c.cluster in gone for c in result.summary.clusters if c.clients)
    check(result)


def blobs(seed: int, count: int = 30) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    return torch.randn(count, 4, generator=draw) + 3 * labels[:, None], labels


def linear() -> nn.Module:
    return nn.Linear(4, 2)


OWN = {
    "rounds": 3,
    "train": {"local_epochs": 2},
    "method": {"name": "fedavg"},
    "risk": {"every": 1},
}


def test_a_client_with_broken_inputs_changes_nobody_elses_model(tmp_path):
    config = Config.of(OWN)
    sound = {f"c{i}": blobs(i) for i in range(5)}
    broken = (torch.full((30, 4), 1e38), torch.arange(30) % 2)
    with_it = run(linear, {**sound, "d": broken}, config, tmp_path / "with")
    without = run(linear, sound, config, tmp_path / "without")
    summary, other = with_it.summary, without.summary
    assert summary.model_hash == other.model_hash
    assert summary.diverged == []
    assert summary.clusters[0].truth == other.clusters[0].truth
    assert summary.clusters[0].truth.is_known
    refused = [e for e in with_it.history.all_events if isinstance(e, AnswerRefused)]
    assert {e.handle for e in refused} == {with_it.names["d"]}
    assert len(refused) == 3
    assert with_it.history.refused == {with_it.names["d"]}


@pytest.mark.slow
def test_audit_and_game_reveal_nothing_of_it_either(tmp_path):
    enough = {"audit_examples": 300}  # to make reserved clients of
    config = diverging(1e30, method={"name": "fedavg"}, population=enough)
    result = run(config=config, out=tmp_path / "run")
    answer = result.audit(["loss", "source"], references=2)
    assert all(cluster.reason.startswith("the model diverged: ") for cluster in answer.clusters)
    assert not any(cluster.attacks or cluster.accuracies for cluster in answer.clusters)
    assert {cluster.blind_auc.value for cluster in answer.clusters} == {None}
    assert answer.source is None
    assert answer.source_reason.startswith("it rests on all models in use")
    page = (result.folder / "audit" / "audit.html").read_text()
    assert "the model diverged: no update of its clients was finite" in page
    with pytest.raises(RunError, match="that of cluster 0 diverged"):
        play_game(result)


@pytest.mark.slow
def test_a_proof_measures_no_model_that_diverged(tmp_path):
    config = diverging(1e30, method={"name": "fedavg"},
                       leaving={"request_probability": 1.0})  # fmt: skip
    result = run(config=config, out=tmp_path / "run")
    proofs = [json.loads(proof.read_text()) for proof in _proofs(result.folder)]
    assert proofs
    for proof in proofs:
        assert proof["measured"]["value"] is None
        assert proof["measured"]["reason"].startswith("diverged-")


def _proofs(folder: Path) -> list[Path]:
    return sorted((folder / "proofs").glob("*.json"))


FRESH = initial_state(({"w": torch.zeros(2)},) * 2)
REFUSED = AnswerRefused("A", f"its update of w {NOT_FINITE}")
LATE = AnswerRefused("A", "it is an answer to another question")
NOTHING, SOMETHING = ModelsMerged("", (0, 0)), ModelsMerged("", (0, 2))


@pytest.mark.parametrize(
    ("facts", "gone"),
    [
        ((REFUSED, NOTHING), [0, 1]),
        ((REFUSED, SOMETHING), []),
        ((LATE, NOTHING), []),
        ((NOTHING,), []),
    ],
    ids=["all were refused", "one was accepted", "not for that", "nobody came"],
)
def test_models_stall_where_all_that_came_was_not_finite(facts, gone):
    assert list(divergences(with_stalled_clusters(FRESH, facts))) == gone


def test_a_node_is_refused_in_the_words_that_are_looked_for():
    flower = pytest.importorskip("covey_flower.messages")
    start = {"w": torch.zeros(2)}
    request = ClientRequest("train", (start,), (True,))
    question = flower.Question(covey.__version__, "run", "token", "a", request)
    reply = flower.Reply(covey.__version__, "token", "a")
    content = flower.encode(reply, {"w": torch.full((2,), torch.nan)})
    with pytest.raises(flower.InvalidMessageError) as refused:
        flower.reply_of(content, flower.PendingQuestion("A", question))
    assert str(refused.value).endswith(NOT_FINITE)
