"""Tables of a run say what its record says, and leave out what is not known."""

import csv
import math
from io import StringIO

from covey import History
from covey.report.comparison import client_rows
from covey.report.queries import metrics_csv, round_rows


def test_the_metrics_file_has_every_number_of_the_rounds_and_nan_for_what_is_unknown(
    histories: dict[str, History],
):
    history = histories["two clusters"]
    lines = list(csv.DictReader(StringIO(metrics_csv(history))))
    for line, row, played in zip(lines, round_rows(history), history.rounds, strict=True):
        assert float(line["accuracy"]) == played.accuracy
        assert (int(line["clients_0"]), int(line["clients_1"])) == played.clients
        for key, value in row.items():
            if not key.endswith("standard_error"):
                assert line[key] == ("nan" if value is None else str(value))
    assert math.isnan(float(lines[1]["over"]))
    assert (float(lines[2]["risk_1"]), float(lines[2]["risk_se_1"])) == (0.6, 0.03)


def test_every_client_has_a_row_with_what_it_ends_with(histories: dict[str, History]):
    history = histories["two clusters"]
    rows = {
        row["name"]: row for row in client_rows(history, {h.upper(): h for h in history.clients})
    }
    for end in history.exposures:
        row = rows[end.handle.upper()]
        truth = history.audits[end.cluster].truth.figure
        assert (row["cluster"], row["true_risk"]) == (end.cluster, truth.value)
        assert row["exposure"] >= row["true_risk"]
