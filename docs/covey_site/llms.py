"""`llms.txt`: what there is to read, for programs that read."""

import re
from pathlib import Path

TREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


def overview_for_programs(folder: Path) -> str:
    """Return the site's pages by their part, each with its first sentence.

    The links lead to the pages' Markdown, which Sphinx keeps beside what it builds.
    """
    front = (folder / "index.md").read_text()
    parts = [
        "\n".join([f"## {caption}", "", *(_line(folder, page) for page in pages), ""])
        for caption, pages in (_part(tree, folder) for tree in TREE.findall(front))
    ]
    return "\n".join(["# covey", "", f"> {first_sentence(front)}", "", *parts])


def _part(tree: str, folder: Path) -> tuple[str, list[Path]]:
    """Return a toctree's caption, and its pages with those that are listed on them."""
    caption = re.findall(r"^:caption: (.*)$", tree, re.MULTILINE)
    pages = list(dict.fromkeys(listed(tree, folder)))
    trees = [tree for page in pages for tree in TREE.findall(page.read_text())]
    below = [page for tree in trees for page in listed(tree, folder)]
    return (caption or ["Pages"])[0], [*pages, *below]


def listed(tree: str, folder: Path) -> list[Path]:
    """Return the pages that a toctree names."""
    names = [line.strip("/ ") for line in tree.splitlines() if line and line[0] != ":"]
    return [page for name in names for page in sorted(folder.glob(f"{name}.md"))]


def _line(folder: Path, page: Path) -> str:
    text = page.read_text()
    title = re.findall(r"^# (.*)$", text, re.MULTILINE)[0]
    address = f"_sources/{page.relative_to(folder)}.txt"
    return f"- [{title}]({address}): {first_sentence(text)}"


def first_sentence(text: str) -> str:
    """Return the first sentence of a page's prose, without its links."""
    blocks = re.split(r"\n\n+", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    prose = (each for each in blocks if each.strip() and each[0] not in "#|-(<! ")
    flat = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(next(prose, "").split()))
    return re.split(r"(?<=[.]) ", flat.replace("**", ""))[0].rstrip(":")
