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
    words = ("--set", "merge.radius=2.0", "--set", "method.target_share=0.25")
    code, out, err = covey("run", settings, *words, "--out", "out", "--json")
    assert code == 0
    notes = [line for line in err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 2
    assert any("merge.radius = 2.0 does nothing: it is for" in note for note in notes)
    share, radius = json.loads(out)["unused_settings"]
    assert (share["key"], share["value"]) == ("method.target_share", 0.25)
    assert (radius["key"], radius["value"]) == ("merge.radius", 2.0)
    assert "merge.name = 'anonymity-sets', found 'mean'" in radius["reason"]


def test_a_run_where_everything_is_heeded_has_none_to_tell(ran):
    assert ran[1]["unused_settings"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["merge.radius=1,2"], "--over merge.radius changes no run of this sweep"),
        (["redteam.shadows=2,4"], "redteam.source = 'shadow', found 'federated'"),
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
    set_ = ["--set", "merge.radius=2.0", "--set", "method.selection=loss"]
    told = answer("sweep", settings, *over, *set_, "--out", "out")
    assert [each["key"] for each in told["unused_settings"]] == ["merge.radius"]
