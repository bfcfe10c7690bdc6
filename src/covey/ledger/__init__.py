"""The ledger: what happened in every round, in order, sealed against change."""

from covey.ledger.chain import GENESIS, Link, Record, canonical, link, seal, verify
from covey.ledger.clients_and_requests import NewRequest, Request, ServedRequest
from covey.ledger.rollback import REWIND, current_records, superseded
from covey.ledger.store import Ledger

__all__ = [
    "GENESIS",
    "REWIND",
    "Ledger",
    "Link",
    "NewRequest",
    "Record",
    "Request",
    "ServedRequest",
    "canonical",
    "current_records",
    "link",
    "seal",
    "superseded",
    "verify",
]
