"""A desk for people's requests over all runs, and pages that show runs in a browser."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
