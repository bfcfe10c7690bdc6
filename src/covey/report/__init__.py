"""The only reader of a run: one JSON object, one page, one table over several runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
