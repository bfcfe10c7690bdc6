"""Tables of a run say what its record says, and leave out what is not known."""

import csv
from io import StringIO
from pathlib import Path

import pytest

import covey
from covey import Run
from covey.report.comparison import client_rows
from covey.report.queries import metrics_csv, round_rows


@pytest.fixture(scope="module")
def run(once) -> Run:
    def play(folder: Path) -> None:
        settings = {
            "rounds": 2,
            "population": {"clients": 6, "audit_examples": 60},
            "model": {"name": "mlp"},
            "risk": {"every": 1},
        }
        covey.run(config=settings, out=folder / "run")

    return covey.load(once("frames", play) / "run")


def test_rounds_are_those_of_the_metrics_file(run: Run) -> None:
    lines = csv.DictReader(StringIO(metrics_csv(run.history)))
    for line, row in zip(lines, round_rows(run.history), strict=True):
        shared = {k: v for k, v in row.items() if not k.endswith("standard_error")}
        assert {**line, **{k: str(v) for k, v in shared.items() if v is not None}} == line
        unknown = {k for k, v in shared.items() if v is None}
        assert all(line[key] == "nan" for key in unknown)


def test_every_client_has_a_row_with_what_it_ends_with(run: Run) -> None:
    rows = {each["name"]: each for each in client_rows(run.history, run.names)}
    assert rows.keys() == run.names.keys()
    handles = {handle: name for name, handle in run.names.items()}
    for end in run.history.exposures:
        row = rows[handles[end.handle]]
        truth = run.history.audits[end.cluster].truth.figure
        assert (row["cluster"], row["true_risk"]) == (end.cluster, truth.value)
        assert row["exposure"] == end.exposure.value


def test_frames_are_those_rows(run: Run) -> None:
    pytest.importorskip("pandas")
    clients = run.clients_frame()
    assert list(clients["name"]) == sorted(run.names)
    assert list(run.rounds_frame()["round"]) == [0, 1]


def test_a_notebook_shows_a_short_page_without_scripts(run: Run, tmp_path: Path) -> None:
    page = run._repr_html_()
    assert len(page) < 4_000
    assert "True risk" in page
    assert len(repr(run)) < 300
