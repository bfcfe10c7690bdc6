"""Where a ledger's URL stands that holds a password: not among the settings."""

import re

__all__ = ["has_password", "without_passwords"]

IN_USER = re.compile(r"(://[^/?#@:]*):[^@/]*@")
IN_QUERY = re.compile(r"(\b\w*password=)[^&\s\"']+", re.IGNORECASE)


def has_password(url: str) -> bool:
    """Return whether a URL holds a password, before its host or in its query."""
    return bool(IN_USER.search(url) or IN_QUERY.search(url))


def without_passwords(text: str) -> str:
    """Return a text with stars for the passwords of URLs in it."""
    return IN_QUERY.sub(r"\1***", IN_USER.sub(r"\1:***@", text))
