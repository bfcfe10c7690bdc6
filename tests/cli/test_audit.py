"""`covey audit` on the embedded digits, and from Python."""

import json
import shutil

import numpy as np
import pytest
import torch

import covey as package
from covey.base.as_json import json_of
from json_schemas import check_json

QUICK = ["--references", "2", "--attack", "loss", "--attack", "lira"]
RATES = {"balanced_accuracy", "auc", "tpr_at_1_percent", "tpr_at_01_percent"}
MINE = """
from covey.membership.attacks import of_label

def confident(signals):
    return of_label(signals.target, signals.labels)
"""


@pytest.fixture(scope="module")
def audited(ran, ask, tmp_path_factory):
    """The small run with an audit beside it, only to be read: (folder, --json)."""
    folder = shutil.copytree(ran[0], tmp_path_factory.mktemp("audited") / "run")
    return folder, ask("audit", folder, *QUICK, "--attack", "source")


def test_it_writes_what_it_prints(audited):
    folder, printed = audited
    written = json.loads((folder / "audit" / "audit.json").read_text())
    check_json("audit/audit.json", written)
    assert {k: printed[k] for k in written} == written
    assert printed["references"] == 2
    assert "A server holds neither" in printed["view"]
    page = (folder / "audit" / "audit.html").read_text()
    assert "Cluster 0" in page
    assert "http" not in page.partition("<body>")[2]


def test_every_figure_has_an_interval_or_a_reason(audited):
    _, printed = audited
    for cluster in printed["clusters"]:
        assert cluster["members"] == cluster["non_members"]
        for name in ("loss", "lira"):
            figures = cluster["attacks"][name]
            parts = [figures["overall"]]
            for kind in ("by_group", "by_class", "by_difficulty"):
                parts += figures[kind].values()
            for part in parts:
                assert set(part) >= RATES
                for rate in RATES:
                    one = part[rate]
                    if one["value"] is None:
                        assert one["reason"]
                    else:
                        assert one["low"] <= one["value"] <= one["high"]
        assert any("needs at least 1,000" in reason for reason in cluster["unknown"])


def test_roc_figures_lie_beside_it(audited):
    folder, printed = audited
    for cluster in printed["clusters"]:
        if cluster["attacks"]:
            stem = folder / "audit" / f"roc-cluster-{cluster['cluster']}"
            assert b"<svg" in stem.with_suffix(".svg").read_bytes()


def test_it_says_the_same_again_and_from_python(audited):
    folder, printed = audited
    again = package.load(folder).audit(["loss", "lira", "source"], references=2)
    told = json_of(again)
    assert told["clusters"] == printed["clusters"]
    assert told["source"] == printed["source"]


def test_a_person_gets_a_table_and_an_attack_of_ones_own(copy_of_ran, covey, tmp_path):
    folder = copy_of_ran
    (tmp_path / "own_attack.py").write_text(MINE)
    words = ["--references", "2", "--attack", "loss", "--attack", "own_attack:confident"]
    code, out, err = covey("audit", folder, *words)
    assert code == 0, err
    assert "balanced accuracy" in out
    assert "needs at least 1,000 non-members" in out
    assert "reference 2 of 2 played" in err
    assert "reference 2 of 2" not in out
    written = json.loads((folder / "audit" / "audit.json").read_text())
    for cluster in written["clusters"]:
        attacks = cluster["attacks"]
        assert attacks["own_attack:confident"]["roc"] == attacks["loss"]["roc"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--attack", "nonsense"], "must be one of loss, shokri"),
        (["--attack", "nowhere:f"], "importing it failed"),
        (["--references", "1"], "at least 2 references"),
    ],
)
def test_bad_input_is_one_sentence(ran, covey, words, said):
    folder, _ = ran
    code, out, err = covey("audit", folder, *words)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())


def test_a_folder_without_a_run_is_refused(covey, tmp_path):
    assert covey("audit", tmp_path)[0] == 2


def test_a_mismatch_is_refused_with_the_blind_baseline(covey, small):
    config = ["--set", "audit.non_members=untransformed", "--set", "rounds=1"]
    rotated = ["--set", "population.minority=[60, 80]", "--set", "method.name=fedavg"]
    share = ["--set", "population.majority=[60, 80]", "--set", "population.clients=12"]
    more = ["--set", "population.audit_examples=300"]
    code, _, err = covey("run", *small, *config, *rotated, *share, *more, "--out", "run")
    assert code == 0, err
    code, out, err = covey("audit", "run", "--json", "--references", "2")
    assert code == 0, err
    (cluster,) = json.loads(out)["clusters"]
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

    settings = {"rounds": 2, "method": {"name": "fedavg"}}
    config = package.Config.of({**settings, "train": {"learning_rate": 0.5}})
    package.run(model, clients, config, out=tmp_path / "mine")
    code, _, err = covey("audit", tmp_path / "mine")
    assert code == 2
    assert "model=..., clients=...).audit(...) there" in " ".join(err.split())
    held = package.load(tmp_path / "mine", model, clients)
    found = held.audit(["loss", "rmia", "fedmia"], 2)
    (cluster,) = found.clusters
    assert set(cluster.attacks) == {"loss", "rmia", "fedmia"}
    assert cluster.members == cluster.non_members == 24
    assert cluster.background == 72
    assert list(cluster.attacks["loss"].by_group) == ["everybody"]


def test_the_participation_game_answers_a_program_and_a_person(covey, small):
    words = ["--set", "rounds=1", "--set", "method.name=fedavg"]
    more = ["--set", "risk.name=none", "--set", "population.audit_examples=300"]
    code, _, err = covey("run", *small, *words, *more, "--out", "run")
    assert code == 0, err
    play = ["audit", "run", "--game", "participation"]
    code, out, err = covey(*play, "--json")
    assert (code, err) == (0, "")
    game = json.loads(out)
    assert (game["participants"], game["reserved"]) == (6, 12)
    assert 0 <= game["low"] <= game["auc"] <= game["high"] <= 1
    assert (game["left"], game["left_reason"]) == (None, "nobody has left this run")
    assert game["control"] is None
    code, out, err = covey(*play, "--control")
    assert code == 0, err
    assert "round 1/1" in err
    assert "AUC against 12 reserved clients" in out
    assert "in a run that never met them" in out
    assert "left: nobody has left this run" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--game", "participation"], "at least 5 reserved clients"),
        (["--game", "chess"], "--game takes participation, found 'chess'"),
        (["--control"], "Add --game participation"),
        (["--game", "participation", "--attack", "loss"], "Give two commands"),
    ],
)
def test_a_game_that_cannot_be_played_is_one_sentence(ran, covey, words, said):
    folder, _ = ran
    code, out, err = covey("audit", folder, *words)
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
