"""Where a client's name stands, and what came of its data: looked up, not remembered."""

from covey.runtime.places.found import Place, Search, Sought
from covey.runtime.places.search import places_of

__all__ = ["Place", "Search", "Sought", "places_of"]
