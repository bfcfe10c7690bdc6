from .adam import Adam
from .base import NoServerOptimizer, ServerOptimizer, ServerStep
from .momentum import Momentum
from .yogi import Yogi

__all__ = [
    "Adam",
    "Momentum",
    "NoServerOptimizer",
    "ServerOptimizer",
    "ServerStep",
    "Yogi",
]
