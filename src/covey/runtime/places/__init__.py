"""Search for a client's name and for what was made of its data."""

from covey.runtime.places.found import Place, Search, SearchTarget
from covey.runtime.places.search import search_places

__all__ = ["Place", "Search", "SearchTarget", "search_places"]
