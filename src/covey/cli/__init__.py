"""The command line."""

from covey.cli import audit, benches, inspect, runs, sweeps
from covey.cli.app import app, main

__all__ = ["app", "audit", "benches", "inspect", "main", "runs", "sweeps"]
