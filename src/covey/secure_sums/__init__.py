"""Sums over clients whose terms nobody sees: the protocol, without files and networks."""
