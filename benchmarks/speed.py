"""How fast are rounds beside the same steps in a bare loop, and beside other simulators?

A round is what the algorithm does: clients choose and train, updates are merged; ledger
and checkpoints are not in it. Images are random. The bare loop is plain PyTorch: one model
per thread goes over its share of the images, which are floats beforehand, and merges
nothing. Both sides are timed in turn, and the ratio is the median of the pairs' ratios: how
many times as fast covey is. Pairs are repeated until these agree, and the processors that
others use are counted before and after: a row says whether the machine was quiet. Other
simulators, and Opacus, need `make bench-peers`.
"""

import copy
import gc
import os
import signal
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor, nn

import covey
from benchmarks.peers.recurrent import LENGTH, TOKENS, Recurrent
from benchmarks.playing import next_round, note
from covey.base.components import create
from covey.base.files import num_cores
from covey.data.examples import to_floats
from covey.models.build import ModelFactory, build_model
from covey.settings.clients import Overrides
from covey.settings.run import BuiltRun, build_run

Images = tuple[Tensor, Tensor]
Work = Callable[[], object]
PEERS = Path(__file__).parent / "peers"
CLASSES, LEAST_BATCH = 10, 4


@dataclass(frozen=True, slots=True)
class Shape:
    """What is trained, by whom and how.

    Attributes:
        sizes: images of each client.
        image: (channels, height, width), or whatever the model takes.
        model: `model.name`, or what makes a module.
        cohort: clients in a round, the first ones; None: all.
        settings: further sections of the settings.
        peer: a program of `benchmarks/peers` to compare with; "": the bare loop.
        tokens: the inputs are numbers of tokens below it; 0: images.
        threads: of both sides; 0: as many as are asked for.
    """

    sizes: tuple[int, ...]
    image: tuple[int, ...] = (1, 28, 28)
    model: str | Callable[[], nn.Module] = "mnist-cnn"
    batch: int = 25
    epochs: int = 1
    cohort: int | None = None
    learning_rate: float = 0.01
    precision: Literal["float32", "bfloat16"] = "float32"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Any])
    peer: str = ""
    tokens: int = 0
    threads: int = 0

    @property
    def images(self) -> int:
        """How many images are trained on in a round, epoch by epoch."""
        return self.epochs * sum(self.sizes[: self.cohort])


def _lenet_62k() -> nn.Module:
    """Return the LeNet of 62,006 parameters that small CIFAR-10 benchmarks take."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, kernel_size=5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
        nn.Linear(84, CLASSES),
    )


IFCA = {"method": {"name": "ifca", "num_clusters": 2, "select_examples": 25}}
STACKED = {"engine": {"name": "vmap", "chunk": 256}}
MNIST = Shape((250,) * 200)
LOW = replace(MNIST, precision="bfloat16")
PFL = Shape((50,) * 1000, (3, 32, 32), "femnist-cnn", batch=10, cohort=50)
BLAZEFL = Shape((500,) * 100, (3, 32, 32), _lenet_62k, batch=50, epochs=5)
PRIVATE = {"privacy": {"record_clip": 1.0, "record_noise": 1.0}}
ALONE = Shape((2048,), settings=PRIVATE, peer="opacus_dpsgd", threads=1)
DP_MODELS: Mapping[str, Shape] = {
    "cnn": ALONE,
    "lstm": replace(ALONE, image=(LENGTH,), model=Recurrent, tokens=TOKENS),
    "linear": replace(ALONE, image=(1800,), model="linear"),
}
MANY = Shape((10,) * 10_000, (1, 1, 5), "linear", batch=10)
FEW = Shape((24,) * 35, (1, 8, 8), epochs=5)
REFERENCES = {
    "linear": replace(FEW, model="linear"),
    "mlp": replace(FEW, model="mlp"),
    "large-mlp": replace(FEW, model="mlp", image=(1, 28, 28)),
    "cnn": FEW,
}
ADAMW = replace(
    MNIST, sizes=(250,) * 40, learning_rate=1e-3, settings={"train": {"optimizer": "adamw"}}
)
SHAPES: Mapping[str, Shape] = {
    "mnist-float32": MNIST,
    "mnist-bfloat16": LOW,
    "mnist-ifca": replace(MNIST, settings=IFCA),
    "lenet5": Shape((1200,) * 10, model="lenet5"),
    "vgg": Shape((50,) * 8, (3, 32, 32), "vgg"),
    "adamw": ADAMW,
    "pfl-cifar10": PFL,
    "blazefl": BLAZEFL,
    "many-clients": MANY,
    "many-clients-vmap": replace(MANY, settings=STACKED),
    **{
        f"references-{name}{engine}": replace(shape, settings=settings)
        for name, shape in REFERENCES.items()
        for engine, settings in (("", {}), ("-vmap", STACKED))
    },
    "mnist-float32-pfl": replace(MNIST, peer="pfl_fedavg"),
    "mnist-bfloat16-pfl": replace(LOW, peer="pfl_fedavg"),
    "pfl-cifar10-pfl": replace(PFL, peer="pfl_fedavg"),
    "blazefl-flower": replace(BLAZEFL, peer="flower_fedavg"),
    **{
        f"dp-sgd-{name}-{batch}-opacus": replace(shape, batch=batch)
        for name, shape in DP_MODELS.items()
        for batch in (64, 256, 1024)
    },
}
"""`pfl-cifar10` and `blazefl` are the benchmarks of pfl-research and BlazeFL; MNIST is the
federation of the IFCA-MIR paper; many clients have next to nothing to do; references are what an
audit trains, by threads and by vmap. DP-SGD is one client's,
on one thread, over as many examples in Poisson batches of 64 to 1,024."""


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument(
        "--only", nargs="+", choices=SHAPES, default=[*SHAPES], help="These figures."
    )
    parser.add_argument("--repeats", type=int, default=5, help="Pairs timed in turn.")
    parser.add_argument("--workers", type=int, default=num_cores(), help="Threads of both sides.")
    parser.add_argument(
        "--engine", default="parallel", help="`engine.name`; vmap takes a GPU, if any."
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="Compare with the bare loop in seconds of the processor, not of the clock.",
    )
    parser.add_argument("--peers", type=Path, default=Path(".venv-peers"))


OWN = "benchmarks.peers.recurrent:Recurrent"
"""`model.name` of a module that is passed: covey gives names of its own networks alone."""

MOST = 3
"""Times as many pairs as were asked for, where they do not agree."""

MAX_OTHER_LOAD = 0.1
"""Processors that others may use on a quiet machine."""

SPREAD = 0.05
"""Between the quartiles of pairs that agree, as a share of their median."""


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a row per figure."""
    rows: list[dict[str, object]] = []
    most = MOST
    if chosen.quick:
        chosen.repeats = most = 1
    for name in chosen.only:
        shape = small(SHAPES[name], chosen.workers) if chosen.quick else SHAPES[name]
        python = chosen.peers / "bin" / "python"
        if shape.peer and not python.is_file():
            note(f"{name}: the peer is not installed: make bench-peers")
            continue
        rows.append({"figure": name, **_compared(shape, chosen, python, most)})
        note(f"{name}: {rows[-1]['times as fast']:.2f}")
    return {f"medians of pairs, threads: {chosen.workers}": rows}


def small(shape: Shape, workers: int) -> Shape:
    """Return the least of this shape: a few clients with two small batches."""
    few, batch = min(len(shape.sizes), 3 * workers), min(shape.batch, LEAST_BATCH)
    return replace(shape, batch=batch, epochs=1, sizes=(2 * batch,) * few)


def _compared(shape: Shape, chosen: Namespace, python: Path, most: int) -> dict[str, object]:
    data, module = images_of(shape), module_of(shape)
    threads = shape.threads or chosen.workers
    play = rounds_of(shape, data, threads, chosen.engine)
    clock = time.perf_counter
    before = busy_processors()
    if shape.peer:
        with TemporaryDirectory() as place:
            task = Path(place) / "task.pt"
            write_task(task, module, shape, data)
            with peer(python, shape.peer, task, threads) as other:
                ours, theirs = _in_turn(play, other, chosen.repeats, most, clock)
    else:
        clock = time.process_time if chosen.processor_time else clock
        other = bare_loop(module, shape, data, threads)
        ours, theirs = _in_turn(play, other, chosen.repeats, most, clock)
    ratios, others = _ratios(ours, theirs), max(before, busy_processors())
    width = spread(ratios)
    return {
        "covey: images a second": shape.images / median(ours),
        "beside": shape.peer or "bare loop",
        "its images a second": shape.images / median(theirs),
        "times as fast": median(ratios),
        "least to most": (min(ratios), max(ratios)),
        "pairs": len(ratios),
        "spread": width,
        "processors that others used": others,
        "quiet": others < MAX_OTHER_LOAD and width is not None and width < SPREAD,
    }


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [b / a for a, b in zip(ours, theirs, strict=True)]


def spread(values: Sequence[float]) -> float | None:
    """Return the distance between the quartiles, as a share of the median; None of one value."""
    if len(values) < 2:
        return None
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def busy_processors(seconds: float = 0.5) -> float:
    """Return how many processors are busy while this process sleeps."""
    before = _busy_time()
    time.sleep(seconds)
    return (_busy_time() - before) / seconds


def _busy_time() -> float:
    """Return the seconds for which processors worked, or were taken away, since the start."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    user, nice, system, _, _, interrupts, soft, stolen, *_ = map(int, first.split()[1:])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _in_turn(
    one: Work, other: Work, repeats: int, most: int, clock: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Time both in turn, after one of each that does not count; each begins as often.

    Until the pairs agree, or there are `most` times as many as were asked for.
    """
    times: dict[Work, list[float]] = {one: [], other: []}
    for repeat in range(-1, most * repeats):
        width = spread(_ratios(times[one], times[other])) if repeat >= repeats else None
        if width is not None and width < SPREAD:
            break
        gc.collect()
        for work in (one, other)[:: -1 if repeat % 2 else 1]:
            began = clock()
            work()
            if repeat >= 0:
                times[work].append(clock() - began)
    return times[one], times[other]


def images_of(shape: Shape) -> list[Images]:
    """Return each client's random images, or tokens, and labels."""
    draws = covey.Streams(0).at("images").generator()
    high, kind = (shape.tokens, "i8") if shape.tokens else (256, "u1")
    return [
        (
            torch.from_numpy(draws.integers(high, size=(n, *shape.image), dtype=kind)),
            torch.from_numpy(draws.integers(CLASSES, size=n)),
        )
        for n in shape.sizes
    ]


def rounds_of(shape: Shape, data: Sequence[Images], workers: int, engine: str = "parallel") -> Work:
    """Return what plays the next round of this federation, whenever it is called."""
    run, state = build_rounds(shape, data, workers, engine)

    def play() -> None:
        nonlocal state
        state = next_round(run, state, run.streams, shape.cohort)

    return play


def build_rounds(
    shape: Shape, data: Sequence[Images], workers: int, engine: str
) -> tuple[BuiltRun, covey.ServerState]:
    """Return a federation of this shape, and its state before the first round."""
    own = shape.model if callable(shape.model) else None
    sections: dict[str, dict[str, Any]] = {
        "population": {"holdout": 0.0},
        "model": {"name": OWN if own else shape.model},
        "train": {
            "local_epochs": shape.epochs,
            "batch_size": shape.batch,
            "learning_rate": shape.learning_rate,
        },
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "engine": {"name": engine, "workers": workers, "precision": shape.precision},
    }
    for name, section in shape.settings.items():
        sections[name] = {**sections.get(name, {}), **section}
    if sections["engine"]["name"] == "vmap":  # which takes the threads that torch has
        del sections["engine"]["workers"]
    clients = {f"client-{i:05d}": examples for i, examples in enumerate(data)}
    config = covey.Config.of({"rounds": 1000, **sections})
    run = build_run(config, Overrides(own, clients))
    return run, run.algorithm.init(run.streams)


def module_of(shape: Shape) -> nn.Module:
    """Return the module that a shape trains."""
    streams = covey.Streams(0).at("architecture")
    if callable(shape.model):
        with streams.lent_to_torch():
            return shape.model()
    made = create("model", shape.model, "model", ModelFactory)
    return build_model(made, shape.image, CLASSES, streams)


def bare_loop(
    module: nn.Module, shape: Shape, data: Sequence[Images], workers: int
) -> Callable[[], int]:
    """Return what takes a round's steps, and counts them, on threads of one core each."""
    floats = [(to_floats(x), y) for x, y in data[: shape.cohort]]
    pool, low = ThreadPoolExecutor(workers), shape.precision == "bfloat16"
    adam = shape.settings.get("train", {}).get("optimizer") == "adamw"
    modules = [copy.deepcopy(module) for _ in range(workers)]
    for network in modules:
        network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    steps = [bare_step(network, shape.learning_rate, adam=adam) for network in modules]
    orders = [covey.Streams(0).at("order", i).generator() for i in range(workers)]

    def train(i: int) -> int:
        torch.set_num_threads(1)
        taken = 0
        for inputs, labels in floats[i::workers]:
            for _ in range(shape.epochs):
                order = torch.from_numpy(orders[i].permutation(len(labels)))
                for batch in order.split(shape.batch):
                    with torch.autocast("cpu", enabled=low, cache_enabled=False):
                        outputs = modules[i](inputs[batch])
                        loss = nn.functional.cross_entropy(outputs, labels[batch])
                    steps[i](loss)
                    taken += 1
        return taken

    def play() -> int:
        threads = torch.get_num_threads()
        try:
            return sum(pool.map(train, range(workers)))
        finally:
            # a thread's own setting is the default of every later thread
            torch.set_num_threads(threads)

    return play


def bare_step(module: nn.Module, rate: float, *, adam: bool) -> Callable[[Tensor], None]:
    """Return a step of AdamW as fast as torch has it, or of SGD as a single addition."""
    weights = [*module.parameters()]
    made = torch.optim.AdamW(weights, rate, fused=True) if adam else None

    def step(loss: Tensor) -> None:
        if made is None:
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                torch._foreach_add_(weights, gradients, alpha=-rate)  # pyright: ignore
            return
        made.zero_grad()
        loss.backward()
        made.step()

    return step


def write_task(path: Path, module: nn.Module, shape: Shape, data: list[Images]) -> None:
    """Write what a peer trains, in plain torch: it has no covey."""
    task = {
        "model": nn.Sequential(*module) if isinstance(module, nn.Sequential) else module,
        "clients": data,
        "cohort": shape.cohort or len(data),
        "epochs": shape.epochs,
        "batch": shape.batch,
        "learning_rate": shape.learning_rate,
        "precision": shape.precision,
        "privacy": shape.settings.get("privacy", {}),
    }
    torch.save(task, path)


@contextmanager
def peer(python: Path, program: str, task: Path, threads: int) -> Iterator[Work]:
    """Start a simulator in its own environment; each call plays a round of it."""
    ours = {n: v for n, v in os.environ.items() if n != "OMP_NUM_THREADS"}
    log = task.with_suffix(".log")
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [python.absolute(), PEERS / f"{program}.py", task, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**ours, "PYTHONPATH": str(PEERS.parents[1]), "FLWR_TELEMETRY_ENABLED": "0"},
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    said, heard = process.stdin, process.stdout

    def hear(word: str) -> None:
        if heard.readline().strip() != word:
            raise RuntimeError(f"{program} stopped: {log.read_text()[-2000:]}")

    def play() -> None:
        with suppress(BrokenPipeError):
            print("go", file=said, flush=True)
        hear("done")
        hear("ready")

    try:
        hear("ready")
        yield play
    finally:
        with suppress(ProcessLookupError):  # it, and what it started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
