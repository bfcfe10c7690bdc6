"""Pages about runs for a browser on this machine; nothing is written."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
