"""Files that mention a client, below some folder."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from covey.runtime.places.found import Finding, Findings, Place, Sought

__all__ = ["LARGEST", "MOST", "mentions_below"]

LARGEST = 1 << 28
"""Bytes of a file that is searched."""

MOST = 20_000
"""Files of a folder that are searched."""

TEXT = frozenset({".csv", ".json", ".md", ".toml", ".tsv", ".txt", ".yaml", ".yml"})
"""How the names of files end that are searched where data files are passed over."""


def mentions_below(
    sought: Sought,
    top: Path,
    template: Place,
    without: Collection[Path] = (),
    *,
    data: bool = False,
) -> Findings:
    """Yield the folders and files that hold the name, in their own name or inside.

    Links are not followed. A folder of that name is one place.

    Args:
        sought: whom to look for.
        top: the folder.
        template: what every place is; its path and what stands there are filled in.
        without: files and folders that were searched already.
        data: of files that are no text, only the names are looked at.
    """
    done = {path.absolute() for path in without}
    skipped: list[Path] = []
    for count, path in enumerate(_below(top.absolute(), sought, done, skipped)):
        if count == MOST:
            yield (
                f"More than {MOST:,} files in {sought.shown(top, top)}: the others were "
                f"not searched."
            )
            break
        yield from _looked_at(sought, path, top, template, data=data, skipped=skipped)
    if skipped:
        first = sought.shown(skipped[0], top)
        yield (
            f"{len(skipped)} files and folders in {sought.shown(top, top)} that are larger "
            f"than {LARGEST >> 20} MiB or cannot be read, first {first}."
        )


def _below(
    top: Path, sought: Sought, done: Collection[Path], skipped: list[Path]
) -> Iterator[Path]:
    def aside(error: OSError) -> None:
        skipped.append(Path(str(error.filename)))

    mention = sought.mention
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


def _looked_at(  # noqa: PLR0913 - what mentions_below was given
    sought: Sought,
    path: Path,
    top: Path,
    template: Place,
    *,
    data: bool,
    skipped: list[Path],
) -> Iterator[Finding]:
    """Yield the place if there is one; what cannot be searched is put aside."""
    if path.is_dir() or sought.mention.in_text(path.name):
        what = f"{template.what}, in its own name"
    elif data and path.suffix not in TEXT:
        return
    else:
        try:
            if path.stat().st_size > LARGEST:
                skipped.append(path)
                return
            if not sought.mention.in_file(path):
                return
        except OSError:
            skipped.append(path)
            return
        what = template.what
    shown = sought.shown(path, top)
    yield Place(shown, what, template.kind, template.who_must_act, template.how)
