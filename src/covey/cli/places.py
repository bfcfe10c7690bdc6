"""What was looked up about a client's name and data, for a person at a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["places_text"]


def places_text(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of `explained`'s places, and of what was not searched."""
    heads = {
        "covey deletes it with forget": "covey deletes or replaces when the client leaves",
        "you": "you have to act on",
    }
    for actor, head in heads.items():
        yield f"{head}:"
        mine = [each for each in told["places"] if each["who_must_act"] == actor]
        for each in mine:
            yield f"  {each['path']}\n    {each['what']}. {each['how']}"
        if not mine:
            yield "  nothing that was found"
    yield "not searched:"
    yield from (f"  {sentence}" for sentence in told["not_searched"])
