"""The command line."""

from covey.cli import audit, inspect, runs, sweeps
from covey.cli.app import app, main

__all__ = ["app", "audit", "inspect", "main", "runs", "sweeps"]
