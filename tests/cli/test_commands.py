"""The commands on runs do what they say, and --json is one object."""

import csv
import json
import re
import shutil
from io import StringIO

import numpy as np
import pytest
import safetensors.torch
from rich.console import Console

from cli.conftest import SMALL, refused, sets
from covey import Config, load, run
from covey.cli import console

TINY = """
rounds = 1
[model]
name = "mlp"
[method]
initialisation = "random"
[train]
local_epochs = 20
[population]
clients = 6
examples_per_client = 20
audit_examples = 0
"""


def test_run_prints_every_promised_key_and_leaves_a_whole_folder(ran):
    folder, printed = ran
    promised = """run method rounds seconds model_hash ledger_head accuracy clusters
    violations fairness adjusted_rand_index guarantee budget report"""
    assert set(promised.split()) <= set(printed)
    assert {"overall", "by_group", "reported"} == set(printed["accuracy"])
    for cluster in printed["clusters"]:
        keys = "clients risk true_risk auc blind_auc calibrated reason"
        assert set(keys.split()) <= set(cluster)
    assert {"count", "clients"} <= set(printed["violations"])
    assert printed["guarantee"] is None
    assert printed["guarantee_reason"]
    assert printed["unused_settings"] == []
    for name in ("config.toml", "ledger.sqlite", "report.html", "metrics.csv"):
        assert (folder / name).stat().st_size > 0
    assert list((folder / "figures").glob("*.svg"))
    assert len((folder / "metrics.csv").read_text().splitlines()) == 1 + 3
    page = (folder / "report.html").read_text()
    assert "does not lower any model" in page
    assert "FedAvg" in page
    assert "client-0000" not in page


@pytest.mark.slow
def test_the_resolved_config_runs_again_to_the_same_hash_and_in_words(ran, covey):
    folder, printed = ran
    code, out, err = covey("run", folder / "config.toml", "--out", "two")
    assert code == 0
    again = load("two")
    assert again.summary.model_hash == printed["model_hash"]
    assert again.ledger_head == printed["ledger_head"]
    shown = [line for line in out.splitlines() if line.startswith("cluster")]
    assert shown
    assert all("±" in line or "unknown (" in line for line in shown)
    # One line per round goes to standard error, which is no terminal here.
    assert re.findall(r"^round (\d/3)", err, re.MULTILINE) == ["1/3", "2/3", "3/3"]


def test_a_run_with_its_baseline_ends_with_both_side_by_side(copy_of_ran, covey, ran):
    code, out, _ = covey("resume", copy_of_ran)
    assert code == 0
    head, mine, fedavg = [line.split() for line in out.splitlines()[-5:-2]]
    assert head == ["method", "accuracy", "minority", "highest", "risk", "violations"]
    assert (mine[0], fedavg[0]) == ("ifca-mir", "fedavg")
    (compared, _) = ran[1]["compared"]
    assert mine[1] == f"{compared['overall']:.3f}"
    if compared["attack"]:  # a risk never stands alone
        assert mine[4] == "±"
        assert mine[6:8] == ["by", compared["attack"]]
    assert str(compared["violations"]) in mine


def test_export_by_client_is_its_clusters_model(ran, answer, tmp_path):
    folder, _ = ran
    mine = answer("export", folder, "--client", "client-00003", "--out", "a.safetensors")
    by_cluster = ["--cluster", mine["cluster"], "--out", "b.safetensors"]
    assert mine["sha256"] == answer("export", folder, *by_cluster)["sha256"]
    assert safetensors.torch.load_file(tmp_path / "b.safetensors")


def test_a_terminal_shows_rounds_accuracy_risk_violations_and_time_left(tmp_path, monkeypatch):
    written = StringIO()
    wide = Console(file=written, force_terminal=True, width=100, height=40)
    monkeypatch.setattr(console, "console", wide)
    settings = {
        "rounds": 2,
        "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 0},
        "model": {"name": "linear"},
        "risk": {"every": 1},
    }
    with console.shown("example") as observe:
        run(config=Config.of(settings), out=tmp_path / "run", observe=observe)
    text = written.getvalue()
    for word in (
        "round 2/2",
        "2/2\x1b[0m",
        "0:00:00",
        "accuracy",
        "minority",
        "risk",
        "±",
        "violations",
    ):
        assert word in text


@pytest.mark.slow
def test_a_run_says_what_does_nothing_on_standard_error_and_in_its_answer(covey, tmp_path):
    (tmp_path / "small.toml").write_text(TINY)
    words = sets("method.selection=loss", "population.risk_weight=0.25", "stopping.patience=3")
    code, out, err = covey("run", "small.toml", *words, "--out", "out", "--json")
    assert code == 0
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2
    assert any("population.risk_weight = 0.25 does nothing: it is for" in note for note in notes)
    weight, patience = json.loads(out)["unused_settings"]
    assert (weight["key"], weight["value"]) == ("population.risk_weight", 0.25)
    assert (patience["key"], patience["value"]) == ("stopping.patience", 3)
    assert "method.selection = 'weighted'" in weight["reason"]


@pytest.mark.slow
def test_a_run_that_diverged_says_so_and_exits_with_1(covey):
    words = sets("train.learning_rate=5000", "rounds=2", "model.name=mlp")
    code, out, err = covey("run", *SMALL, *words, "--out", "run", "--json")
    assert code == 1
    printed = json.loads(out)
    assert printed["diverged"]
    assert printed["violations"]["count"] is None
    assert all(c["risk"] is c["true_risk"] is None for c in printed["clusters"])
    assert "run: round 2: the model of cluster 0 diverged: " in err
    assert covey("resume", "run")[0] == 1


def test_a_run_in_which_nobody_took_part_says_so_and_exits_with_1(covey):
    words = sets("train.participation=1e-9", "rounds=2", "model.name=mlp")
    code, _, err = covey("run", *SMALL, *words, "--out", "run")
    assert code == 1
    assert "run: nobody took part in the last 2 of 2 rounds." in err


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_run_that_diverged_and_exits_with_1(covey, tmp_path):
    settings = TINY.replace('initialisation = "random"', 'name = "fedavg"')
    (tmp_path / "s.toml").write_text(settings)
    code, out, err = covey("sweep", "s.toml", "--over", "train.learning_rate=1e30,0.3", "--json")
    printed = json.loads(out)
    assert code == 1
    assert [bool(row["diverged"]) for row in printed["rows"]] == [True, False]
    assert "round 1: the model of cluster 0 diverged: " in err


def test_what_is_damaged_is_said_with_what_to_do(covey, copy_of_ran):
    state = max((copy_of_ran / "checkpoints").iterdir())
    whole = state.read_bytes()
    doctor = ("ledger", "doctor", copy_of_ran)
    code, out, _ = covey(*doctor)
    assert (code, out.strip()) == (0, "nothing is damaged")
    state.unlink()
    code, out, _ = covey(*doctor)
    assert code == 1
    assert f"DAMAGED   the state after round 2: {state}" in out
    assert "`covey resume` plays the rounds" in out
    code, out, _ = covey(*doctor, "--json")
    (damaged,) = json.loads(out)["damaged"]
    assert (code, damaged["path"], damaged["problem"]) == (1, str(state), "it is gone")
    assert covey("resume", copy_of_ran)[0] == 0
    assert state.read_bytes() == whole


def test_runs_are_listed_where_they_are_written_and_go_only_with_yes(covey, answer, ran, tmp_path):
    assert covey("runs", "list", ".")[1] == "no runs were found\n"
    shutil.copytree(ran[0], tmp_path / "runs" / "one")
    rows = answer("runs", "list")["runs"]
    assert [(row["name"], row["state"]) for row in rows] == [
        ("one", "finished"),
        ("one/baseline", "finished"),
    ]
    assert ran[1]["ledger_head"].startswith(rows[0]["ledger_head"])
    code, out, _ = covey("runs", "list", "runs")
    assert code == 0
    assert "one/baseline" in out
    assert rows[0]["ledger_head"] in out
    assert answer("runs", "show", "one")["rounds_played"] == 3
    assert "is verified: yes" in covey("runs", "show", "one/baseline")[1]
    for said, *words in (
        ("two", "runs", "show", "two"),
        ("90d", "runs", "prune", "--older-than", "soon"),
    ):
        refused(said, *words)
    old = answer("runs", "prune", "--older-than", "0h")
    assert old["deleted"] == []
    assert old["size_bytes"] > 0
    code, out, _ = covey("runs", "prune", "--older-than", "0h", "--whole", "--yes")
    assert code == 0
    assert "deleted: runs/one" in out
    assert not (tmp_path / "runs" / "one").exists()


SWEPT = """
rounds = 4
metrics = ["f1"]
population = {clients = 6, examples_per_client = 20, audit_examples = 0}
model.name = "mlp"
method = {name = "ifca-mir", selection = "weighted"}
"""


@pytest.mark.slow
def test_a_sweep_is_drawn_over_its_setting_and_written_in_four_formats(covey, tmp_path):
    (tmp_path / "s.toml").write_text(SWEPT)
    axes = ["--over", "train.learning_rate=0.5,0.8", "--over", "method.name=fedavg,ifca"]
    more = ["--seeds", "2", "--out", "swept"]
    plot = ["--plot", "f1:train.learning_rate"]
    code, out, err = covey("sweep", "s.toml", *axes, *more, *plot, "--json")
    assert code == 0, err
    stem = tmp_path / "swept" / "f1-train.learning_rate"
    assert stem.with_name(f"{stem.name}.pdf").read_bytes().startswith(b"%PDF")
    assert stem.with_name(f"{stem.name}.png").read_bytes().startswith(b"\x89PNG")
    with stem.with_name(f"{stem.name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (tmp_path / "swept" / "sweep.csv").open() as file:
        runs = list(csv.DictReader(file))
    for row in rows:
        keys = ("method.name", "train.learning_rate")
        same = [one for one in runs if all(one[key] == row[key] for key in keys)]
        assert float(row["mean"]) == pytest.approx(
            np.mean([float(one["metric_f1"]) for one in same])
        )
        assert row["runs"] == "2" == str(len(same))
    latex = stem.with_name(f"{stem.name}.tex").read_text()
    assert latex.startswith(r"\begin{tabular}{llll}")
    assert r"method.name & train.learning\_rate & runs & f1 \\" in latex
    assert latex.count(r"$\pm$") == len(rows) == 4
    answer = json.loads(out)
    assert answer["unchanged"] == []
    assert [path.rpartition(".")[2] for path in answer["plots"]] == ["pdf", "png", "csv", "tex"]


@pytest.mark.slow
def test_a_setting_that_changes_no_figure_is_named(covey, tmp_path):
    (tmp_path / "s.toml").write_text(SWEPT)
    axes = ["--over", "train.batch_size=40,50", "--over", "train.learning_rate=0.1,0.5"]
    code, out, err = covey("sweep", "s.toml", *axes)
    assert code == 0, err
    assert "no figure of any run changes with train.batch_size" in out
    assert "changes with train.learning_rate" not in out


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        ("accuracy", "FIGURE:KEY"),
        ("accuracy:train.learning_rat", "Do you mean 'accuracy:train.learning_rate'"),
        ("accurac:train.learning_rate", "Do you mean 'accuracy:train.learning_rate'"),
        ("f11:train.learning_rate", "Do you mean 'f1:train.learning_rate'"),
    ],
)
def test_a_plot_of_nothing_is_refused_before_anything_is_played(covey, tmp_path, plot, message):
    (tmp_path / "s.toml").write_text(SWEPT)
    code, _, err = covey("sweep", "s.toml", "--over", "train.learning_rate=0.1,0.5", "--plot", plot)
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "sweeps").exists()
