"""The public object of a run: read it, carry it on, let clients leave it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
