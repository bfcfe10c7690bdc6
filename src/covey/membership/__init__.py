"""Membership inference against the cluster models, on purpose and with doubt."""
