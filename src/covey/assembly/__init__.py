"""From settings to functions: the only place where a string becomes behaviour."""

from covey.assembly.methods import composed, red_team
from covey.assembly.run import Assembled, Given, assemble

__all__ = ["Assembled", "Given", "assemble", "composed", "red_team"]
