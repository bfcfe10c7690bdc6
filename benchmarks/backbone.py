"""What does a bound on exposure cost, on features from scratch and on those of a frozen network?

Forty clients of CIFAR-10 train softmax heads (`examples/exposure.toml`) on Gabor features and
on those of EfficientNet-Lite0 (`examples/backbone.py`), whose records are seen once for all
runs; 128 directions of 1,000 images that are in no client's hands. FedAvg, with and without
weight decay, a ridge head, and training under noise: everybody at one bound, and as clients
accept. Runs are attacked by their loss, LiRA and RMIA, under noise by the likelihood ratio,
ridge heads by their weights. `--protocol` solves a ridge head over 100 clients with 30,000
images, dealt alike and by a Dirichlet distribution. `--search` prints training losses of seed 0,
by which clips and rates were chosen.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import covey
from benchmarks import headline
from benchmarks.exposure import BOUNDS, CLIPS, EXAMPLE, OPEN, RATES, bounded, training_loss
from benchmarks.playing import note
from covey.base.files import replace_whole
from covey.report.figures import CLUSTERS, MARKERS, canvas, key, legend, svg
from examples.backbone import save_public

Settings = tuple[str, ...]
Row = dict[str, Any]

CLIENTS: Settings = ("population.shift=none", "population.clients=40")
SIZES: Mapping[str, int] = {"2,000 records": 62, "12,000 records": 375}
"""Of a client, a fifth of it held out."""

GROUP = "population.groups=[{share = 1.0, shift = [0, 0], examples_per_client = %s}]"
LITE0 = "examples.backbone:Lite0"
KINDS: Mapping[str, Settings] = {"from scratch": (), "backbone": (f"model.features={LITE0}",)}
STEPS: Mapping[tuple[str, str], Settings] = {
    ("from scratch", "2,000 records"): ("privacy.record_clip=1.0", "train.learning_rate=0.5"),
    ("from scratch", "12,000 records"): ("privacy.record_clip=3.0", "train.learning_rate=1.0"),
    ("backbone", "2,000 records"): ("privacy.record_clip=1.0", "train.learning_rate=0.5"),
    ("backbone", "12,000 records"): ("privacy.record_clip=3.0", "train.learning_rate=0.5"),
}
"""Clips and rates under noise: those with the least training loss of seed 0 (`--search`)."""

FIGURES = ("accuracy", "risk", *headline.ATTACKS)
BOUNDED: Mapping[str, Settings] = {
    **{f"at most {bound:.2f}": bounded(bound) for bound in BOUNDS},
    "as accepted": (),
}
WAYS: Mapping[str, Settings] = {
    "FedAvg": OPEN,
    "FedAvg, weight decay .01": (*OPEN, "train.optimizer.weight_decay=0.01"),
    "ridge head": (*OPEN, "method={name = 'ridge', num_clusters = 1}", "rounds=1"),
    **BOUNDED,
}
QUICK: Settings = (
    *("population.clients=4", "population.examples_per_client=30", "population.audit_examples=100"),
    *("data.name=digits", "population.groups=[]", "rounds=1"),
)


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--seeds", type=int, default=3, help="From 1 on: 0 chose the settings.")
    parser.add_argument("--references", type=int, default=2, help="Per run; at least 2.")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--search", action="store_true", help="Clips and rates, on seed 0.")
    parser.add_argument("--protocol", action="store_true", help="30,000 images, 100 clients.")
    parser.add_argument("--out", type=Path, default=Path("backbone"), help="The runs' folder.")
    parser.add_argument("--figure", type=Path, help="An SVG; its table is written beside it.")


def measure(chosen: Namespace) -> dict[str, list[Row]]:
    """Return a row per way, kind of features and size: means over the seeds, with intervals."""
    os.environ.setdefault("COVEY_FEATURES", str(chosen.out))  # one network for all runs
    if chosen.protocol:
        return {"30,000 images, 100 clients": [*_protocol(chosen.out)]}
    cases = {f"{kind}, {size}": (kind, size) for size in chosen.sizes for kind in chosen.kinds}
    if chosen.search:
        return {name: [*_searched(chosen.out, *case)] for name, case in cases.items()}
    with TemporaryDirectory() as place:
        folder, seeds = (Path(place), 1) if chosen.quick else (chosen.out, chosen.seeds)
        cases = (
            {"from scratch, quick": ("from scratch", "2,000 records")} if chosen.quick else cases
        )
        means = {
            f"{case}: {way}": headline.summed(
                [
                    *headline.played_runs(
                        f"{case.replace(', ', '-')}-{way.replace(', ', '-')}",
                        partial(_settings, folder, kind, size, changes, quick=chosen.quick),
                        folder,
                        range(1, 1 + seeds),
                        chosen.references,
                    )
                ]
            )
            for case, (kind, size) in cases.items()
            for way, changes in WAYS.items()
        }
    if chosen.figure:
        replace_whole(chosen.figure, svg(_drawn(means)))
        replace_whole(chosen.figure.with_suffix(".csv"), headline.table(means, FIGURES).encode())
    return {f"{chosen.references} references": [*headline.printed(means, FIGURES)]}


def _settings(
    folder: Path, kind: str, size: str, changes: Settings, seed: int, *, quick: bool = False
) -> covey.Config:
    """Return the settings of a run, once the public images are there by which it whitens."""
    of_clients = (*CLIENTS, GROUP % SIZES[size], f"seed={seed}")
    words = [*of_clients, *KINDS[kind], *STEPS[kind, size], *changes, *(QUICK if quick else ())]
    if kind == "backbone":
        public = folder / f"public-{SIZES[size]}-{seed}.npz"
        if not public.is_file():
            save_public(covey.load_config(EXAMPLE, [*of_clients, *OPEN]), public)
        words.append(f"model.whiten_from={public}")
    return covey.load_config(EXAMPLE, words)


def _searched(folder: Path, kind: str, size: str) -> Iterator[Row]:
    """Yield training losses of seed 0, everybody at most .60, by clip and rate."""
    for clip, rate in product(CLIPS, (0.25, *RATES)):
        steps = (f"privacy.record_clip={clip}", f"train.learning_rate={rate}")
        changes = (*BOUNDED["at most 0.60"], *steps, "secrets.source=seeded")
        config = _settings(folder, kind, size, changes, 0)
        loss = training_loss(config)
        note(f"{kind}, {size}: clip {clip}, rate {rate}: {loss:.4f}")
        yield {"clip": clip, "rate": rate, "training loss": loss}


def _protocol(folder: Path) -> Iterator[Row]:
    """Yield a ridge head's accuracy over 100 clients, however their images are dealt."""
    dealt = ("population.clients=100", "population.audit_examples=0")
    deals = {"alike": "iid", "Dirichlet .1": "{name = 'dirichlet', alpha = 0.1}"}
    for name, partition in deals.items():
        words = (*CLIENTS, *dealt, GROUP % 300, *WAYS["ridge head"], "population.holdout=0")
        own = (f"population.partition={partition}", f"model.features={LITE0}", "model.whiten=0")
        began = perf_counter()
        config = covey.load_config(EXAMPLE, [*words, *own])
        run = covey.run(config=config, out=folder / f"protocol-{name}", exist="resume")
        summary, seconds = run.summary, perf_counter() - began
        accuracy, model = f"{summary.accuracy.overall:.4f}", str(summary.model_hash)[:12]
        yield {"images": name, "accuracy": accuracy, "model": model, "seconds": seconds}


def _drawn(means: Mapping[str, Row]) -> Figure:
    """Draw accuracy against the bound, and FedAvg at the risk by the strongest attack."""
    titles = (
        (size, "accuracy", "bound, or FedAvg's risk by the strongest attack") for size in SIZES
    )
    figure, several = canvas(*titles)
    keys: list[Line2D] = []
    for axes, size in zip(several, SIZES, strict=True):
        for place, kind in enumerate(KINDS):
            rows = {way: means.get(f"{kind}, {size}: {way}") for way in WAYS}
            colour = CLUSTERS[place]
            points = [(bound, rows[f"at most {bound:.2f}"]) for bound in BOUNDS]
            known = [(bound, row["accuracy"][0]) for bound, row in points if row]
            axes.plot(*zip(*known, strict=True), color=colour, marker=MARKERS[0])
            if free := rows["FedAvg"]:
                axes.plot(free["risk"][0], free["accuracy"][0], color=colour, marker=MARKERS[1])
            if axes is several[0]:
                keys += [key(MARKERS[0], f"{kind}: bound", colour, colour)]
                keys += [key(MARKERS[1], f"{kind}: FedAvg", colour, colour)]
        axes.set(xlim=(0.5, 0.85), ylim=(0.3, 0.9))
    legend(figure, keys, columns=2)
    return figure
