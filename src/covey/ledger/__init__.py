"""The ledger: what happened in every round, in order, sealed against change."""
