"""A plain page that lists the versions whose sites lie beside it."""

import re
from pathlib import Path

PAGE = "versions.html"
NUMBER = re.compile(r"\d+(?:\.\d+)*")


def versions_in(site: Path) -> list[str]:
    """Return the versions that were built into a folder, the newest first."""
    built = [page.parent.name for page in site.glob("*/index.html")]
    numbers = (name for name in built if NUMBER.fullmatch(name))
    return sorted(numbers, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def versions_page(site: Path) -> str:
    """Return the page; it loads nothing, so it works from a disk."""
    lines = "\n".join(
        f'<li><a href="{name}/index.html">{name}</a></li>' for name in versions_in(site)
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Versions of covey</title>
</head>
<body>
<main>
<h1>Versions of covey</h1>
<ul>
{lines}
</ul>
</main>
</body>
</html>
"""
