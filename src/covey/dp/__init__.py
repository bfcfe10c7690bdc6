"""What a run guarantees: differential privacy, accounted for and checked.

`guarantees` folds the events of a run, `guarantee_status` its history; `forecast` says the
same of settings; `theorem1` holds what the second paper claims.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
