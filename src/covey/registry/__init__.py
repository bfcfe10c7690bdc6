"""All runs below some folders, as their ledgers tell them; nothing is kept of its own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
