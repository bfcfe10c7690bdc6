"""The command line."""

from covey.cli import (
    audit,
    benches,
    deploying,
    guarantees,
    inspect,
    leaving,
    reproducing,
    runs,
    sweeps,
)
from covey.cli.app import app, main

__all__ = [
    "app",
    "audit",
    "benches",
    "deploying",
    "guarantees",
    "inspect",
    "leaving",
    "main",
    "reproducing",
    "runs",
    "sweeps",
]
