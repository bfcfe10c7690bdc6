"""From settings to functions: the only place where a string becomes behaviour."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
