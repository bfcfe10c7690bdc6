"""What leaving costs, setting by setting, and shared runs are the runs they stand for."""

import pytest

from covey import Config, load, run
from covey_papers.reproduce.answered_runs import outcomes
from covey_papers.reproduce.federations import EVERY_ANSWER, leaving
from covey_papers.reproduce.record import digest
from covey_papers.reproduce.specification import Column
from reproduce.tiny import cache, experiment, times

TINY = {
    "rounds": 3,
    "data": {"name": "digits"},
    "population": {"clients": 8, "examples_per_client": 12},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 1, "batch_size": 12},
    "leaving": {"request_probability": 1.0},
}
ONE_ANSWER = experiment(
    kind="leaving",
    paper="deniable",
    table="Table 2",
    measures=("accuracy", "seconds", "replays", "bytes"),
    figure="lines",
    columns=(Column(name="MNIST-iid", base="leaving", settings=TINY),),
    rows=(),
    k=(3,),
    x=(2, 3),
    baselines=("retrain",),
    why={"seconds": "Another machine."},
)


def place(folder):
    (column,) = ONE_ANSWER.columns
    settings = ONE_ANSWER.settings_of(column, EVERY_ANSWER)
    return folder / f"leaving-{digest(Config.of(settings))}" / "seed-0"


@pytest.mark.slow
def test_the_numbers_are_those_of_runs_that_are_played_once(tmp_path):
    folder = tmp_path / "runs"
    findings = leaving(ONE_ANSWER, cache(folder))
    of = {(cell.measure, cell.row): cell for cell in findings.cells}
    settings = ("retrain", "k3-x2", "k3-x3")
    alone, *hidden = (place(folder) / name for name in settings)
    assert of["accuracy", "fedAvg"].values == (load(alone).summary.accuracy.overall,)
    denied, strict = of["requests that were not denied", "k=3"].values
    (replayed,) = of["requests that were not denied", "fedAvg"].values
    assert denied is not None
    assert strict is not None
    assert replayed is not None
    assert 0 <= denied <= strict <= replayed > 0  # who keeps more members denies less
    summary = load(hidden[0]).summary
    assert of["accuracy", "k=3"].values[0] == summary.accuracy.overall
    files = [alone / "ledger.sqlite", *alone.glob("checkpoints/*.safetensors")]
    stored = sum(path.stat().st_size for path in files)
    assert of["bytes on the server", "fedAvg"].values == (stored,)
    assert all((cell.values[0] or 0) > 0 for (m, _), cell in of.items() if "seconds" in m)
    before = times(folder)
    again = leaving(ONE_ANSWER, cache(folder))
    assert again == findings
    after = times(folder)
    assert {p: t for p, t in after.items() if p.suffix != ".sqlite"} == {
        p: t for p, t in before.items() if p.suffix != ".sqlite"
    }
    assert again.seconds == findings.seconds > 0


DIGITS = {
    "rounds": 5,
    "population": {"clients": 12, "examples_per_client": 12, "audit_examples": 0, "shift": "none"},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "leaving": {"request_probability": 0.5},
}
ALL_ANSWERS = experiment(k=(4,), x=(2, 3, 4), baselines=("retrain", "federaser"))


@pytest.mark.slow
def test_every_setting_ends_as_if_it_had_been_played_alone(tmp_path):
    out = tmp_path / "bench"
    by_name = {outcome.name: outcome for outcome in outcomes(ALL_ANSWERS, DIGITS, 0, out)}

    assert list(by_name) == ["retrain", "federaser", "k4-x2", "k4-x3", "k4-x4"]
    answers = sum(by_name["retrain"].answers.values())
    assert answers > 0
    assert by_name["retrain"].answers == {"retrain": answers}
    assert by_name["federaser"].answers == {"calibrate": answers}
    denied = [by_name[f"k4-x{x}"].answers.get("deny", 0) for x in ALL_ANSWERS.x]
    assert denied == sorted(denied, reverse=True)
    assert denied[0] > denied[-1]
    assert by_name["k4-x3"].shared_with == "k4-x2"
    parted = by_name["k4-x4"]
    assert not parted.shared_with
    merge = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 4}
    config = Config.of({**DIGITS, "seed": 0, "aggregation": merge})
    alone = run(config=config, out=tmp_path / "alone")
    assert load(out / "k4-x4").summary.model_hash == alone.summary.model_hash
    # what lies in the folder is not played again
    files = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    again = {outcome.name: outcome for outcome in outcomes(ALL_ANSWERS, DIGITS, 0, out)}
    assert again == by_name
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*.safetensors")} == files
