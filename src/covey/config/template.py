"""A settings file that says of every setting what it means."""

import json
from collections.abc import Iterator
from itertools import groupby
from textwrap import fill

from covey.config.schema import Setting, schema, settings

__all__ = ["template"]

WIDTH = 88
HEAD = (
    "Every setting of a covey run, at its default: change what you need, and leave out "
    "what you do not change. `covey config check FILE` tells what is wrong with it, and "
    "what in it does nothing."
)


def template() -> str:
    """Return a TOML file of all settings at their defaults, which gives `Config()`."""
    parts = [_comment(HEAD)]
    for section, own in groupby(settings(), key=lambda each: each.section):
        if section:
            reference = schema()["properties"][section]["$ref"].split("/")[-1]
            about = schema()["$defs"][reference]["description"]
            parts.append(f"{_comment(about)}\n[{section}]")
        parts.extend("\n".join(_lines(each)) for each in own)
    return "\n\n".join(parts) + "\n"


def _lines(setting: Setting) -> Iterator[str]:
    yield _comment(setting.description)
    yield _comment(f"Allowed: {setting.allowed}.")
    yield f"{setting.name} = {json.dumps(setting.default)}"  # TOML writes these as JSON


def _comment(text: str) -> str:
    return fill(
        text,
        WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
    )
