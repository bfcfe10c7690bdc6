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
    asked = answer["dependencies"]
    known = [each for each in asked if "skip_reason" not in each]
    found = [
        f"{each['name']} {each['version']}: {bug['id']}, repaired in "
        f"{', '.join(bug['fix_versions']) or 'no version yet'}"
        for each in known
        for bug in each["vulns"]
    ]
    said = f"{len(known)} of {len(asked)} pinned versions were looked up, {len(found)} findings."
    if len(known) < len(asked):
        said += " The others are NOT audited: the service does not know them from here."
    return "\n".join([*found, said]), int(bool(found))


def main(program: str) -> int:
    """Ask for the versions of constraints.txt."""
    words = ["--requirement", "constraints.txt", "--no-deps", "--disable-pip"]
    try:
        asked = subprocess.run(
            [program, *words, "--format", "json", "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        text, code = report(json.loads(asked.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        text, code = f"Nothing was audited: no answer came ({error}).", 0
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
