"""Files that mention a client, below some folder."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from covey.runtime.places.found import Finding, Findings, Place, SearchTarget

__all__ = ["MAX_FILES", "MAX_FILE_SIZE", "mentions_below"]

MAX_FILE_SIZE = 1 << 28
"""Bytes of a file that is searched."""

MAX_FILES = 20_000
"""Files of a folder that are searched."""

TEXT = frozenset({".csv", ".json", ".md", ".toml", ".tsv", ".txt", ".yaml", ".yml"})
"""How the names of files end that are searched where data files are passed over."""


def mentions_below(
    target: SearchTarget,
    top: Path,
    template: Place,
    without: Collection[Path] = (),
    *,
    data: bool = False,
) -> Findings:
    """Yield the folders and files that hold the name, in their own name or inside.

    Links are not followed. A folder of that name is one place.

    Args:
        target: whom to look for.
        top: the folder.
        template: what every place is; its path and what stands there are filled in.
        without: files and folders that were searched already.
        data: of files that are no text, only the names are looked at.
    """
    done = {path.absolute() for path in without}
    skipped: list[Path] = []
    shown = target.display_path(top, top)
    for count, path in enumerate(_below(top.absolute(), target, done, skipped)):
        if count == MAX_FILES:
            yield (
                f"More than {MAX_FILES:,} files in {shown}: the others were not searched."
            )
            break
        yield from _mentions_in(target, path, top, template, data=data, skipped=skipped)
    if skipped:
        first = target.display_path(skipped[0], top)
        yield (
            f"{len(skipped)} files and folders in {shown} that are larger than "
            f"{MAX_FILE_SIZE >> 20} MiB or cannot be read, first {first}."
        )


def _below(
    top: Path, target: SearchTarget, done: Collection[Path], skipped: list[Path]
) -> Iterator[Path]:
    def aside(error: OSError) -> None:
        skipped.append(Path(str(error.filename)))

    mention = target.mention
    for folder, inner, files in os.walk(top, onerror=aside):
        here = Path(folder)
        named = [each for each in sorted(inner) if mention.in_text(each)]
        yield from (here / each for each in named if here / each not in done)
        inner[:] = sorted(
            each for each in inner if each not in named and here / each not in done
        )
        for each in sorted(files):
            path = here / each
            if path not in done and not path.is_symlink():
                yield path


def _mentions_in(  # noqa: PLR0913 - what mentions_below was given
    target: SearchTarget,
    path: Path,
    top: Path,
    template: Place,
    *,
    data: bool,
    skipped: list[Path],
) -> Iterator[Finding]:
    """Yield the place if there is one; what cannot be searched is put aside."""
    if path.is_dir() or target.mention.in_text(path.name):
        what = f"{template.what}, in its own name"
    elif data and path.suffix not in TEXT:
        return
    else:
        try:
            if path.stat().st_size > MAX_FILE_SIZE:
                skipped.append(path)
                return
            if not target.mention.in_file(path):
                return
        except OSError:
            skipped.append(path)
            return
        what = template.what
    shown = target.display_path(path, top)
    yield Place(shown, what, template.kind, template.who_must_act, template.how)
