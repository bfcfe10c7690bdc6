"""The ledger: what happened in every round, in order, sealed against change."""

from covey.ledger.chain import GENESIS, Link, Record, canonical, link, seal, verify
from covey.ledger.register import Asking, Request, Serving
from covey.ledger.store import Ledger
from covey.ledger.story import REWIND, current, superseded

__all__ = [
    "GENESIS",
    "REWIND",
    "Asking",
    "Ledger",
    "Link",
    "Record",
    "Request",
    "Serving",
    "canonical",
    "current",
    "link",
    "seal",
    "superseded",
    "verify",
]
