"""The settings, a page per section."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import groupby

from covey.settings.reference import Setting, about, settings
from covey_site.markdown import hidden_tree

OWN = "; or `package.module:name`"


def setting_pages() -> Mapping[str, str]:
    """Return every section's page by its address."""
    return {
        _address(name): "\n".join(
            [
                f"# Settings of `[{name}]`" if name else "# Settings without a section",
                "",
                f"{about(name)}.\n" if name else "",
                *(line for setting in rows for line in _described(setting)),
            ]
        )
        for name, rows in _sections().items()
    }


def overview() -> str:
    """Return a table of the sections and their settings, with links."""
    rows = [
        f"| [`{name or 'no section'}`]({_address(name)}.md) "
        f"| {about(name).lower() if name else 'of the whole run'}: "
        f"{', '.join(f'`{_inside(setting)}`' for setting in rows)} |"
        for name, rows in _sections().items()
    ]
    tree = hidden_tree(map(_address, _sections()))
    return "\n".join(["| section | what it holds |", "|---|---|", *rows, "", tree])


def _sections() -> dict[str, list[Setting]]:
    by_section = groupby(settings(), key=lambda setting: setting.section.partition(".")[0])
    return {name: list(rows) for name, rows in by_section}


def _address(section: str) -> str:
    return f"reference/settings/{section or 'whole-run'}"


def _inside(setting: Setting) -> str:
    """Return a setting's name inside of its section, such as `optimizer.momentum`."""
    section = setting.section.partition(".")[0]
    return setting.key.removeprefix(f"{section}.")


def _described(setting: Setting) -> Iterator[str]:
    """Yield a setting's part of its page: what it means, its default and its range."""
    before, choices, after = _taken_apart(setting)
    yield from (f"## `{setting.key}`", "")
    yield from _sentence(before)
    yield from (f"- `{name}`: {meaning}" for name, meaning in choices.items())
    if choices and OWN in setting.description:
        yield "- `package.module:name`: [your own](../../guides/extend.md)"
    yield ""
    yield from _sentence(after)
    default = "empty" if setting.default == "" else f"`{json.dumps(setting.default)}`"
    yield from (f"Default: {default}. Allowed: {_as_code(setting.allowed)}.", "")


def _sentence(text: str) -> Iterator[str]:
    if text:
        yield from (f"{text[0].upper()}{text[1:].rstrip('.')}.", "")


def _as_code(allowed: str) -> str:
    """Return the values of a setting with its words as code."""
    quoted = re.sub(r"'([^']*)'", r"`\1`", allowed)
    return re.sub(r"(?<!`)package\.module:name", "`package.module:name`", quoted)


def _taken_apart(setting: Setting) -> tuple[str, dict[str, str], str]:
    """Return what a description says before its choices, the choices, and the rest."""
    text = setting.description.replace(OWN, "")
    names = re.findall(r"'([^']*)'", setting.allowed)
    starts = [
        start
        for name in names
        if (start := re.search(rf"(?:^|(?<=[.;:,] ))`{re.escape(name)}`: ", text))
    ]
    if len(starts) < 2:
        return setting.description, {}, ""
    starts.sort(key=lambda start: start.start())
    ends = [*(start.start() for start in starts[1:]), len(text)]
    meanings = [text[a.end() : b] for a, b in zip(starts, ends, strict=True)]
    last, _, rest = meanings.pop().partition(". ")
    cleaned = [meaning.strip().rstrip(";,") for meaning in (*meanings, last)]
    listed = {a[0].split("`")[1]: m for a, m in zip(starts, cleaned, strict=True)}
    return text[: starts[0].start()].strip().rstrip(":;,"), listed, rest
