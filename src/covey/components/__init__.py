"""Replaceable parts: how they are named, found, checked, and what they keep."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
