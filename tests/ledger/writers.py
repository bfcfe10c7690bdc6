"""Processes that write ledgers while their server is killed under them.

As a program: each of N forked processes writes a run of its own. What was acknowledged
stands in its file, a line each.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from covey import LedgerError
from covey.ledger.chain import Record
from covey.ledger.store import Ledger


def noon() -> str:
    return "2030-01-01T12:00:00Z"


def own_round(name: str, n: int) -> list[Record]:
    return [Record(n, "facts", {"writer": name, "part": part}) for part in range(2)]


@dataclass
class Writer:
    """One process.

    Attributes:
        place: gives the URL of a run.
        written: how many rounds of its own were acknowledged.
    """

    name: str
    place: Callable[[str], str]
    until: float
    log: TextIO
    written: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def live(self) -> None:
        where = self.place(self.name)
        while time.monotonic() < self.until:
            try:
                begin = Ledger.open if Ledger.exists(where) else Ledger.create
                with begin(where, noon) as ledger:
                    self.write(ledger)
            except LedgerError as error:
                self.errors[type(error).__name__] += 1
        self.report(errors=self.errors)

    def write(self, ledger: Ledger) -> None:
        while time.monotonic() < self.until:
            records = own_round(self.name, self.written)
            last = ledger.last_round()
            if last == self.written:  # recorded, but the answer was lost
                ledger.compare(self.written, records)
            else:
                assert last == (self.written - 1 if self.written else None)
                ledger.append(self.written, records)
            self.report(head=ledger.head())
            self.written += 1

    def report(self, **facts: object) -> None:
        self.log.write(f"{json.dumps(facts)}\n")
        self.log.flush()


def main(url: str, writers: int, seconds: float, folder: Path) -> int:
    """Fork the writers, and return how many of them failed."""
    until, children = time.monotonic() + seconds, []
    for n in range(writers):
        child = os.fork()
        if child == 0:
            with (folder / f"w{n}").open("w") as log:
                Writer(f"w{n}", lambda run: url + run, until, log).live()
            os._exit(0)
        children.append(child)
    print("writing", flush=True)  # noqa: T201
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    _, url, writers, seconds, folder = sys.argv
    sys.exit(main(url, int(writers), float(seconds), Path(folder)))
