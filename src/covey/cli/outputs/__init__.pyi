from .table import FAILURE, FILES, OUTPUTS

__all__ = ["FAILURE", "FILES", "OUTPUTS"]
