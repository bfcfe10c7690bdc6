"""Folders from which a federation on Flower is started, and what can be said of them.

Nothing here needs Flower until a federation is asked how it is.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
