from .background import Background
from .base import Figures, TrackedRun, Tracker, tracker_of

__all__ = ["Background", "Figures", "TrackedRun", "Tracker", "tracker_of"]
