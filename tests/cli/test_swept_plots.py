"""A figure over a swept setting: a picture, its means, and what changes nothing."""

import csv
import json

import numpy as np
import pytest

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
        same = [each for each in runs if all(each[key] == row[key] for key in keys)]
        assert float(row["mean"]) == pytest.approx(
            np.mean([float(each["metric_f1"]) for each in same])
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
