"""Settings that do nothing are told by the commands that take settings."""

import json

import pytest

SMALL = (
    "rounds = 1\n[model]\nname = 'mlp'\n[train]\nlocal_epochs = 20\n"
    "[population]\nclients = 6\nexamples_per_client = 20\naudit_examples = 60\n"
)


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_a_run_tells_what_does_nothing_on_standard_error_and_in_its_answer(covey, settings):
    pairs = ("method.selection=loss", "population.risk_weight=0.25", "stopping.patience=3")
    words = [word for each in pairs for word in ("--set", each)]
    code, out, err = covey("run", settings, *words, "--out", "out", "--json")
    assert code == 0
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2
    assert any("population.risk_weight = 0.25 does nothing: it is for" in note for note in notes)
    weight, patience = json.loads(out)["unused_settings"]
    assert (weight["key"], weight["value"]) == ("population.risk_weight", 0.25)
    assert (patience["key"], patience["value"]) == ("stopping.patience", 3)
    assert "method.selection = 'weighted'" in weight["reason"]


def test_a_run_where_everything_is_heeded_has_none_to_tell(ran):
    assert ran[1]["unused_settings"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aggregation.radius=1,2"], "--over aggregation.radius changes no run of this sweep"),
        (["population.risk_weight=0,1", "risk.name=none"], "--over population.risk_weight"),
        (["risk.shadows=2,4"], "risk.name = 'shadow', found 'federated'"),
        (["seed=1,2"], "its seeds are those of --seeds"),
        (
            ["method.selection=loss,weighted", "method.name=fedavg,local"],
            "--over method.selection changes no run",
        ),
    ],
)
def test_a_swept_key_without_effect_is_refused_and_nothing_is_written(covey, settings, words, said):
    over = [word for each in words for word in ("--over", each)]
    code, out, err = covey("sweep", settings, *over, "--out", "out")
    assert (code, out) == (2, "")
    assert said in " ".join(err.split())
    assert sorted(settings.parent.iterdir()) == [settings]


@pytest.mark.slow
def test_a_sweep_tells_what_does_nothing_in_any_of_its_runs(answer, settings):
    over = ["--over", "method.name=fedavg,ifca-mir"]
    set_ = ["--set", "stopping.patience=3", "--set", "method.selection=loss"]
    told = answer("sweep", settings, *over, *set_, "--out", "out")
    assert [each["key"] for each in told["unused_settings"]] == ["stopping.patience"]
