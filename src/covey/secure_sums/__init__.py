"""Sums over clients whose terms stay hidden: the protocol, without files and networks."""
