"""Where people read: standard error; standard output belongs to answers and `--json`.

Text is printed as text: brackets and colons in a message are part of it.
"""

from functools import partial

from rich.console import Console

__all__ = ["console", "errors"]

literal = partial(Console, stderr=True, markup=False, emoji=False, highlight=False)

console = literal()
"""For what goes on meanwhile; `--quiet` silences it."""

errors = literal()
"""For what must be read: errors, and what is shown only once."""
