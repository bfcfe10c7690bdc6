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
from cli.conftest import refused, sets
from covey import Examples
from covey.base.as_json import json_of
from json_schemas import check_json

RATES = {"balanced_accuracy", "auc", "tpr_at_1_percent", "tpr_at_01_percent"}
ATTACK = """
from covey.membership.attacks import of_label

def confident(signals):
    return of_label(signals.target, signals.labels)
"""
TINY = sets(
    *("rounds=1", "population.clients=6", "model.name=mlp", "method.name=fedavg"),
    *("risk.name=none", "population.audit_examples=300"),
)


@pytest.fixture(scope="module")
def audited(ran, ask, tmp_path_factory):
    """The small run with an audit beside it, only to be read: (folder, --json)."""
    folder = shutil.copytree(ran[0], tmp_path_factory.mktemp("audited") / "run")
    attacks = [word for name in ("loss", "lira", "source") for word in ("--attack", name)]
    return folder, ask("audit", folder, "--references", "2", *attacks)


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
    told = json_of(package.load(folder).audit(["loss", "lira", "source"], references=2))
    assert told["clusters"] == printed["clusters"]
    assert told["source"] == printed["source"]


def test_every_figure_has_an_interval_or_a_reason(audited):
    for cluster in audited[1]["clusters"]:
        assert cluster["members"] == cluster["non_members"]
        for name in ("loss", "lira"):
            figures = cluster["attacks"][name]
            parts = [figures["overall"]]
            for kind in ("by_group", "by_class", "by_difficulty"):
                parts += figures[kind].values()
            for part in parts:
                assert set(part) >= RATES
                for one in (part[rate] for rate in RATES):
                    if one["value"] is None:
                        assert one["reason"]
                    else:
                        assert one["low"] <= one["value"] <= one["high"]
        assert any("needs at least 1,000" in reason for reason in cluster["unknown"])


def test_a_person_gets_a_table_and_an_attack_of_ones_own(copy_of_ran, covey, tmp_path):
    (tmp_path / "own_attack.py").write_text(ATTACK)
    words = ["--references", "2", "--attack", "loss", "--attack", "own_attack:confident"]
    code, out, err = covey("audit", copy_of_ran, *words)
    assert code == 0, err
    assert "balanced accuracy" in out
    assert "needs at least 1,000 non-members" in out
    assert "reference 2 of 2 played" in err
    assert "reference 2 of 2" not in out
    written = json.loads((copy_of_ran / "audit" / "audit.json").read_text())
    for attacks in (cluster["attacks"] for cluster in written["clusters"]):
        assert attacks["own_attack:confident"]["roc"] == attacks["loss"]["roc"]


def test_a_mismatch_is_refused_with_the_blind_baseline(covey, answer):
    turned = ("population.minority=[60, 80]", "population.majority=[60, 80]")
    words = sets("audit.non_members=untransformed", "population.clients=12", *turned)
    code, _, err = covey("run", *TINY, *words, "--out", "run")
    assert code == 0, err
    (cluster,) = answer("audit", "run", "--references", "2")["clusters"]
    assert cluster["attacks"] == {}
    assert "refused: a classifier that never sees the model" in cluster["reason"]


def test_runs_from_python_need_their_model_and_clients_again(covey, tmp_path):
    draw, y = np.random.default_rng(0), np.arange(40) % 2
    clients = [
        (
            torch.from_numpy(draw.normal(y[:, None], 1, (40, 4)).astype(np.float32)),
            torch.from_numpy(y),
        )
        for _ in range(3)
    ]

    def model() -> torch.nn.Module:
        return torch.nn.Linear(4, 2)

    settings = {"rounds": 2, "method": {"name": "fedavg"}, "train": {"learning_rate": 0.5}}
    package.run(model, clients, package.Config.of(settings), out=tmp_path / "mine")
    refused("model=..., clients=...).audit(...) there", "audit", tmp_path / "mine")
    held = package.load(tmp_path / "mine", model, clients)
    (cluster,) = held.audit(["loss", "rmia", "fedmia"], 2).clusters
    assert set(cluster.attacks) == {"loss", "rmia", "fedmia"}
    assert cluster.members == cluster.non_members == 24
    assert cluster.background == 72
    assert list(cluster.attacks["loss"].by_group) == ["everybody"]


def test_the_participation_game_answers_a_program_and_a_person(covey):
    code, _, err = covey("run", *TINY, "--out", "run")
    assert code == 0, err
    play = ["audit", "run", "--game", "participation"]
    code, out, err = covey(*play, "--json")
    assert (code, err) == (0, "")
    game = json.loads(out)
    assert game["participants"] == 6
    assert 0 <= game["low"] <= game["auc"] <= game["high"] <= 1
    assert (game["left"], game["left_reason"]) == (None, "no client has left this run")
    assert game["control"] is None
    code, out, err = covey(*play, "--control")
    assert code == 0, err
    assert "round 1/1" in err
    assert f"AUC against {game['reserved']} reserved clients" in out
    assert "in a run that never met them" in out
    assert "left: no client has left this run" in out


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
    code, out, _ = covey(*words)  # a model without its weights is no model
    assert (code, "no better than guessing" in out) == (1, True)


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("name", ["bomb.pt", "other.pt", "not.safetensors"])
def test_weights_that_are_none_run_nothing(words, name, covey):
    path = Path(name)
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
def test_what_does_not_go_together_is_said(words, change, sentence):
    refused(sentence, *change(words))


# `covey guarantee`: an epsilon before a run is played, and what it is about

ASPECTS = {
    *("epsilon", "epsilon_claimed", "noise_multiplier", "relation"),
    *("covers", "does_not_cover", "holds_if"),
}


def test_the_papers_noise_delivers_less_than_it_claims(answer):
    words = ("guarantee", "--noise", "paper")
    told = answer(*words, *("--sigma", "25.788", "--rounds", "50", "--delta", "1e-5"))
    assert told["epsilon"] == pytest.approx(2.21, abs=0.01)
    assert told["epsilon_claimed"] == pytest.approx(1.0, abs=0.01)
    assert len(told["holds_if"]) == 3
    assert set(told) >= ASPECTS
    told = answer(*words, "--epsilon", "8")  # it is the one that the paper prints
    assert told["sigma"] == pytest.approx(3.2235, abs=1e-3)
    assert told["epsilon"] == pytest.approx(27.64, abs=0.01)


@pytest.mark.parametrize("noise", ["client", "record"])
def test_noise_is_found_for_an_epsilon_and_keeps_it(answer, noise):
    found = answer("guarantee", "--noise", noise, "--epsilon", "2", "--rounds", "10")
    assert found["epsilon_claimed"] == 2
    assert found["epsilon"] <= 2
    z = found["noise_multiplier"]
    back = answer("guarantee", "--noise", noise, "--sigma", z, "--rounds", "10")
    assert back["epsilon"] == pytest.approx(found["epsilon"])
    assert set(found) >= ASPECTS


def test_an_unusable_setting_looks_unusable(covey):
    words = ("guarantee", "--noise", "client", "--sigma", "4.24")
    code, out, _ = covey(*words)
    assert code == 0
    assert "mostly noise" in out
    _, out, _ = covey(*words, "--clients", "5000", "--coordinates", "650")
    assert "mostly noise" not in out
    assert "does not cover" in out


def test_sound_noise_tells_the_epsilon_of_every_view(answer, covey):
    words = ("guarantee", "--noise", "sound", "--sigma", "2", "--sets", "4", "--rounds", "5")
    told = answer(*words)
    assert told["epsilon"] == told["views"]["their mean"]
    assert len(told["views"]) == 4
    assert "if an adversary sees" in covey(*words)[1]
