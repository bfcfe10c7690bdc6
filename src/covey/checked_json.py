"""JSON files that hold their own hash: what is damaged by accident is not read."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, cast

__all__ = ["checked", "checked_json"]

KEY = "checksum"


def checked_json(document: Mapping[str, Any]) -> bytes:
    """Return a document as JSON in ASCII, with a hash of it in `checksum`."""
    whole = {**document, KEY: _digest(document)}
    return json.dumps(whole, indent=1).encode("ascii")


def checked(content: bytes) -> bytes:
    """Return such a file's content as it is, once its hash is compared.

    Raises:
        ValueError: it is no JSON, or another document than the one that was hashed.
    """
    try:
        told = json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(told, dict) or KEY not in told:
        raise ValueError("it has no checksum")
    document = cast("dict[str, Any]", told)
    known = document.pop(KEY)
    if known != _digest(document):
        raise ValueError("it was changed: its checksum is another")
    return content


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
