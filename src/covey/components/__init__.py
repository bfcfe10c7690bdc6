"""Replaceable parts: how they are named, found, checked, and what they keep."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
