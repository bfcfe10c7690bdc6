"""`covey bench solved` on the digits that come with scikit-learn."""

import json
from pathlib import Path

from typer.testing import CliRunner

from covey.cli import app
from covey_papers.bench import HeadFigures, agreement, head_means

SETTINGS = """
[population]
clients = 12
examples_per_client = 30
minority_share = 0.25
audit_examples = 100
[model.options.feature_options]
filters = 8
size = 3
pool = 2
"""


def test_every_group_has_a_row_for_each_head(tmp_path: Path):
    path = tmp_path / "small.toml"
    path.write_text(SETTINGS)
    dials = ["--pooling", "0,1", "--regularisation", "0.1,1"]
    found = CliRunner().invoke(
        app, ["bench", "solved", str(path), "--seeds", "2", *dials, "--json"]
    )
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    rows = answer["rows"]
    assert len(rows) == 2 * 2 * 2 * 2
    assert {row["group"] for row in rows} == {"minority", "majority"}
    assert all(row["accuracy"] > 0.3 for row in rows)
    assert all(0.5 <= row["likelihood_ratio"] <= 1 for row in rows)
    assert answer["agreement"] >= 0.5
    table = CliRunner().invoke(app, ["bench", "solved", str(path), *dials])
    assert "of the true one in" in table.output


def row(accuracy: float, true: float, known: float, error: float) -> HeadFigures:
    return HeadFigures("s", 0, "g", 0.0, 1.0, accuracy, true, known, (error, 0.0), 0.6)


def test_means_and_agreement_by_hand():
    rows = [row(0.4, 0.50, 0.52, 0.0), row(0.6, 0.50, 0.54, 0.01)]
    assert agreement(rows) == 0.5
    (mean,) = head_means(rows)
    assert mean.accuracy == 0.5
    assert round(mean.deviation, 3) == 0.141
