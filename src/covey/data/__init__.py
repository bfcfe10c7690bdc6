"""Data sets, how groups of clients differ, and the populations made of them."""
