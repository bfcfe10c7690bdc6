from .answering import answer_requests
from .pack import write_packs

__all__ = ["answer_requests", "write_packs"]
