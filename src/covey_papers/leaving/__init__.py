"""Another paper's way to let clients leave, to compare with: a component of covey's."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
