"""Every setting of a run: frozen, validated once, read from TOML."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
