"""The ledger: what happened in every round, in order, sealed against change."""

from covey.ledger.chain import GENESIS, Link, Record, canonical, link, seal, verify
from covey.ledger.clients_and_requests import Asking, Request, Serving
from covey.ledger.rollback import REWIND, current, superseded
from covey.ledger.store import Ledger

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
