"""Whole runs in which what a client accepts is a bound on every attack on its data."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import covey
from covey import Config
from covey.base.built_ins import BOUND
from covey.base.events import ExposuresLimited, ModelAttacked
from covey.base.history import of_kinds
from covey.dp.exposure import success_of
from covey.report.clients import client_summaries
from covey.report.figures import violations_figure
from covey.runs.states import load_state
from support.runs import tiny

RECORDS = {"record_clip": 1.0, "record_noise": 1.5, "exposure": "accepted"}
CLIENTS = {"client_clip": 0.5, "client_noise": 1.5, "exposure": "accepted"}


def hidden(privacy: dict[str, Any], **sections: Any) -> Config:
    """Return settings of a run of one model, under a secret of the system."""
    settings: dict[str, Any] = {
        "train": {"learning_rate": 1.0},
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "secrets": {"source": "os"},
        "privacy": privacy,
        **sections,
    }
    return tiny(**settings)


def own_bounds(run: covey.Run) -> dict[str, float]:
    """Return each client's bound, as the ledger has it."""
    attacks = of_kinds(run.history.all_events, ModelAttacked)
    return {
        attack.client: attack.estimate.risk for attack in attacks if attack.estimate.source == BOUND
    }


def accepted(run: covey.Run) -> dict[str, float]:
    assert run.history.started is not None
    return dict(run.history.started.risk_thresholds)


def load_model(run: covey.Run) -> covey.Params:
    newest = max((Path(run.folder) / "checkpoints").iterdir())
    return load_state(newest)[0].clusters[0]


@pytest.mark.parametrize("privacy", [RECORDS, CLIENTS], ids=["records", "clients"])
def test_nobody_is_above_what_it_accepts_by_a_bound(whole, privacy):
    run = whole(hidden(privacy))
    taus, bounds = accepted(run), own_bounds(run)
    assert bounds.keys() == taus.keys()
    whole_clip = success_of(4**0.5 / 1.5)
    assert 0 < sum(tau < whole_clip for tau in taus.values()) < 6
    for handle, tau in taus.items():
        assert min(tau, whole_clip) - 1e-5 < bounds[handle] <= tau
    unit = "record" if privacy is RECORDS else "client"
    assert run.guarantee.guarantee.unit == unit
    if not run.history.diverged:  # of six clients' updates hidden as a whole no model is left
        violations = run.summary.violations
        assert (violations.count, list(violations.attacks)) == (0, [BOUND])


def test_of_a_seed_that_anybody_may_have_there_is_no_bound(whole):
    run = whole(hidden(RECORDS, secrets={"source": "seeded"}))
    assert not own_bounds(run)
    assert BOUND not in run.summary.violations.attacks
    assert run.guarantee.guarantee is None


def test_releases_are_paid_before_they_are_made(whole):
    """Two releases of four rounds are eight rounds: mu grows by the root of two."""
    once, twice = (whole(hidden({**RECORDS, "releases": r})) for r in (1, 2))
    exposures = []
    for run in (once, twice):
        limited = next(of_kinds(run.history.all_events, ExposuresLimited)).exposures
        exposures.append({name: limited.get(handle, 1.0) for name, handle in run.names.items()})
    for name in (name for name, exposure in exposures[0].items() if exposure < 1):
        exposure = exposures[0][name]
        assert exposures[1][name] == pytest.approx(exposure / 2**0.5, abs=1e-5)


@pytest.mark.parametrize("releases", [1, 2])
def test_who_stays_keeps_its_bound_while_releases_last(copied, tmp_path, releases):
    run = copied(hidden({**RECORDS, "releases": releases}), tmp_path / "run")
    plan = run.plan("client-00002", answer="retrain")
    spent = "privacy.releases are spent" in plan.chosen.afterwards
    assert plan.chosen.exceeds_releases == spent == (releases == 1)

    run.forget("client-00002", answer="retrain")
    run = covey.load(run.folder)
    taus, bounds = accepted(run), own_bounds(run)
    above = [handle for handle in run.history.clients if bounds[handle] > taus[handle]]
    assert bool(above) == (releases == 1)
    if not run.history.diverged:  # as the noise of this test is drawn anew, and few train
        assert run.summary.violations.count == len(above)


def test_noise_is_fresh_in_rounds_that_are_played_again(copied, tmp_path):
    """Of two models with the same noise the difference is the client that left."""
    privacy = {**RECORDS, "record_noise": 1e4, "releases": 2}
    run = copied(hidden(privacy, rounds=1), tmp_path / "run")
    before = load_model(run)
    run.forget("client-00002", answer="retrain")
    after = load_model(run)
    for name, value in before.items():
        deviation = (value - after[name]).std()
        assert deviation > 0.1 * value.std()


def test_who_accepts_nothing_is_in_no_model_and_is_told_so(tmp_path):
    """The same bits, whatever it holds."""

    def play(name: str, shift: float) -> covey.Run:
        generator = torch.Generator().manual_seed(0)
        clients = {
            f"client-{i}": (torch.randn(12, 6, generator=generator), torch.arange(12) % 3)
            for i in range(4)
        }
        inputs, labels = clients["client-1"]
        clients["client-1"] = inputs + shift, labels
        config = hidden(
            {**RECORDS, "expected_records": 40},
            secrets={"source": "seeded"},
            model={"name": "linear"},
            population={"holdout": 0.25},
        )
        thresholds = {"client-1": 0.5}
        out = tmp_path / name
        return covey.run(clients=clients, config=config, out=out, thresholds=thresholds)

    one, other = play("one", 0.0), play("other", 7.0)
    assert one.summary.model_hash == other.summary.model_hash
    assert any("1 of 4 clients accept no risk above 0.5" in note for note in one.summary.notes)


def test_an_audit_runs_the_likelihood_ratio_beside_the_bound(copied, tmp_path):
    run = copied(hidden(RECORDS, population={"audit_examples": 20}), tmp_path / "run")
    ratio = run.audit(("loss",), 2).likelihood_ratio
    bounds = own_bounds(run)
    assert ratio is not None
    assert (ratio.above, ratio.rounds_unknown) == (0, 0)
    assert ratio.worst <= ratio.bound == max(bounds.values())
    for handle, success in ratio.by_client.items():
        assert 0.5 <= success <= bounds[handle] + 1e-6
    assert "by_client" not in json.loads((Path(run.folder) / "audit/audit.json").read_text())
    loaded = covey.load(run.folder)
    for summary in client_summaries(loaded.history).values():
        assert summary.risk is not None
        assert summary.attack is not None
        assert summary.risk.source == BOUND
        assert summary.attack.risk <= summary.risk.risk
    (axes,) = violations_figure(loaded.history).axes
    assert any(line.get_marker() == "D" for line in axes.lines)


def test_a_round_whose_model_is_gone_counts_as_clipped(copied, tmp_path):
    run = copied(hidden(RECORDS, population={"audit_examples": 20}), tmp_path / "run")
    whole = run.audit(("loss",), 2).likelihood_ratio
    for t in (0, 1):
        (Path(run.folder) / f"checkpoints/round-{t:05d}.safetensors").unlink()
    less = covey.load(run.folder).audit(("loss",), 2).likelihood_ratio
    assert whole is not None
    assert less is not None
    assert less.rounds_unknown == 2
    assert whole.success.value <= less.success.value
    assert less.worst <= less.bound


def test_rounds_in_which_nobody_came_are_rounds(copied, tmp_path):
    audited = {"audit_examples": 20}
    config = hidden(RECORDS, population=audited, train={"participation": 0.12}, rounds=16)
    run = copied(config, tmp_path / "run")
    ratio = run.audit(("loss",), 2).likelihood_ratio
    participants = [row.participants for row in run.history.rounds]
    assert 0 in participants
    assert ratio is not None
    assert ratio.rounds_unknown == 0
    assert ratio.worst <= ratio.bound + 1e-9
