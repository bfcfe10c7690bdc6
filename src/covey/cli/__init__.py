"""The command line."""

from covey.cli.app import app, main

__all__ = ["app", "main"]
