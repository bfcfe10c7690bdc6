"""A ledger that is changed and sealed again, as only who has its file can."""

import sqlite3
import zlib
from pathlib import Path

from covey.ledger.chain import GENESIS, link
from covey.ledger.store import Ledger


def rewrite(folder: Path, old: str, new: str) -> int:
    """Change what stands in the first event that holds `old`, and seal all after it."""
    place = sqlite3.connect(folder / "ledger.sqlite")
    rows = place.execute("SELECT position, round, kind, body FROM events ORDER BY 1").fetchall()
    head, changed = GENESIS, 0
    for position, round_index, kind, packed in rows:
        body = zlib.decompress(packed).decode()
        if not changed and old in body:
            body, changed = body.replace(old, new, 1), position
        head = link(head, round_index, kind, body)
        place.execute(
            "UPDATE events SET body = ?, hash = ? WHERE position = ?",
            (zlib.compress(body.encode()), head, position),
        )
    place.commit()
    place.close()
    assert changed
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        ledger.verify()  # the chain alone shows nothing
    return changed
