"""The only reader of a run: one JSON object, one page, one table over several runs."""
