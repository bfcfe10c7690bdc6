"""The commands do what they say, and --json is one object."""

import csv
import re

import safetensors.torch


def test_run_prints_every_promised_key(ran):
    _, printed = ran
    promised = """run method rounds seconds model_hash ledger_head accuracy clusters
    violations fairness adjusted_rand_index guarantee budget report"""
    assert set(promised.split()) <= set(printed)
    assert {"overall", "by_group"} == set(printed["accuracy"])
    for cluster in printed["clusters"]:
        keys = "clients risk true_risk auc blind_auc calibrated reason"
        assert set(keys.split()) <= set(cluster)
    assert {"count", "clients"} <= set(printed["violations"])
    assert printed["guarantee"] is None
    assert printed["guarantee_reason"]


def test_run_leaves_a_whole_folder(ran):
    folder, _ = ran
    for name in ("config.toml", "ledger.sqlite", "report.html", "metrics.csv"):
        assert (folder / name).stat().st_size > 0
    assert list((folder / "figures").glob("*.svg"))
    rows = list(csv.DictReader((folder / "metrics.csv").read_text().splitlines()))
    assert len(rows) == 3
    page = (folder / "report.html").read_text()
    assert "lowers the risk of no model" in page
    assert "FedAvg" in page
    assert "client-0000" not in page


def test_the_resolved_config_runs_again_to_the_same_hash(ran, answer):
    folder, printed = ran
    again = answer("run", folder / "config.toml", "--out", "two")
    assert again["model_hash"] == printed["model_hash"]
    assert again["ledger_head"] == printed["ledger_head"]


def test_resume_of_a_finished_run_says_the_same(ran, copy_of_ran, answer):
    _, printed = ran
    assert answer("resume", copy_of_ran)["model_hash"] == printed["model_hash"]


def test_a_run_with_a_baseline_ends_with_their_comparison(ran, copy_of_ran, covey):
    _, printed = ran
    said = covey("resume", copy_of_ran)[1].splitlines()
    heads, own, fedavg, report = said[-4:]
    assert heads.split()[:2] == ["method", "accuracy"]
    assert own.split()[:2] == ["ifca-mir", f"{printed['accuracy']['overall']:.3f}"]
    assert fedavg.split()[0] == "fedavg"
    assert report.startswith("report: ")


def test_export_by_client_is_its_clusters_model(ran, answer, tmp_path):
    folder, _ = ran
    mine = answer("export", folder, "--client", "client-00003", "--out", "a.safetensors")
    by_cluster = ["--cluster", mine["cluster"], "--out", "b.safetensors"]
    assert mine["sha256"] == answer("export", folder, *by_cluster)["sha256"]
    assert safetensors.torch.load_file(tmp_path / "b.safetensors")


def test_export_of_an_unknown_client_or_cluster(ran, covey):
    folder, _ = ran
    assert covey("export", folder, "--client", "client-99999")[0] == 2
    assert covey("export", folder, "--cluster", "7")[0] == 2


def test_report_over_two_runs(ran, answer, tmp_path):
    folder, _ = ran
    answer("report", folder, folder / "baseline", "--out", "both.html")
    assert "fedavg" in (tmp_path / "both.html").read_text()


def test_a_run_is_not_started_twice(ran, covey):
    folder, _ = ran
    code, _, err = covey("run", "--out", folder)
    assert code == 2
    assert "covey resume" in err


def test_sweep_plays_each_setting_once_and_reuses_runs(answer, covey, tmp_path):
    (tmp_path / "small.toml").write_text(
        "rounds = 2\n[model]\nname = 'mlp'\n[method]\ninitialisation = 'random'\n"
        "[train]\nlocal_epochs = 20\n"
        "[population]\nclients = 6\nexamples_per_client = 20\naudit_examples = 0\n"
    )
    words = [
        "sweep",
        "small.toml",
        "--over",
        "method.name=fedavg,ifca-mir",
        "--over",
        "method.selection=threshold,weighted",
        "--seeds",
        "1",
        "--out",
        "out",
    ]
    first = answer(*words)
    assert len(first["runs"]) == 1 + 2  # FedAvg does not look at the selection
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*/ledger*")}
    again = answer(*words)
    assert again["rows"] == first["rows"]
    code, told, _ = covey(*words)
    assert code == 0
    for row in first["rows"]:
        assert f"{row['accuracy']:.3f}" in told
    assert stamps == {p: p.stat().st_mtime_ns for p in tmp_path.glob("out/*/ledger*")}


def test_sweep_plays_a_run_for_each_threshold_though_nobody_asks_to_leave(answer, tmp_path):
    (tmp_path / "small.toml").write_text(
        "rounds = 1\n[model]\nname = 'mlp'\n[aggregation]\nname = 'anonymity-sets'\n"
        "min_anonymity = 4\n[method]\nname = 'fedavg'\n[train]\nlocal_epochs = 40\n"
        "[population]\nclients = 6\nexamples_per_client = 20\naudit_examples = 0\n"
    )
    over = ["--over", "aggregation.deniability_threshold=2,3"]
    told = answer("sweep", "small.toml", *over, "--out", "out")
    assert len(told["runs"]) == 2
    table = (tmp_path / "out" / "sweep.csv").read_text()
    lines = list(csv.DictReader(table.splitlines()))
    assert [each["aggregation.deniability_threshold"] for each in lines] == ["2", "3"]
    for line, row in zip(lines, told["rows"], strict=True):
        assert (line["name"], float(line["accuracy"])) == (row["name"], row["accuracy"])


def test_data_lists_what_is_missing_and_where_to_get_it(answer, tmp_path):
    listed = answer("config", "data", "list", "--dir", tmp_path)
    states = {each["state"] for each in listed["files"]}
    assert states == {"missing"}
    named = {(each["source"], each["file"]) for each in listed["files"]}
    assert named >= {
        ("femnist", "train/*.json"),
        ("celeba", "list_attr_celeba.txt"),
        ("celeba", "img_align_celeba/*.jpg"),
    }
    assert all(each["url"].startswith("http") for each in listed["files"])


def test_text_output_never_shows_a_figure_alone(covey, small):
    code, out, err = covey("run", *small, "--out", "text")
    assert code == 0
    for line in out.splitlines():
        if line.startswith("cluster"):
            assert "±" in line or "unknown (" in line
    # One line per round goes to standard error, which is no terminal here.
    assert re.findall(r"^round (\d/3)", err, re.MULTILINE) == ["1/3", "2/3", "3/3"]


def test_help_names_every_command(covey):
    code, out, err = covey("--help")
    assert code == 0
    for name in ("run", "resume", "report", "export", "sweep", "data"):
        assert f" {name} " in out + err
