"""The examples run as they stand."""

import runpy
from pathlib import Path

import pytest

import covey

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_own_model_finds_both_kinds_of_clients_and_lets_one_go(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    out = tmp_path / "own"
    example = runpy.run_path(str(EXAMPLES / "own_model.py"))
    example["main"](str(out))
    printed = capsys.readouterr().out
    assert float(printed.split("examples: ")[1][:4]) > 0.8
    assert "client-00000 uses 82 parameters" in printed  # 2*16+16 + 16*2+2
    proof = printed.split("has left: ")[1].splitlines()[0]
    assert covey.verify(proof, run=out).valid


@pytest.mark.slow
def test_vectors_of_ones_own_are_enough_to_learn_from_and_to_leave(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    example = runpy.run_path(str(EXAMPLES / "embeddings.py"))
    example["main"](str(tmp_path / "run"))
    printed = capsys.readouterr().out
    assert float(printed.split("examples: ")[1][:4]) > 0.8
    assert "that failed: []" in printed
