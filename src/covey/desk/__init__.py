"""Requests to leave over all runs, and the runs that they are about."""
