"""What a whole run records and measures."""

import math

import numpy as np
import pytest
import torch

from covey import Config, ConfigError, DataError, RunError, load, run
from covey.base.events import ClientsAssigned, CohortSampled
from covey.base.history import pooled_clusters
from covey.settings.algorithm import notes
from recorded import events_of


def test_every_participant_is_recorded_by_handle_and_never_by_name(play):
    result = play()
    chosen = {t: e for t, e in events_of(result.folder) if isinstance(e, ClientsAssigned)}
    cohorts = {t: e for t, e in events_of(result.folder) if isinstance(e, CohortSampled)}
    assert [*cohorts] == [0, 1, 2, 3]
    for t, cohort in cohorts.items():
        assert set(cohort.handles) == set(chosen[t].clusters)
    assert "client-0000" not in str(events_of(result.folder))


def test_participation_is_a_coin_of_each_client_and_round(play):
    result = play(train={"participation": 0.5}, rounds=6)
    counts = [row.participants for row in result.history.rounds]
    assert 0 < np.mean(counts) < 6
    assert len(set(counts)) > 1


def test_an_empty_cohort_moves_nothing(play):
    result = play(train={"participation": 1e-9}, rounds=3)
    assert [row.participants for row in result.history.rounds] == [0, 0, 0]
    accuracies = {row.accuracy for row in result.history.rounds}
    assert len(accuracies) == 1


def test_fedavg_has_one_cluster_and_local_training_one_per_client(play):
    assert len(play(method={"name": "fedavg"}).summary.clusters) == 1
    assert len(play(method={"name": "local"}).summary.clusters) == 6


def test_groups_start_from_the_truth_and_say_so(play):
    summary = play(method={"initialisation": "groups"}).summary
    assert any("an oracle" in note for note in summary.notes)


@pytest.mark.parametrize(
    ("merge", "source", "said"),
    [("anonymity-sets", "seeded", 1), ("anonymity-sets", "os", 0), ("mean", "seeded", 0)],
)
def test_what_the_seed_gives_away_is_said(merge, source, said):
    config = Config.of({"aggregation": {"name": merge}, "secrets": {"source": source}})
    found = [each for each in notes(config) if "recomputed from the seed" in each]
    assert len(found) == said


def test_pooling_brings_a_clients_examples_into_every_model(play):
    result = play(
        method={"initialisation": "groups", "pooling": 0.5}, population={"audit_examples": 60}
    )
    exposures = {each.handle: each.exposure for each in result.history.exposures}
    for audit, handles in zip(
        result.history.audits, pooled_clusters(result.history, 2), strict=True
    ):
        assert handles
        assert all(float(exposures[handle]) >= float(audit.traced) for handle in handles)


def test_pooling_by_risk_needs_a_risk(play):
    with pytest.raises(ConfigError, match=r"risk\.name = 'none'"):
        play(method={"pooling": "risk"}, risk={"name": "none"})


def test_a_finished_run_reads_the_same_from_disk(play):
    result = play(population={"audit_examples": 60})
    again = load(result.folder)
    assert again.summary == result.summary


def own_clients(seed=0, classes=3):
    generator = torch.Generator().manual_seed(seed)
    labels = [torch.randint(classes, (30,), generator=generator) for _ in range(5)]
    return [
        (torch.eye(classes)[each] + torch.rand(30, classes, generator=generator), each)
        for each in labels
    ]


def test_own_data_have_a_federated_risk_and_no_group_figures(tmp_path):
    config = Config.of({"rounds": 8, "train": {"learning_rate": 0.5}})
    result = run(
        model=lambda: torch.nn.Linear(3, 3),
        clients=own_clients(),
        config=config,
        out=tmp_path / "own",
    )
    summary = result.summary
    assert summary.accuracy.by_group == {}
    assert summary.accuracy.overall is not None
    assert summary.accuracy.overall > 0.5
    assert summary.adjusted_rand_index is None
    assert summary.fairness is None
    used = [each for each in summary.clusters if each.clients]
    assert {each.measured.source for each in used} == {"federated"}
    assert all(each.risk is not None and math.isfinite(each.risk) for each in used)
    assert set(result.params(0)) == {"weight", "bias"}


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (torch.zeros(4), "client-00000: .* needs labels with a class number"),
        (torch.zeros(3).long(), "as many"),
    ],
)
def test_own_data_of_the_wrong_form_are_refused(tmp_path, labels, reason):
    with pytest.raises(DataError, match=reason):
        run(clients=[(torch.zeros(4, 2), labels)], out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_npz_folders_are_populations(tmp_path):
    for index, (inputs, labels) in enumerate(own_clients()):
        np.savez(tmp_path / f"hospital-{index}.npz", x=inputs.numpy(), y=labels.numpy())
    settings = {
        "rounds": 2,
        "data": {"name": "npz", "dir": str(tmp_path)},
        "model": {"name": "mlp"},
    }
    result = run(config=Config.of(settings), out=tmp_path / "out")
    assert sorted(result.names) == [f"hospital-{index}" for index in range(5)]
    assert result.cluster_of("hospital-3") in (0, 1)
    with pytest.raises(RunError, match="hospital-9"):
        result.cluster_of("hospital-9")


def test_mismatched_non_members_refuse_the_figure(tmp_path):
    """Upright non-members against turned members: the audit must not believe itself."""
    settings = {
        "rounds": 2,
        "population": {
            "examples_per_client": 25,
            "holdout": 0.0,
            "minority": [60, 90],
            "majority": [90, 120],
        },
        "model": {"name": "mlp"},
        "risk": {"name": "none"},
        "audit": {"non_members": "untransformed"},
    }
    result = run(config=Config.of(settings), out=tmp_path / "out")
    for cluster in result.summary.clusters:
        if cluster.clients:
            assert cluster.true_risk is None
            assert "never sees the model" in cluster.truth.reason
    assert result.summary.violations.count is None
