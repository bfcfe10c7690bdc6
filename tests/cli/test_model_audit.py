"""`covey audit --model`: a classifier of one's own, without a run."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from auditor.tiny import halves, train
from covey import Examples
from json_schemas import check_json

MINE = """
from auditor.tiny import network, train

def quick(examples, seed):
    return train(examples, seed)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Records, a module of one's own, and weights in two forms."""
    made = tmp_path_factory.mktemp("model")
    sides = halves()
    (x, y), (u, v) = sides
    np.savez(made / "A.npz", x=x.numpy(), y=y.numpy())
    np.savez(made / "B.npz", inputs=u.numpy(), labels=v.numpy())
    state = train(Examples(*sides.members), seed=1).state_dict()
    safetensors.torch.save_file(state, made / "w.safetensors")
    torch.save(state, made / "w.pt")
    (made / "mine.py").write_text(MINE)
    return made


@pytest.fixture
def words(folder: Path, monkeypatch) -> list[str]:
    monkeypatch.syspath_prepend(folder)
    sides = ["--members", str(folder / "A.npz"), "--non-members", str(folder / "B.npz")]
    return ["audit", "--model", "mine:network", *sides]


def test_it_writes_what_it_prints(words, folder, ask, tmp_path):
    told = ask(
        *words, "--weights", folder / "w.pt", "--train", "mine:quick",
        *("--references", "2", "--out", tmp_path / "out"),
    )  # fmt: skip
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    check_json("audit.json of a model", written)
    assert {key: told[key] for key in written} == written
    assert told["references"] == 2
    assert told["attacks"]["lira"]["overall"]["auc"]["value"] > 0.9
    assert "<h1>Audit of mine:network" in Path(told["report"]).read_text()


def test_people_get_a_table_and_what_is_withheld(words, folder, covey):
    code, out, _ = covey(*words, "--weights", folder / "w.safetensors")
    assert code == 0
    assert "balanced accuracy" in out
    assert "lira: withheld" in out


def test_a_model_without_its_weights_is_no_model(words, covey):
    code, out, _ = covey(*words)
    assert code == 1
    assert "no better than guessing" in out


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("name", ["bomb.pt", "other.pt", "not.safetensors"])
def test_weights_that_are_none_run_nothing(words, name, covey, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    if name == "bomb.pt":
        path.write_bytes(pickle.dumps(Bomb()))
    elif name == "other.pt":
        torch.save({"weight": torch.zeros(2)}, path)
    else:
        path.write_bytes(b"nothing")
    code, _, error = covey(*words, "--weights", path)
    assert code == 2
    assert "must h" in error or "must be a state dict" in error
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w[:1], "found neither"),
        (lambda w: [w[0], "runs/x", *w[1:]], "Give two commands"),
        (lambda w: [*w, "--epsilon"], "Give two commands"),
        (lambda w: [w[0], "runs/x", *w[3:]], "belong to --model"),
        (lambda w: w[:3], "needs --members and --non-members"),
        (lambda w: [*w, "--references", "3"], "there is no --train"),
        (lambda w: [*w[:2], "mine", *w[3:]], "must be package.module:function"),
        (lambda w: [*w[:2], "mine:nothing", *w[3:]], "importing it failed"),
        (lambda w: [*w, "--attack", "fedmia"], "audit a run"),
    ],
)
def test_what_does_not_go_together_is_said(words, change, sentence, covey):
    code, _, error = covey(*change(words))
    assert code == 2
    assert sentence in error
