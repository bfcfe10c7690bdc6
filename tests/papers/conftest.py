from algorithms.conftest import point
from runs.conftest import settings

__all__ = ["point", "settings"]
