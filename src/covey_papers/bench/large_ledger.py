"""What a large ledger costs: its rounds, its bytes, its opening, and a denial's plan.

    python -m covey_papers.bench.large_ledger 100 10000 1000000

makes a ledger of 100 rounds of 10,000 of 1,000,000 clients by the way that a run records
it. Each step is a process of its own, so that one's peak of memory is not another's.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter
from sqlalchemy import create_engine, make_url, text

from covey.events import (
    AnonymitySetsFormed,
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelsMerged,
    RoundMeasured,
    RunStarted,
    kind_and_body,
)
from covey.ledger import Ledger, Record
from covey.runtime import read_events
from covey.unlearning import AnswerRules, cheapest, options, participation_of

__all__ = [
    "AppendCost",
    "LedgerCost",
    "LedgerSize",
    "OpenCost",
    "Spent",
    "ledger_cost",
    "make_ledger",
    "open_ledger",
]

T = TypeVar("T")
CLUSTERS, ANONYMITY, THRESHOLD = 4, 8, 3
PLANS = 50
SOME = 20
"""Rounds over which the first and the last appends are averaged."""


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """A ledger: a cohort of so many of the clients takes part in each round."""

    rounds: int
    cohort: int
    clients: int

    @property
    def rows(self) -> int:
        """How often a client takes part in a round."""
        return self.rounds * self.cohort


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds by the clock and of the processor: on a busy machine, far apart."""

    seconds: float
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class AppendCost:
    """What making a ledger took.

    Attributes:
        enrolled: to bind all clients' names.
        first: a round among the first ones after round 0; median.
        last: a round among the last ones; median.
        peak_bytes: of the process's memory.
    """

    enrolled: Spent
    first: Spent
    last: Spent
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class OpenCost:
    """What opening a ledger took, in a process that does nothing else.

    Attributes:
        opened: to verify its whole chain, and take the lock.
        folded: to verify it again, and find out who took part in what.
        planned: all answers to one client; median over some.
        slowest: the slowest of these.
        denials: how many of these clients can be denied.
        peak_bytes: of the process's memory.
    """

    opened: Spent
    folded: Spent
    planned: Spent
    slowest: Spent
    denials: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerCost:
    """All figures of one ledger.

    Attributes:
        bytes_per_row: of everything that the database holds, by clients' participations.
    """

    size: LedgerSize
    appended: AppendCost
    bytes_per_row: float
    opened: OpenCost


def ledger_cost(size: LedgerSize, url: str | None = None, seed: int = 0) -> LedgerCost:
    """Make a ledger and open it, and return what both took.

    Args:
        size: of the ledger.
        url: where it is made; None: in an SQLite file, which is deleted again.
        seed: of who takes part.
    """
    with tempfile.TemporaryDirectory() as folder:
        where = url or f"{folder}/ledger.sqlite"
        numbers = (size.rounds, size.cohort, size.clients, seed)
        appended = _apart(AppendCost, "make", where, *numbers)
        stored = _stored_bytes(where)
        opened = _apart(OpenCost, "open", where, *numbers)
    return LedgerCost(size, appended, stored / size.rows, opened)


def make_ledger(where: str | Path, size: LedgerSize, seed: int = 0) -> AppendCost:
    """Make a ledger at a path or a URL, round by round, as a run does."""
    generator = random.Random(seed)  # noqa: S311 - who takes part in a measurement
    handles = _handles(size.clients, seed)
    with Ledger.create(where, lambda: "2030-01-01T12:00:00Z") as ledger:
        names = {each: f"client-{i:07d}" for i, each in enumerate(handles)}
        watch = _Watch()
        ledger.enrol(names)
        enrolled = watch.spent()
        del names
        lasted: list[Spent] = []
        for t in range(size.rounds):
            events = list(_round(t, size, handles, generator))
            watch = _Watch()
            ledger.append(t, [Record(t, *kind_and_body(event)) for event in events])
            lasted.append(watch.spent())
    first, last = lasted[1 : SOME + 1] or lasted, lasted[-SOME:]
    return AppendCost(enrolled, _median(first), _median(last), _peak_bytes())


def open_ledger(where: str | Path, size: LedgerSize, seed: int = 0) -> OpenCost:
    """Open a ledger that `make_ledger` made, and plan what some clients are answered."""
    watch = _Watch()
    with Ledger.open(where, lambda: "2030-01-01T12:00:00Z") as ledger:
        opened = watch.spent()
        watch = _Watch()
        entries = read_events(ledger)
        found = participation_of((t, each) for t, events in entries for each in events)
        folded = watch.spent()
        rules = AnswerRules(THRESHOLD, False, (0,), size.rounds)  # noqa: FBT003
        chosen = random.Random(seed + 1).sample(_handles(size.clients, seed), PLANS)  # noqa: S311
        lasted, denials = list[Spent](), 0
        for handle in chosen:
            watch = _Watch()
            answers = options(found, handle, rules)
            lasted.append(watch.spent())
            denials += cheapest(answers, "auto").answer == "deny"
    slowest = max(lasted, key=lambda each: each.seconds)
    return OpenCost(opened, folded, _median(lasted), slowest, denials, _peak_bytes())


class _Watch:
    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        now = time.perf_counter(), time.process_time()
        return Spent(now[0] - self._began[0], now[1] - self._began[1])


def _median(found: Sequence[Spent]) -> Spent:
    return Spent(
        statistics.median(each.seconds for each in found),
        statistics.median(each.processor_seconds for each in found),
    )


def _handles(clients: int, seed: int) -> list[str]:
    """Return handles as a deployment draws them: 48 random bits each."""
    drawn = random.Random(seed)  # noqa: S311 - nobody is to be hidden here
    return [f"h-{drawn.getrandbits(48):012x}" for _ in range(clients)]


def _round(
    t: int, size: LedgerSize, handles: Sequence[str], generator: random.Random
) -> Iterator[Event]:
    """Yield the facts of a round whose clients are drawn, put in clusters, and hidden."""
    if t == 0:
        yield _started(size, handles)
    places = sorted(generator.sample(range(size.clients), size.cohort))
    cohort = [handles[i] for i in places]
    yield CohortSampled(tuple(cohort))
    clusters = {handle: generator.randrange(CLUSTERS) for handle in cohort}
    yield ClientsAssigned(clusters, "clients")
    for j in range(CLUSTERS):
        members = [handle for handle, chosen in clusters.items() if chosen == j]
        generator.shuffle(members)
        sets = _sets(members)
        yield AnonymitySetsFormed(
            j, sets, tuple(round(generator.random(), 6) for _ in sets)
        )
    merged = tuple(list(clusters.values()).count(j) for j in range(CLUSTERS))
    yield ModelsMerged(f"{generator.getrandbits(256):064x}", merged)
    yield RoundMeasured(generator.random(), {}, merged)


def _sets(members: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    whole = len(members) // ANONYMITY
    sets = [members[i * ANONYMITY : (i + 1) * ANONYMITY] for i in range(whole)]
    for i, odd in enumerate(members[whole * ANONYMITY :]):
        sets[i % whole].append(odd)  # pyright: ignore[reportAttributeAccessIssue]
    return tuple(tuple(sorted(each)) for each in sets)


def _started(size: LedgerSize, handles: Sequence[str]) -> RunStarted:
    return RunStarted(
        covey_version="0",
        method="ifca",
        config_hash="0" * 64,
        data_hash="0" * 64,
        num_clusters=CLUSTERS,
        rounds=size.rounds,
        group_names=("all",),
        groups=dict.fromkeys(handles, 0),
        risk_thresholds=dict.fromkeys(handles, 0.6),
        risk_lives=1,
        notes=(),
        deniability_threshold=THRESHOLD,
    )


def _stored_bytes(where: str) -> int:
    if "://" not in where:
        return Path(where).stat().st_size
    url = make_url(where)
    engine = create_engine(
        url.set(drivername="postgresql+psycopg").difference_update_query(["run"])
    )
    query = text(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = :run AND c.relkind = 'r'"
    )
    with engine.connect() as connection:
        return int(connection.scalar(query, {"run": url.query["run"]}))


def _peak_bytes() -> int:
    """Return the peak of this process; `getrusage` would count what its parent had."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(s.split()[1]) for s in lines if s.startswith("VmHWM"))


def _apart(kind: type[T], *words: object) -> T:
    """Run one step in a process of its own, and return its figures."""
    command = [sys.executable, "-m", __spec__.name, *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return TypeAdapter(kind).validate_json(done.stdout)


STEPS = {"make": make_ledger, "open": open_ledger}


def _main(words: Sequence[str]) -> object:
    if words[0] not in STEPS:
        rounds, cohort, clients = map(int, words[:3])
        url = words[3] if len(words) > 3 else None
        return ledger_cost(LedgerSize(rounds, cohort, clients), url)
    step, where, rounds, cohort, clients, seed = words
    size = LedgerSize(int(rounds), int(cohort), int(clients))
    return STEPS[step](where, size, int(seed))


if __name__ == "__main__":
    print(json.dumps(asdict(_main(sys.argv[1:]))))  # noqa: T201  # pyright: ignore
