from .isolated import Isolated

__all__ = ["Isolated"]
