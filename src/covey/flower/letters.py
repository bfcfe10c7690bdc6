"""What the protocol of secure sums sends, as bytes in a message of Flower's."""

from flwr.app import Array, ArrayRecord, RecordDict

from covey.flower.invalid import InvalidMessageError

__all__ = ["LETTER", "letter_in", "with_letter"]

LETTER = "letter"
NAME = "bytes"


def with_letter(letter: bytes) -> ArrayRecord:
    """Return the record that carries these bytes: as an array, which may be long."""
    return ArrayRecord({NAME: Array("uint8", (len(letter),), "raw", letter)})


def letter_in(content: RecordDict, most: float) -> bytes:
    """Return the bytes that a message carries, as they are; none if there are none.

    Raises:
        InvalidMessageError: there are more than `most`, or something else is there.
    """
    record = content.get(LETTER)
    if record is None:
        return b""
    if not isinstance(record, ArrayRecord) or list(record) != [NAME]:
        raise InvalidMessageError(f"it must hold bytes called {LETTER!r}")
    found = record[NAME].data
    if len(found) > most:
        raise InvalidMessageError(f"it must hold at most {most} bytes")
    return found
