"""What Sphinx and its theme leave out for readers who use no mouse, or no eyes."""

import re

PARAMETERS = re.compile(r"<dl>\s*((?:<dd>.*?</dd>\s*)+)</dl>")
"""A signature over several lines, which Sphinx writes as a list without terms."""


def accessible(page: str) -> str:
    """Return HTML whose captions have a level; whatever scrolls can have the focus."""
    page = page.replace('role="heading">', 'role="heading" aria-level="2">')
    page = page.replace("<pre>", '<pre tabindex="0">')
    page = re.sub(r'<div class="table-wrapper([^>]*)>', _focusable, page)
    return PARAMETERS.sub(_lines, page)


def _focusable(wrapper: re.Match[str]) -> str:
    label = 'role="region" aria-label="table" tabindex="0"'
    return f'<div {label} class="table-wrapper{wrapper[1]}>'


def _lines(parameters: re.Match[str]) -> str:
    lines = parameters[1].replace("<dd>", "<div>").replace("</dd>", "</div>")
    return f'<div class="parameters">{lines}</div>'
