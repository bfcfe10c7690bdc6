from pathlib import Path

from covey.ledger import Ledger
from covey_papers.bench import LedgerSize, make_ledger, open_ledger


def test_a_ledger_is_made_as_large_as_it_is_to_be_and_opened(tmp_path: Path):
    size, where = LedgerSize(rounds=3, cohort=70, clients=80), tmp_path / "ledger"
    made = make_ledger(where, size)
    assert made.last.seconds > 0
    assert size.rows == 210
    ledger = Ledger.read(where)
    sampled = [r.body["handles"] for r in ledger.replay() if r.kind == "CohortSampled"]
    assert [len(each) for each in sampled] == [70] * 3
    assert len(ledger.names()) == 80
    opened = open_ledger(where, size)
    assert opened.denials == 50
    assert opened.slowest.seconds >= opened.planned.seconds > 0
