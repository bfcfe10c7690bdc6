"""The ledger: what happened in every round, in order, sealed against change."""

from covey.ledger.chain import GENESIS, Link, Record, canonical, link, seal, verify
from covey.ledger.store import Ledger

__all__ = [
    "GENESIS",
    "Ledger",
    "Link",
    "Record",
    "canonical",
    "link",
    "seal",
    "verify",
]
