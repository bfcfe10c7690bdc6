"""The settings, a page per section: a table of short cells, then each in full."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from covey.settings.reference import Setting, about, settings
from covey_site.markdown import hidden_tree

__all__ = ["overview", "setting_pages"]

SHORT = 110
"""Characters of a cell; what a setting means in full stands below the table."""
NAMES = 4
"""Choices that a cell lists; of more it says how many there are."""
OWN = "; or `package.module:name`"
OF_COMPONENTS = r"^(?:`[\w-]+`(?:, )?)+: "
"""How the description of a setting begins that some components alone have."""


def setting_pages() -> Mapping[str, str]:
    """Return every section's page by its address."""
    return {_address(name): _page(name, rows) for name, rows in _sections().items()}


def overview() -> str:
    """Return a list of the sections, which stands for the table of all settings."""
    rows = [
        f"| [`{name or 'no section'}`]({_address(name)}.md) "
        f"| {', '.join(f'`{_inside(each)}`' for each in rows)} |"
        for name, rows in _sections().items()
    ]
    tree = hidden_tree(map(_address, _sections()))
    return "\n".join(["| section | settings |", "|---|---|", *rows, "", tree])


def _sections() -> dict[str, list[Setting]]:
    by_section = groupby(settings(), key=lambda each: each.section.partition(".")[0])
    return {name: list(rows) for name, rows in by_section}


def _address(section: str) -> str:
    return f"reference/settings/{section or 'whole-run'}"


def _page(section: str, rows: Sequence[Setting]) -> str:
    title = f"Settings of `[{section}]`" if section else "Settings without a section"
    return "\n".join(
        [
            f"# {title}",
            "",
            *_introduction(section),
            "| setting | default | in short |",
            "|---|---|---|",
            *(
                f"| [`{_inside(each)}`](#{_anchor(each)}) | {_default(each)} | {in_short(each)} |"
                for each in rows
            ),
            "",
            *(line for each in rows for line in _in_full(each)),
        ]
    )


def _introduction(section: str) -> list[str]:
    return [f"{about(section)}.", ""] if section else []


def _inside(setting: Setting) -> str:
    """Return a setting's name inside of its section, such as `optimizer.momentum`."""
    section = setting.section.partition(".")[0]
    return setting.key.removeprefix(f"{section}.")


def _anchor(setting: Setting) -> str:
    return f"setting-{setting.key.replace('.', '-').replace('_', '-')}"


def _default(setting: Setting) -> str:
    return "" if setting.default == "" else f"`{json.dumps(setting.default)}`"


def _in_full(setting: Setting) -> Iterator[str]:
    """Return a setting's own part: its default, what it may be, and what it means."""
    said, choices, rest = _taken_apart(setting)
    yield from (f"({_anchor(setting)})=", f"## `{setting.key}`", "")
    yield from _sentence(said)
    yield from (f"- `{name}`: {meaning}" for name, meaning in choices.items())
    if choices and OWN in setting.description:
        yield "- `package.module:name`: [your own](../../extending.md)"
    yield from ("",) if choices else ()
    yield from _sentence(rest)
    default = _default(setting) or "empty"
    yield from (f"Default: {default}. Allowed: {_as_code(setting.allowed)}.", "")


def _sentence(text: str) -> Iterator[str]:
    if text:
        yield from (f"{text[0].upper()}{text[1:].rstrip('.')}.", "")


def _as_code(allowed: str) -> str:
    """Return what a setting may be, with its words as code."""
    quoted = re.sub(r"'([^']*)'", r"`\1`", allowed)
    return re.sub(r"(?<!`)package\.module:name", "`package.module:name`", quoted)


def in_short(setting: Setting) -> str:
    """Return a cell's text: the first clause of a description, or the choices."""
    said, choices, _ = _taken_apart(setting)
    if not said and choices:
        few = [f"`{name}`" for name in choices][:NAMES]
        more = len(choices) - len(few)
        return f"one of {', '.join(few)}{f' and {more} more' if more else ''}"
    said = re.sub(OF_COMPONENTS, "", said)
    clause = re.match(r"(?:`[^`]*`|\([^)]*\)|\[[^\]]*\]|(?![.;:](?:\s|$)).)+", said)
    return textwrap.shorten(clause[0] if clause else said, SHORT, placeholder=" …")


def _taken_apart(setting: Setting) -> tuple[str, dict[str, str], str]:
    """Return what a description says before its choices, the choices, and the rest."""
    text = setting.description.replace(OWN, "")
    names = re.findall(r"'([^']*)'", setting.allowed)
    starts = [
        found
        for name in names
        if (found := re.search(rf"(?:^|(?<=[.;:,] ))`{re.escape(name)}`: ", text))
    ]
    if len(starts) < 2:
        return setting.description, {}, ""
    starts.sort(key=lambda each: each.start())
    ends = [*(each.start() for each in starts[1:]), len(text)]
    meanings = [text[a.end() : b] for a, b in zip(starts, ends, strict=True)]
    last, _, rest = meanings.pop().partition(". ")
    cleaned = [each.strip().rstrip(";,") for each in (*meanings, last)]
    listed = {a[0].split("`")[1]: m for a, m in zip(starts, cleaned, strict=True)}
    return text[: starts[0].start()].strip().rstrip(":;,"), listed, rest
