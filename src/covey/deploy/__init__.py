"""Folders from which a federation on Flower is started, and what can be said of them."""
