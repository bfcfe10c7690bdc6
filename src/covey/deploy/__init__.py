"""Folders from which a federation on Flower is started, and what can be said of them.

Nothing here needs Flower until a federation is asked how it is.
"""
