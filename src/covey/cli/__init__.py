"""The command line."""

from covey.cli import inspect, runs, sweeps
from covey.cli.app import app, main

__all__ = ["app", "inspect", "main", "runs", "sweeps"]
