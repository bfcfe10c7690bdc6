"""Records of what benchmarks found, and the page that is made of them.

`python -m benchmarks NAME --record` keeps each row by its first column, with the commit and the
processor that it was taken on, and writes the page anew; `python -m benchmarks.records` writes
it from what is kept.
"""

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

Row = Mapping[str, object]
RESULTS = Path(__file__).parent / "results"
PAGE, RECORDS = RESULTS / "speed.md", RESULTS / "records.json"
HEAD = """# Speed, memory and what is around the rounds

Written by `python -m benchmarks NAME --record`, row by row; each says its commit. What a benchmark
does and compares with is in its own words: `python -m benchmarks NAME --help`. Figures of two
sides are taken in turn, in one run; ratios say more than seconds, which are those of the machine
on that day. A row that is not `quiet` was taken beside other work, or its pairs do not agree.
"""


def keep(name: str, tables: Mapping[str, Sequence[Row]]) -> None:
    """Keep a benchmark's rows, in the place of earlier ones of the same names."""
    stamp = {"commit": _said("git", "rev-parse", "--short=8", "HEAD"), "processor": _processor()}
    records = json.loads(RECORDS.read_text("utf-8")) if RECORDS.exists() else {}
    own = records.setdefault(name, {})
    for title, rows in tables.items():
        table = own.setdefault(title, {})
        for row in rows:
            key, *_ = row.values()
            second = str(row.get("engine", row.get("what", "")))
            table[f"{key} {second}".strip()] = {**row, **stamp}
    RECORDS.write_text(json.dumps(records, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(records), "utf-8")


def page(records: Mapping[str, Mapping[str, Mapping[str, Row]]]) -> str:
    """Return the page of these records."""
    parts = [HEAD]
    for name, tables in sorted(records.items()):
        parts.append(f"## `{name}`\n")
        for title, rows in tables.items():
            parts.append(f"{title}:\n")
            columns = [*dict.fromkeys(column for row in rows.values() for column in row)]
            lines = [columns, ["---"] * len(columns)]
            lines += [[cell(row.get(column)) for column in columns] for row in rows.values()]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    return "\n".join(parts)


def cell(value: object) -> str:
    """Return a value as a reader sees it."""
    if isinstance(value, (tuple, list)):
        return " to ".join(map(cell, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "-" if value is None else str(value)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RECORDS.read_text("utf-8"))), "utf-8")
