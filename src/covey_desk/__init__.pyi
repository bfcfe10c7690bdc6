from .answering import answer_requests
from .pack import write_packs
from .rows import REQUESTS, SERVE

__all__ = ["REQUESTS", "SERVE", "answer_requests", "write_packs"]
