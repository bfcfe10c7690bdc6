"""What do large federations take: their rounds, anonymity sets and ledger?

Figures are taken in processes of their own, so that one's peak of memory is not another's,
and stand beside their bounds: what rounds may hold is the data, 3 x (workers + clusters) models,
and what a bare loop holds on as many threads; the other bounds are what a machine of two
cores should do. Peaks are Linux's.
"""

import math
import os
import random
import shutil
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from sqlalchemy import create_engine, text
from torch import Tensor, nn

import covey
from benchmarks.playing import in_own_process, note, peak_bytes
from benchmarks.speed import MANY, MNIST, Shape, bare_loop, images_of, module_of, rounds_of
from covey.aggregation.anonymity import AnonymitySets, Hiding, HidingRound, noise_scale
from covey.base.events import (
    AnonymitySetsFormed,
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelsMerged,
    RoundMeasured,
    RunStarted,
)
from covey.leaving.plan import AnswerRules, cheapest
from covey.leaving.plan import options as answers_of
from covey.ledger.store import Ledger
from covey.runs.ledger_record import LedgerReader, records_of

Quantity = tuple[str, float, float]
"""What was measured, what it is, and its bound."""

WORKERS, CLUSTERS, ANONYMITY, THRESHOLD = 2, 4, 8, 3
DIRECTIONS, NOISE = 8, 0.5
SOME, PLANS = 20, 50


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument(
        "--only", nargs="+", choices=FIGURES, default=[*FIGURES], help="These figures."
    )


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a row per quantity."""
    rows: list[dict[str, object]] = []
    for name in chosen.only:
        small, full = FIGURES[name]
        for what, value, bound in (small if chosen.quick else full)():
            rows.append({"figure": name, "what": what, "is": value, "bound": bound})
            note(f"{name}: {value:.3g} {what}")
    return {"large federations": rows}


def _memory(shape: Shape) -> list[Quantity]:
    data, models, peak = in_own_process(rounds_memory, shape)
    steps = in_own_process(steps_memory, shape)
    return [("MB", peak / 1e6, (data + models + steps) / 1e6)]


def rounds_memory(shape: Shape) -> tuple[int, int, int]:
    """Return the bytes of the data, of the models that may be held, and of two rounds."""
    _play_next_to_nothing()
    module = module_of(shape)
    model = sum(tensor.nbytes for tensor in module.state_dict().values())
    del module
    start, data = peak_bytes(), images_of(shape)
    play = rounds_of(shape, data, WORKERS)
    play()
    play()
    held = sum(x.nbytes + y.nbytes for x, y in data)
    return held, 3 * (WORKERS + 1) * model, peak_bytes() - start


def steps_memory(shape: Shape) -> int:
    """Return what a bare loop's steps hold on as many threads, of which each has one client."""
    _play_next_to_nothing()
    module, few = module_of(shape), replace(shape, sizes=shape.sizes[:WORKERS])
    data = images_of(few)
    start = peak_bytes()
    bare_loop(module, few, data, WORKERS)()
    return peak_bytes() - start


def _play_next_to_nothing() -> None:
    empty_shape = Shape((10, 10), (1, 1, 5), "linear")
    rounds_of(empty_shape, images_of(empty_shape), 1)()
    little = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(4, 2))
    little(torch.zeros(2, 1, 4, 4)).sum().backward()


def _square(width: int) -> nn.Module:
    """Return one matrix; its first ten outputs are the classes."""
    return nn.Sequential(nn.Linear(width, width, bias=False), _Ten())


class _Ten(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :10]


def _one_step_each(clients: int, parameters: int) -> Shape:
    width = math.isqrt(parameters)
    return Shape((1,) * clients, (width,), partial(_square, width), batch=1)


def _many_rounds(rounds: int) -> list[Quantity]:
    """Return how long a late round of a run with its ledger takes beside an early one."""
    shape, ended = Shape((10,) * 20, MANY.image, "linear", batch=10), list[float]()
    config = {
        "rounds": rounds,
        "population.holdout": 0.0,
        "model.name": "linear",
        "method.name": "fedavg",
        "risk.name": "none",
        "secrets.source": "seeded",
    }
    with TemporaryDirectory() as place:
        covey.run(
            clients={f"client-{i:03d}": e for i, e in enumerate(images_of(shape))},
            config={**config, "secrets.key_path": f"{place}/key.pem"},
            out=f"{place}/run",
            on_round=lambda _: ended.append(time.process_time()),
        )
    lasted = [b - a for a, b in pairwise(ended[5:])]
    quarter = len(lasted) // 4
    early, late = median(lasted[:quarter]), median(lasted[-quarter:])
    return [("times an early round", late / early, 1.05)]


def _anonymity_sets(clients: int, parameters: int) -> list[Quantity]:
    seconds, peak = in_own_process(sets_cost, clients, parameters)
    return [("seconds", seconds, 60.0), ("GB", peak / 1e9, 6.0)]


def sets_cost(clients: int, parameters: int) -> tuple[float, int]:
    """Hide a round's updates, which arrive one by one; return seconds and the peak.

    Updates lie along a few directions, with noise; making them is not counted.
    """
    draws = covey.Streams(0).at("updates").generator()
    directions = torch.from_numpy(draws.standard_normal((DIRECTIONS, parameters), "f4"))
    directions /= math.sqrt(DIRECTIONS)
    # a client's noise is a part of this: two parts that start apart are nearly orthogonal
    noise = NOISE * torch.from_numpy(draws.standard_normal(2 * parameters, "f4"))
    making = 0.0

    def made(names: Sequence[str]) -> Iterator[covey.ClientUpdate]:
        nonlocal making
        for name in names:
            began = time.process_time()
            own = covey.Streams(0).at("update", int(name)).generator()
            along = torch.from_numpy(own.standard_normal(DIRECTIONS, "f4"))
            start = int(own.integers(parameters))
            update = along @ directions + noise[start : start + parameters]
            making += time.process_time() - began
            yield covey.ClientUpdate(name, 0, {"weight": update}, 1.0)

    sets, none = AnonymitySets(min_anonymity=ANONYMITY), noise_scale("none", "l2", 0.0)
    start, streams = {"weight": torch.zeros(parameters)}, covey.Streams(0).at("merge")
    began = time.process_time()
    hidden = HidingRound((start,), streams, hiding=Hiding(sets, none, window=0.0))
    handles: Sequence[str] = [f"{i:09d}" for i in range(clients)]
    while handles:
        for update in made(handles):
            hidden.add(update)
            del update
        handles = hidden.result().again
    return time.process_time() - began - making, peak_bytes()


def _ledger(rounds: int, cohort: int, clients: int) -> list[Quantity]:
    """Measure a ledger in SQLite and, where a server can be started, in PostgreSQL."""
    with TemporaryDirectory() as place:
        path = Path(place) / "ledger.sqlite"
        measurements = _ledger_at(str(path), partial(_bytes_of, path), rounds, cohort, clients)
    with postgres() as server:
        if server is not None:
            url, size = server
            more = _ledger_at(url, size, rounds, cohort, clients)
            measurements += [(f"{what}, PostgreSQL", value, bound) for what, value, bound in more]
    return measurements


def _bytes_of(path: Path) -> int:
    return path.stat().st_size


def _ledger_at(location: str, size: Callable[[], int], *shape: int) -> list[Quantity]:
    rounds, cohort, _ = shape
    append = in_own_process(make_ledger, location, *shape)
    stored = size() / (rounds * cohort)
    verified, read, planned = in_own_process(read_ledger, location, *shape)
    return [
        (f"seconds to append {cohort:,} rows", append, 0.2),
        ("seconds of processor to verify the whole", verified, 10.0),
        ("seconds of processor to read who was where", read, 60.0),
        ("ms to plan one client from that", 1e3 * planned, 10.0),
        ("bytes a row", stored, 60.0),
    ]


@contextmanager
def postgres() -> Iterator[tuple[str, Callable[[], int]] | None]:
    """Start a server of our own, or none where there is no `pg_ctl`.

    Its transactions wait for the disk, as SQLite's do.
    """
    control = shutil.which("pg_ctl")
    if control is None:
        yield None
        return
    # a short path, for its socket, that is open to the user whom PostgreSQL runs as
    with TemporaryDirectory(prefix="pg-", dir="/tmp") as place:
        user = None if os.geteuid() else "nobody"
        if user:
            shutil.chown(place, user)
        options = f"-c listen_addresses='' -c unix_socket_directories={place}"
        command = [control, "-D", f"{place}/data", "-l", f"{place}/log", "-w"]
        run = partial(subprocess.run, check=True, user=user, cwd=place, stdout=subprocess.DEVNULL)
        run([*command, "initdb", "-o", "-A trust -U covey -E UTF8 --locale=C"])
        run([*command, "start", "-o", options])
        url = f"postgresql://covey@/postgres?host={place}"
        engine = create_engine(url.replace("postgresql", "postgresql+psycopg", 1))
        query = text("SELECT pg_database_size('postgres')")

        def size() -> int:
            with engine.connect() as connection:
                return connection.scalar(query) or 0

        try:
            empty = size()
            yield f"{url}&run=scale", lambda: size() - empty
        finally:
            engine.dispose()
            run([*command, "stop", "-m", "fast"])


def make_ledger(location: str, rounds: int, cohort: int, clients: int) -> float:
    """Write a ledger round by round, as a run does; return a late append's seconds."""
    draws, handles, lasted = random.Random(0), _handles(clients), list[float]()
    with Ledger.create(location, lambda: "2030-01-01T12:00:00Z") as ledger:
        ledger.enrol({handle: f"client-{i:07d}" for i, handle in enumerate(handles)})
        for t in range(rounds):
            events = [*_started(rounds, handles)] if t == 0 else []
            events += _round(draws.sample(handles, cohort), draws)
            began = time.perf_counter()
            ledger.append(t, records_of(events, t))
            lasted.append(time.perf_counter() - began)
    return median(lasted[-SOME:])


def read_ledger(location: str, rounds: int, cohort: int, clients: int) -> tuple[float, ...]:
    """Return the processor's seconds to verify and to read it all, and those of a plan."""
    lasted = list[float]()
    rules = AnswerRules(THRESHOLD, stored_updates=False, restorable=(0,), next_round=rounds)
    with Ledger.read(location) as ledger:
        began = time.process_time()
        ledger.verify()
        verified = time.process_time() - began
        began = time.process_time()
        held = LedgerReader().read(ledger).participation
        read = time.process_time() - began
        for handle in random.Random(1).sample(_handles(clients), min(PLANS, cohort)):
            began = time.perf_counter()
            cheapest(answers_of(held, handle, rules), "auto")
            lasted.append(time.perf_counter() - began)
    return verified, read, median(lasted)


def _handles(clients: int) -> list[str]:
    drawn = random.Random(0)
    return [f"h-{drawn.getrandbits(48):012x}" for _ in range(clients)]


def _round(cohort: Sequence[str], draws: random.Random) -> Iterator[Event]:
    """Yield the facts of a round whose clients are in clusters, and there in sets."""
    yield CohortSampled(tuple(sorted(cohort)))
    clusters = {handle: draws.randrange(CLUSTERS) for handle in cohort}
    yield ClientsAssigned(clusters, "clients")
    sizes: list[int] = []
    for j in range(CLUSTERS):
        members = [handle for handle, chosen in clusters.items() if chosen == j]
        sizes.append(len(members))
        whole = len(members) // ANONYMITY
        sets = tuple(tuple(sorted(members[i::whole])) for i in range(whole))
        yield AnonymitySetsFormed(j, sets, tuple(round(draws.random(), 6) for _ in sets))
    yield ModelsMerged(f"{draws.getrandbits(256):064x}", tuple(sizes))
    yield RoundMeasured(draws.random(), {}, tuple(sizes))


def _started(rounds: int, handles: Sequence[str]) -> Iterator[Event]:
    yield RunStarted(
        covey_version="0",
        method="ifca",
        config_hash="0" * 64,
        data_hash="0" * 64,
        num_clusters=CLUSTERS,
        rounds=rounds,
        group_names=("all",),
        groups=dict.fromkeys(handles, 0),
        risk_thresholds=dict.fromkeys(handles, 0.6),
        risk_lifetime=1,
        notes=(),
        deniability_threshold=THRESHOLD,
    )


Take = Callable[[], list[Quantity]]
SMALL = Shape((50,) * 4)
FIGURES: Mapping[str, tuple[Take, Take]] = {
    "memory-mnist": (partial(_memory, SMALL), partial(_memory, MNIST)),
    "memory-large-model": (
        partial(_memory, _one_step_each(3, 10_000)),
        partial(_memory, _one_step_each(40, 25_000_000)),
    ),
    "many-rounds": (partial(_many_rounds, 30), partial(_many_rounds, 600)),
    "anonymity-sets": (
        partial(_anonymity_sets, 100, 1_000),
        partial(_anonymity_sets, 10_000, 1_000_000),
    ),
    "ledger": (partial(_ledger, 5, 200, 400), partial(_ledger, 1_000, 10_000, 1_000_000)),
}
"""By name, at its least size and in full."""
