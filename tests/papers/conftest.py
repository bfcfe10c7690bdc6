from algorithms.conftest import point
from runtime.conftest import settings

__all__ = ["point", "settings"]
