"""How the server moves its models, given what the clients' updates come to."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
