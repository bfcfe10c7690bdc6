"""The public object of a run: read it, carry it on, let clients leave it."""
