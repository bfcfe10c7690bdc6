"""What is known against the versions in constraints.txt: exit code 1 on findings.

pip-audit counts what its service does not know as no finding. This says how many it knew.
"""

import json
import subprocess
import sys
from typing import Any

PATIENCE = 300.0  # seconds


def report(answer: dict[str, Any]) -> tuple[str, int]:
    """Return what to print of pip-audit's answer, and the exit code."""
    dependencies = answer["dependencies"]
    known = [dependency for dependency in dependencies if "skip_reason" not in dependency]
    bugs = [
        f"{dependency['name']} {dependency['version']}: {bug['id']}, repaired in "
        f"{', '.join(bug['fix_versions']) or 'no version yet'}"
        for dependency in known
        for bug in dependency["vulns"]
    ]
    said = (
        f"{len(known)} of {len(dependencies)} pinned versions were looked up, {len(bugs)} findings."
    )
    if len(known) < len(dependencies):
        said += " The others are NOT audited: the service does not know them from here."
    return "\n".join([*bugs, said]), int(bool(bugs))


def main(program: str) -> int:
    """Ask for the versions of constraints.txt."""
    words = ["--requirement", "constraints.txt", "--no-deps", "--disable-pip"]
    try:
        process = subprocess.run(
            [program, *words, "--format", "json", "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        text, code = report(json.loads(process.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        text, code = f"Nothing was audited: no answer came ({error}).", 0
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
