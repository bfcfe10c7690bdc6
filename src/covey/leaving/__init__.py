"""Leaving a run: what may be answered, what it costs, and what can be proved."""
