"""Federated learning in which every client chooses how exposed it is, and can leave.

>>> import covey
>>> run = covey.run(out="runs/first")
>>> run.summary.accuracy
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
