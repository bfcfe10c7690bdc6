"""From `covey forget` to the signed proof: how often the ledger is read and written."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from sys import _getframe

import covey
from covey.cli.commands import app
from covey.ledger.backends import Database
from covey.ledger.store import Ledger
from support.runs import tiny


def test_the_ledger_is_read_once_and_written_in_few_transactions(tmp_path, monkeypatch):
    covey.run(config=tiny(rounds=2), out=tmp_path / "run")
    transactions, read, pieces = Counter[str](), Counter[int](), Ledger.pieces

    def counted(name: str):
        begin = getattr(Database, name)

        @contextmanager
        def transaction(self: Database) -> Iterator[object]:
            transactions[name] += _getframe(2).f_code.co_name != "writing"  # one inside another
            with begin(self) as connection:
                yield connection

        return transaction

    def counted_pieces(self: Ledger, after: object = None):
        for links in pieces(self, after):  # pyright: ignore[reportArgumentType]
            read.update(link.position for link in links)
            yield links

    monkeypatch.setattr(Database, "reading", counted("reading"))
    monkeypatch.setattr(Database, "writing", counted("writing"))
    monkeypatch.setattr(Ledger, "pieces", counted_pieces)
    words = ["forget", str(tmp_path / "run"), "client-00003", "--answer", "retrain"]
    app(words, standalone_mode=False)
    assert set(read.values()) == {1}
    assert 0 < transactions.total() <= 60, transactions
