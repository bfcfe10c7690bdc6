from .federaser import FedEraser
from .isolated import Isolated

__all__ = ["FedEraser", "Isolated"]
