"""An audit of any classifier: what it gives away about the records that it learnt."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
