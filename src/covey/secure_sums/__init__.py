"""Sums over clients whose terms nobody sees: the protocol, without files and networks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
