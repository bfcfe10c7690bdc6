import csv
import math
from io import StringIO

from covey import History
from covey.report.queries import metrics_csv


def test_every_number_comes_back_as_it_was(histories: dict[str, History]):
    history = histories["two clusters"]
    rows = list(csv.DictReader(StringIO(metrics_csv(history))))
    assert len(rows) == len(history.rounds)
    for read, row in zip(rows, history.rounds, strict=True):
        assert int(read["round"]) == row.round_index
        assert float(read["accuracy"]) == row.accuracy
        assert float(read["accuracy_minority"]) == row.accuracy_by_group["minority"]
        assert (int(read["clients_0"]), int(read["clients_1"])) == row.clients
        assert int(read["moved"]) == row.moved
    assert (float(rows[2]["risk_1"]), float(rows[2]["risk_se_1"])) == (0.6, 0.03)


def test_what_is_unknown_is_not_a_number(histories: dict[str, History]):
    rows = list(csv.DictReader(StringIO(metrics_csv(histories["two clusters"]))))
    assert math.isnan(float(rows[0]["risk_0"]))
    assert math.isnan(float(rows[1]["over"]))


def test_before_the_first_round_there_are_only_names():
    assert metrics_csv(History()) == "round,participants,accuracy,moved,over\n"
