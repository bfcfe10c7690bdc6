"""Measurements of covey: `python -m benchmarks` lists them."""
