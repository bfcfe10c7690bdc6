"""The command line, and what a package needs to add a command to it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

from covey.cli.app import app as app  # noqa: E402 - not the module of this name
