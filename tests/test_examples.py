"""The examples run as they stand."""

import runpy
from pathlib import Path

import pytest
import torch

import covey
from covey.data.sets import Cifar10

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_own_model_finds_both_kinds_of_clients_and_lets_one_go(tmp_path, capsys):
    out = tmp_path / "own"
    example = runpy.run_path(str(EXAMPLES / "own_model.py"))
    example["main"](str(out))
    printed = capsys.readouterr().out
    assert float(printed.split("examples: ")[1][:4]) > 0.8
    assert "client-00000 uses 82 parameters" in printed  # 2*16+16 + 16*2+2
    proof = printed.split("has left: ")[1].splitlines()[0]
    assert covey.verify(proof, run=out).valid


@pytest.mark.slow
def test_vectors_of_ones_own_are_enough_to_learn_from_and_to_leave(tmp_path, capsys):
    example = runpy.run_path(str(EXAMPLES / "embeddings.py"))
    example["main"](str(tmp_path / "run"))
    printed = capsys.readouterr().out
    assert float(printed.split("examples: ")[1][:4]) > 0.8
    assert "that failed: []" in printed


@pytest.mark.slow
def test_the_audits_of_digits_and_of_a_table_say_whom_the_model_remembers(tmp_path, capsys):
    for name in ("audit_digits", "audit_table"):
        example = runpy.run_path(str(EXAMPLES / f"{name}.py"))
        example["main"](str(tmp_path / name))
        assert "Members can be distinguished" in capsys.readouterr().out
        assert (tmp_path / name / "audit.html").is_file()


@pytest.mark.slow
def test_the_audit_of_one_run_refutes_an_epsilon_whose_noise_was_forgotten(capsys):
    runpy.run_path(str(EXAMPLES / "audit_epsilon.py"))["main"]()
    noisy, _, bare, _ = capsys.readouterr().out.splitlines()
    assert "Not refuted: 3.80 is accounted for" in noisy
    assert "REFUTED: 3.80 is accounted for" in bare


@pytest.mark.slow
def test_a_frozen_network_solves_a_head_for_eight_clients(tmp_path, monkeypatch, real_data):
    """The network of the example, on a few of its images."""
    monkeypatch.delenv("COVEY_FEATURES", raising=False)
    example = runpy.run_path(str(EXAMPLES / "backbone.py"))
    images = Cifar10().read(real_data).train.first(200)
    clients = {f"c{i}": images.take(torch.arange(i, 200, 8)) for i in range(8)}
    head = {"name": "linear-head", "features": example["Lite0"]}
    settings = {**example["SOLVED"], "model": head, "risk": {"name": "none"}}
    run = covey.run(clients=clients, config=settings, out=tmp_path / "run")
    assert (run.summary.accuracy.overall or 0) > 0.4  # of ten classes, from 160 images
    (left,) = run.forget("c3", answer="subtract")
    assert run.verify(left.answered.proof).valid


@pytest.mark.slow
@pytest.mark.results
def test_a_frozen_network_is_bounded_and_left(tmp_path, capsys, monkeypatch, real_data):
    monkeypatch.setenv("COVEY_DATA", str(real_data))
    monkeypatch.setenv("COVEY_FEATURES", str(tmp_path))
    runpy.run_path(str(EXAMPLES / "backbone.py"))["main"](str(tmp_path / "run"))
    printed = capsys.readouterr().out
    assert "0 of 40 above" in printed
    assert printed.count("checks that failed: []") == 3
