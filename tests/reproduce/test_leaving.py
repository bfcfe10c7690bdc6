"""What leaving costs, setting by setting, from runs of seconds."""

import pytest

from covey import Config, load
from covey_papers.reproduce.federations import EVERY_ANSWER, leaving
from covey_papers.reproduce.record import digest
from covey_papers.reproduce.specification import Column
from reproduce.tiny import experiment, shelf, times

pytestmark = pytest.mark.slow

TINY = {
    "rounds": 3,
    "data": {"name": "digits"},
    "population": {"clients": 8, "examples_per_client": 12},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 1, "batch_size": 12},
    "leaving": {"request_probability": 1.0},
}
ASKED = experiment(
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


@pytest.fixture(scope="module", autouse=True)
def own_keys(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def found(folder):
    return leaving(ASKED, shelf(folder), quick=False)


@pytest.fixture
def of(found):
    return {(cell.measure, cell.row): cell for cell in found.cells}


def test_settings_that_share_a_run_count_once(tmp_path):
    alike = ASKED.model_copy(
        update={
            "columns": (
                Column(
                    name="MNIST-iid",
                    base="leaving",
                    settings={**TINY, "leaving": {"request_probability": 0.0}},
                ),
            )
        }
    )
    found = leaving(alike, shelf(tmp_path), quick=False)
    of_sets = [cell for cell in found.cells if cell.row == "k=3"]
    assert {len(cell.values) for cell in of_sets} == {1}
    assert all(cell.interval is None for cell in of_sets)


def place(folder):
    (column,) = ASKED.columns
    settings = ASKED.settings_of(column, EVERY_ANSWER, quick=False)
    return folder / f"leaving-{digest(Config.of(settings))}" / "seed-0"


def test_a_baseline_has_one_value_and_sets_have_one_per_x(of):
    titles = [
        *("accuracy", "seconds per request"),
        *("requests that were not denied", "bytes on the server"),
    ]
    assert list(of) == [(title, row) for title in titles for row in ("fedAvg", "k=3")]
    for (_, row), cell in of.items():
        assert len(cell.values) == {"fedAvg": 1, "k=3": 2}[row]
        assert None not in cell.values


def test_the_numbers_are_those_of_the_runs(of, folder):
    settings = ("retrain", "k3-x2", "k3-x3")
    alone, *hidden = (place(folder) / name for name in settings)
    assert of["accuracy", "fedAvg"].values == (load(alone).summary.accuracy.overall,)
    denied, strict = of["requests that were not denied", "k=3"].values
    (replayed,) = of["requests that were not denied", "fedAvg"].values
    assert 0 <= denied <= strict <= replayed  # who keeps more members denies less
    assert replayed > 0
    told = load(hidden[0]).summary
    assert of["accuracy", "k=3"].values[0] == told.accuracy.overall
    files = [alone / "ledger.sqlite", *alone.glob("checkpoints/*.safetensors")]
    stored = sum(path.stat().st_size for path in files)
    assert of["bytes on the server", "fedAvg"].values == (stored,)
    assert all(cell.values[0] > 0 for (m, _), cell in of.items() if "seconds" in m)


def test_only_the_first_measure_is_printed(of):
    printed = {key: cell.printed for key, cell in of.items() if cell.printed}
    assert list(printed) == [("accuracy", "fedAvg")]  # the paper has no k = 3
    assert printed["accuracy", "fedAvg"].value == 0.964
    assert of["seconds per request", "k=3"].why == "Another machine."


def test_what_lies_in_the_folder_is_not_played_again(found, folder):
    before = times(folder)
    again = leaving(ASKED, shelf(folder), quick=False)
    assert again == found
    after = times(folder)
    assert {p: t for p, t in after.items() if p.suffix != ".sqlite"} == {
        p: t for p, t in before.items() if p.suffix != ".sqlite"
    }
    assert again.seconds == found.seconds > 0


def test_repeats_are_other_seeds_of_the_same_column(found, folder):
    assert [path.name for path in place(folder).parent.iterdir()] == ["seed-0"]
    assert found.commits


def test_data_that_are_missing_leave_a_column_with_a_reason(tmp_path):
    gone = {"data": {"name": "mnist", "dir": str(tmp_path)}}
    asked = ASKED.model_copy(update={"on_top": gone})
    found = leaving(asked, shelf(tmp_path / "runs"), quick=False)
    assert {cell.row for cell in found.cells} == {"fedAvg", "k=3"}
    assert {cell.values for cell in found.cells} == {()}
    (reason,) = {cell.verdict for cell in found.cells}
    assert reason.startswith("not played: mnist needs the file")
    assert found.notes == (reason,)
    # where the data were not is not remembered: the next try may name another folder
    assert not list((tmp_path / "runs").rglob("config.toml"))


def test_a_line_per_setting_shows_every_round_and_ends_in_the_accuracy(found, of):
    lines = {line.name: line.points for line in found.lines}
    apart = len(of["accuracy", "k=3"].values)  # one per x that answers otherwise
    assert [name.split(",")[0] for name in lines] == ["fedAvg", *["k=3"] * apart]
    for name, points in lines.items():
        assert [t for t, _ in points] == list(range(TINY["rounds"] + 1))
        assert points[-1][1] in of["accuracy", name.split(",")[0]].values
