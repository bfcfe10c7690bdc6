"""`covey audit`, of a run and of any classifier, and `covey guarantee`."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import covey as package
from auditor.tiny import halves, train
from cli.conftest import refused
from covey import Examples
from covey.base.as_json import json_of
from json_schemas import check_json

TINY = {
    "train": {"local_epochs": 20},
    "rounds": 1,
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}


@pytest.fixture(scope="module")
def audited(ran, ask, tmp_path_factory):
    """The small run with an audit beside it, only to be read: (folder, --json)."""
    folder = shutil.copytree(ran[0], tmp_path_factory.mktemp("audited") / "run")
    attacks = [word for name in ("loss", "lira", "source") for word in ("--attack", name)]
    return folder, ask("audit", folder, "--references", "2", *attacks)


@pytest.mark.slow
def test_it_writes_what_it_prints_and_from_python_it_is_the_same(audited):
    folder, printed = audited
    written = json.loads((folder / "audit" / "audit.json").read_text())
    check_json("audit/audit.json", written)
    assert {k: printed[k] for k in written} == written
    assert printed["references"] == 2
    assert "A server holds neither" in printed["view"]
    page = (folder / "audit" / "audit.html").read_text()
    assert "Cluster 0" in page
    assert "http" not in page.partition("<body>")[2]
    for cluster in printed["clusters"]:
        if cluster["attacks"]:
            stem = folder / "audit" / f"roc-cluster-{cluster['cluster']}"
            assert b"<svg" in stem.with_suffix(".svg").read_bytes()
    of_python = json_of(package.load(folder).audit(["loss", "lira", "source"], references=2))
    assert of_python["clusters"] == printed["clusters"]
    assert of_python["source"] == printed["source"]


@pytest.mark.slow
def test_the_participation_game_answers_a_program(answer):
    package.run(config={**TINY, "population": {"clients": 6, "audit_examples": 300}}, out="run")
    game = answer("game", "run")
    assert game["participants"] == 6
    assert 0 <= game["low"] <= game["auc"] <= game["high"] <= 1
    assert (game["left"], game["left_reason"]) == (None, "no client has left this run")
    assert game["control"] is None


# a classifier of one's own, without a run

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


def test_of_a_model_it_writes_what_it_prints(words, folder, ask, tmp_path):
    printed = ask(
        *words, "--weights", folder / "w.pt", "--train", "mine:quick",
        *("--references", "2", "--out", tmp_path / "out"),
    )  # fmt: skip
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    check_json("audit.json of a model", written)
    assert {key: printed[key] for key in written} == written
    assert printed["references"] == 2
    assert printed["attacks"]["lira"]["overall"]["auc"]["value"] > 0.9
    assert "<h1>Audit of mine:network" in Path(printed["report"]).read_text()


def test_above_a_limit_the_exit_code_is_one(words, folder, covey):
    short = [*words, "--weights", folder / "w.pt", "--attack", "loss", "--limit"]
    code, printed, _ = covey(*short, "0.6")
    assert code == 1
    assert "above the limit: AUC 0.6" in printed
    code, printed, _ = covey(*short, "1")
    assert code == 0
    assert "within the limit: AUC 1" in printed
    assert "a classifier that never sees the model (0.5: the sides are alike): 0." in printed


def test_a_limit_is_about_attackers_with_answers_unless_more_is_named(words, folder, covey):
    strong = [*words, "--weights", folder / "w.pt", "--attack", "inverse-hessian", "--limit", "1"]
    code, printed, _ = covey(*strong)
    assert code == 1
    assert "Nothing is known: no attack was run whose attacker has answers" in printed
    code, printed, _ = covey(*strong, "--knowledge", "all-others")
    assert code == 0
    assert "all other members" in printed


@pytest.mark.slow
def test_the_same_command_again_trains_no_reference(words, folder, covey, tmp_path):
    again = ["--weights", folder / "w.pt", "--train", "mine:quick", "--references", "2"]
    printed = [covey(*words, *again, "--out", tmp_path / "out") for _ in range(2)]
    assert [pair[0] for pair in printed] == [0, 0]
    assert printed[0][1] == printed[1][1]
    assert "reference 2 of 2 trained" in printed[0][2]
    assert "trained" not in printed[1][2]


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("name", ["bomb.pt", "not.safetensors"])
def test_weights_that_are_none_run_nothing(words, name, covey):
    path = Path(name)
    path.write_bytes(pickle.dumps(Bomb()) if name == "bomb.pt" else b"nothing")
    code, _, error = covey(*words, "--weights", path)
    assert code == 2
    assert "must h" in error or "must be a state dict" in error
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w[:1], "found neither"),
        (lambda w: [w[0], "runs/x", *w[3:]], "must be with --model"),
        (lambda w: w[:3], "needs --members and --non-members"),
        (lambda w: [*w, "--references", "3"], "--references needs --train"),
        (lambda w: [*w[:2], "mine", *w[3:]], "must be package.module:function"),
        (lambda w: [*w, "--attack", "fedmia"], "audit a run"),
    ],
)
def test_what_does_not_go_together_is_said(words, change, sentence):
    refused(sentence, *change(words))


# `covey audit RUN --plausible`: models that the last round's sets allow


def test_plausible_models_are_counted_and_what_that_does_not_say_is_said(runs, answer, covey):
    printed = answer("audit", runs / "hidden", "--plausible")
    assert (printed["round_index"], printed["sets"], printed["alternatives"]) == (1, 2, 6)
    assert 0 <= printed["differing_nearest"]["median"] <= printed["differing_any"]["largest"] <= 1
    said = " ".join(covey("audit", runs / "hidden", "--plausible")[1].split())
    assert said.startswith("round 2: 2 anonymity sets allow 6 other models")
    assert "says nothing about whether a client took part" in said


@pytest.mark.parametrize("more", [("--attack", "loss"), ("--references", "4")])
def test_plausible_models_go_with_no_attack(runs, more):
    refused("--plausible must be alone", "audit", runs / "hidden", "--plausible", *more)


# `covey guarantee`: an epsilon before a run is played, and what it is about


def test_the_papers_noise_delivers_less_than_it_claims(answer):
    words = ("guarantee", "--noise", "paper")
    printed = answer(*words, *("--sigma", "25.788", "--rounds", "50", "--delta", "1e-5"))
    assert printed["epsilon"] == pytest.approx(2.21, abs=0.01)
    assert printed["epsilon_claimed"] == pytest.approx(1.0, abs=0.01)
    assert len(printed["holds_if"]) == 3
    printed = answer(*words, "--epsilon", "8")  # it is the one that the paper prints
    assert printed["sigma"] == pytest.approx(3.2235, abs=1e-3)
    assert printed["epsilon"] == pytest.approx(27.64, abs=0.01)


def test_the_theorem_claims_nothing_outside_its_range(answer, covey):
    # sqrt((1 + 8 ln 2) / 7) = 0.967: over .15 it is 6.4, and 8 ln 2 is 5.5
    words = ("guarantee", "--noise", "paper", "--rounds", "1", "--delta", "0.5", "--sigma")
    assert answer(*words, "0.15")["epsilon_claimed"] is None
    said = " ".join(covey(*words, "0.15")[1].split())
    assert "Theorem 1 claims nothing for sigma 0.150: its formula gives epsilon 6.4" in said
    assert "8 log(1/delta) = 5.5" in said
    inside = " ".join(covey(*words, "0.3")[1].split())
    assert "Theorem 1 claims epsilon 3.223 for sigma 0.300." in inside


def test_sound_noise_has_an_epsilon_for_every_view(answer, covey):
    words = ("guarantee", "--noise", "sound", "--sigma", "2", "--sets", "4", "--rounds", "5")
    printed = answer(*words)
    assert printed["epsilon"] == printed["views"]["their mean"]
    assert len(printed["views"]) == 4
    assert "if an adversary sees" in covey(*words)[1]
