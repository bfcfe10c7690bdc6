"""What does covey do on a GPU: the numbers of the CPU, how fast, and the papers' shapes?

Everything is played on the card, if there is one, and else on the processors, at whatever
size: `--quick` takes seconds. Below 8 minutes on one card, in this order:

    python -m benchmarks gpu --record
"""

import platform
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from torch import nn

import covey
from benchmarks.playing import next_round, note
from benchmarks.speed import (
    IFCA,
    LOW,
    MNIST,
    Images,
    Shape,
    bare_step,
    build_rounds,
    images_of,
    module_of,
    peer,
    rounds_of,
    small,
    write_task,
)
from covey.data.examples import to_floats

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ALIKE = 1e-4
"""By how much a parameter may differ after three rounds."""

COLOURED = (3, 32, 32)
AGREE: Mapping[str, Shape] = {
    "linear": Shape((40,) * 20, (1, 8, 8), "linear"),
    "mnist-cnn": Shape((50,) * 8),
    "lenet5, unlike sizes": Shape((30, 50, 80), model="lenet5"),
    "vgg": Shape((50,) * 4, COLOURED, "vgg", learning_rate=1e-3),
    "adamw": Shape((50,) * 8, learning_rate=1e-3, settings={"train": {"optimizer": "adamw"}}),
}
SPEED: Mapping[str, Shape] = {
    "mnist-float32": MNIST,
    "mnist-bfloat16": LOW,
    "vgg": Shape((500,) * 20, COLOURED, "vgg"),
    "many-clients": Shape((10,) * 10_000, (1, 1, 5), "linear", batch=10),
}
PAPER = Shape((500,) * 100, COLOURED, "vgg", settings=IFCA)
ROUNDS = 20
PHOTOS = (4_096, 3, 224, 224)


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="These parts.")
    parser.add_argument("--peers", type=Path, default=Path(".venv-peers"))


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a table per part, under the name of the card."""
    card = torch.cuda.get_device_name() if DEVICE == "cuda" else f"no card: {platform.processor()}"
    tables: dict[str, list[dict[str, object]]] = {}
    for part in chosen.only:
        began = time.perf_counter()
        tables[f"{part}, {card}"] = PARTS[part](chosen)
        note(f"{part}: {time.perf_counter() - began:.0f} s")
    return tables


def _agree(chosen: Namespace) -> list[dict[str, object]]:
    """Compare models after three rounds by `vmap` with those of the CPU."""
    rows: list[dict[str, object]] = []
    for name, full in AGREE.items():
        shape = small(full, 1) if chosen.quick else full
        ends: list[covey.Params] = []
        for engine in ("parallel", "vmap"):
            run, state = build_rounds(shape, images_of(shape), 1, engine)
            for _ in range(3):
                state = next_round(run, state, run.streams)
            ends.append(state.clusters[0])
        difference = max(float((ends[1][n] - ends[0][n]).abs().max()) for n in ends[0])
        rows.append({"model": name, "largest difference": difference, "met": difference <= ALIKE})
    return rows


def _speed(chosen: Namespace) -> list[dict[str, object]]:
    """Count a round's images a second, and those of a bare loop on the same device."""
    rows: list[dict[str, object]] = []
    for name, full in SPEED.items():
        shape = small(full, 1) if chosen.quick else full
        data, repeats = images_of(shape), 1 if chosen.quick else 3
        first_clients = replace(
            shape, sizes=shape.sizes[:20]
        )  # one after the other, they take long
        ours = _rate(rounds_of(shape, data, 1, "vmap"), shape.images, repeats)
        loop = _rate(_bare(first_clients, data), first_clients.images)
        rows.append(
            {
                "figure": name,
                "covey: images a second": ours,
                "bare loop": loop,
                "times as fast": ours / loop,
                "pfl-research": _pfl(shape, data, chosen.peers / "bin" / "python"),
            }
        )
    return rows


def _pfl(shape: Shape, data: list[Images], python: Path) -> float | None:
    """Return pfl-research's images a second, on the card that it finds; None: it is not here."""
    if not python.is_file():
        return None
    with TemporaryDirectory() as place:
        task = Path(place) / "task.pt"
        write_task(task, module_of(shape), shape, data)
        with peer(python, "pfl_fedavg", task, 1) as play:
            return _rate(play, shape.images)


def _bare(shape: Shape, data: Sequence[Images]) -> Callable[[], None]:
    """Return the steps of a round in plain PyTorch, one client after the other."""
    module = module_of(shape).to(DEVICE)
    here = [(to_floats(x).to(DEVICE), y.to(DEVICE)) for x, y in data[: len(shape.sizes)]]
    step = bare_step(module, shape.learning_rate, adam=False)
    low = shape.precision == "bfloat16"

    def play() -> None:
        for inputs, labels in here:
            for batch in torch.randperm(len(labels), device=DEVICE).split(shape.batch):
                with torch.autocast(DEVICE, torch.bfloat16, enabled=low):
                    loss = nn.functional.cross_entropy(module(inputs[batch]), labels[batch])
                step(loss)

    return play


def _paper(chosen: Namespace) -> list[dict[str, object]]:
    """Play IFCA's rounds of the paper's CIFAR-10; images are random."""
    shape, rounds = (small(PAPER, 1), 2) if chosen.quick else (PAPER, ROUNDS)
    run, state = build_rounds(shape, images_of(shape), 1, "vmap")
    lasted: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        state = next_round(run, state, run.streams)
        lasted.append(time.perf_counter() - began)
    return [{"rounds": rounds, "seconds": sum(lasted), "seconds a round": median(lasted)}]


def _features(chosen: Namespace) -> list[dict[str, object]]:
    """Count the images a second whose features a frozen network gives."""
    count, *image = (8, 3, 64, 64) if chosen.quick else PHOTOS
    network = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten()),
    ).eval()
    photos = torch.zeros(count, *image, dtype=torch.uint8)
    rows: list[dict[str, object]] = []
    for where in dict.fromkeys(("cpu", DEVICE)):
        moved = network.to(where)

        def play(network: nn.Module = moved, where: str = where) -> None:
            with torch.inference_mode():
                for part in photos.split(64):
                    network(to_floats(part.to(where))).cpu()

        rows.append({"device": where, "images a second": _rate(play, count)})
    return rows


def _rate(play: Callable[[], object], images: int, repeats: int = 1) -> float:
    """Return images a second, after a turn that does not count."""
    lasted: list[float] = []
    for _ in range(repeats + 1):
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        play()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        lasted.append(time.perf_counter() - began)
    return images / median(lasted[1:])


Part = Callable[[Namespace], list[dict[str, object]]]
PARTS: Mapping[str, Part] = {
    "agree": _agree,
    "speed": _speed,
    "paper": _paper,
    "features": _features,
}
"""By name, in the order in which they are played."""
