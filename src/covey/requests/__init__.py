"""People who ask to leave, over all runs: dates, plans, answers, what is done by hand."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
