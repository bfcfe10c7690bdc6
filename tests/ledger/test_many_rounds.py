"""Round after round appended: neither memory nor the time of a round grows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = (pytest.mark.slow, pytest.mark.torture)

APPENDS = """
import json, statistics, sys, time
from pathlib import Path
from covey.ledger.store import Ledger
from covey.ledger.chain import Record

def peak():
    "A process of its own: `getrusage` would count what its parent had before."
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])


path, early, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lasted, told = [], {}
with Ledger.create(path, lambda: "2030-01-01T12:00:00Z") as ledger:
    for t in range(rounds):
        records = [Record(t, "moved", {"client": n, "to": t}) for n in range(2)]
        began = time.process_time()
        ledger.append(t, records)
        lasted.append(time.process_time() - began)
        if t + 1 in (early, rounds):
            told[t + 1] = {
                "cpu milliseconds": 1_000 * statistics.median(lasted[-500:]),
                "kibibytes": peak(),
            }
            del lasted[:]
        del lasted[:-500]
print(json.dumps([told[early], told[rounds]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others tell no peak of memory")
@pytest.mark.parametrize(
    "rounds", [pytest.param(2_000, marks=pytest.mark.slow), pytest.param(100_000, marks=TORTURE)]
)
def test_memory_and_time_stay_what_they_were_after_a_thousand_rounds(rounds: int, tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", APPENDS, str(tmp_path / "ledger"), "1000", str(rounds)],
        capture_output=True,
        text=True,
        check=True,
    )
    early, late = json.loads(ran.stdout)
    print(f"after 1,000 rounds {early}, after {rounds:,} {late}")  # noqa: T201
    assert late["kibibytes"] <= early["kibibytes"] + 8 * 1024
    assert late["cpu milliseconds"] <= 2 * early["cpu milliseconds"] + 1
