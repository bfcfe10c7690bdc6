"""`python -m benchmarks NAME [options]`: play a benchmark, and print what it found."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from importlib import import_module

from benchmarks import records

NAMES = (
    "around",
    "attacks",
    "backbone",
    "calibration",
    "chunks",
    "exposure",
    "forgetting",
    "gpu",
    "headline",
    "hospitals",
    "own_noise",
    "poisoning",
    "private_clusters",
    "scale",
    "speed",
    "subtraction",
)
Row = records.Row


def main(words: Sequence[str]) -> None:
    """List the benchmarks, or play the one that is named."""
    if not words or words[0] not in NAMES:
        if words and not words[0].startswith("-"):
            sys.exit(f"There is no benchmark {words[0]!r}: it is one of {', '.join(NAMES)}.")
        for name in NAMES:
            first = str(import_module(f"benchmarks.{name}").__doc__).splitlines()[0]
            print(f"{name:<12} {first}")
        return
    script = import_module(f"benchmarks.{words[0]}")
    parser = ArgumentParser(f"python -m benchmarks {words[0]}", description=script.__doc__)
    parser.add_argument("--json", action="store_true", help="Print JSON, not tables.")
    parser.add_argument("--quick", action="store_true", help="The least size, in seconds.")
    parser.add_argument(
        "--record", action="store_true", help=f"Keep the rows, and write {records.PAGE.name} anew."
    )
    script.options(parser)
    chosen = parser.parse_args(words[1:])
    tables: Mapping[str, Sequence[Row]] = script.measure(chosen)
    if chosen.record:
        records.keep(words[0], tables)
    if chosen.json:
        print(json.dumps(tables, indent=1))
        return
    print("\n\n".join(f"{title}\n{_table(rows)}" for title, rows in tables.items()))


def _table(rows: Sequence[Row]) -> str:
    lines = [[*rows[0]], *([records.cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(n) for cell, n in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


if __name__ == "__main__":
    main(sys.argv[1:])
