"""What does accuracy cost in risk, by the strongest attack that was run?

Each method is played with every seed on 40 clients of CIFAR-10 (`examples/cifar-small.toml`,
softmax heads by `examples/exposure.toml`, ridge heads by `examples/ridge.toml`), and its final
models are attacked: what was trained by its loss, LiRA and RMIA with references, and under
individual noise by the likelihood ratio; ridge heads by their weights. "IFCA-MIR" is Algorithm 1
to the letter, with the paper's red team and a client's 50 images as mini-batch; what begins from
known groups, which no real federation has, says so.
Runs that lie in `--out` are not played again. `--figure` draws docs/results/headline.svg, where
methods that `--only` leaves out keep the figures of the table beside it.
"""

import csv
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from io import StringIO
from math import isnan, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import covey
from benchmarks.exposure import NETWORK_UNDER_NOISE as UNDER_NOISE
from benchmarks.exposure import OPEN, WAYS
from benchmarks.playing import note
from covey.api.sweeps import check_variant
from covey.base.figure import RiskEstimate
from covey.base.files import replace_whole
from covey.report.figures import CLUSTERS, MARKERS, MISSING, canvas, key, legend, svg
from covey.runs.auditing import is_finished
from covey.runs.folder import RunFolder
from covey.runs.head_attacks import POPULATION
from covey_papers.reproduce.record import Cell

EXAMPLES = Path(__file__).parents[1] / "examples"
NETWORKS, HEADS, BOUNDED = "cifar-small.toml", "ridge.toml", "exposure.toml"
ATTACKS = ("loss", "lira", "rmia")
FIGURES = ("accuracy", "minority", "risk")
TO_THE_LETTER = (
    *("rounds=50", "train.local_steps=1", "train.batch_size=50", "train.learning_rate=0.1"),
    *("train.optimizer.momentum=0", "population.shift_per=client"),
    *("method.initialisation=random", "method.same_batch=true", "method.selection=weighted"),
    *("risk.name=paper", "population.pool=8000"),
)
METHODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "FedAvg": (NETWORKS, ("method.name=fedavg",)),
    "IFCA, groups known": (NETWORKS, ("method.name=ifca",)),
    "IFCA-MIR": (NETWORKS, TO_THE_LETTER),
    "IFCA-MIR, counts, groups known": (NETWORKS, ("method.selection=weighted",)),
    "threshold, groups known": (NETWORKS, ()),
    "DP-FedAvg, epsilon 8": (
        NETWORKS,
        ("method.name=fedavg", "privacy.client_clip=0.5", "privacy.client_noise=2.685"),
    ),
    "FedAvg, exposure as accepted": (BOUNDED, ('model={name = "mnist-cnn"}', *UNDER_NOISE)),
    "softmax head": (BOUNDED, OPEN),
    "softmax head, weight decay .01": (BOUNDED, WAYS["no noise, weight decay .01"]),
    "softmax head, exposure as accepted": (BOUNDED, ()),
    "ridge head": (HEADS, ()),
}
QUICK = (
    *("rounds=1", "population.clients=4", "population.examples_per_client=20"),
    *("population.audit_examples=100", "train.local_epochs=1"),
)
PARTS = ("", " ±")
Row = dict[str, Any]


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--references", type=int, default=2, help="Per cluster; at least 2.")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("headline"), help="The runs' folder.")
    parser.add_argument("--figure", type=Path, help="An SVG; its table is written beside it.")


def measure(chosen: Namespace) -> dict[str, list[Row]]:
    """Return a row per method: means over the seeds, with 95% intervals."""

    def settings(name: str, seed: int) -> covey.Config:
        file, changes = METHODS[name]
        small = QUICK if chosen.quick else ()
        return covey.load_config(EXAMPLES / file, [*changes, *small, f"seed={seed}"])

    with TemporaryDirectory() as place:
        folder, seeds = (Path(place), 1) if chosen.quick else (chosen.out, chosen.seeds)
        refs = chosen.references
        if chosen.quick:  # one way of each kind
            chosen.only = [*{METHODS[name][0]: name for name in chosen.only}.values()]
        means = {
            name: summed([*played_runs(name, partial(settings, name), folder, range(seeds), refs)])
            for name in chosen.only
        }
    if chosen.figure:
        file = chosen.figure.with_suffix(".csv")
        if file.is_file() and not chosen.quick:  # never a small figure among large ones
            known = {**read_table(file.read_text()), **means}
            means = {name: known[name] for name in METHODS if name in known}
        replace_whole(chosen.figure, svg(_drawn(means)))
        replace_whole(file, table(means).encode())
    return {f"{chosen.references} references": [*printed(means)]}


def printed(means: Mapping[str, Row], figures_of: Sequence[str] = FIGURES) -> Iterator[Row]:
    """Yield a row for a reader per method."""
    for name, mean_row in means.items():
        count = f"{mean_row['violations']} of {mean_row['clients']}"
        yield {
            "model": name,
            **{key: _with_interval(*mean_row[key]) for key in figures_of},
            "attacks": mean_row["attacks"],
            "violations": "unknown" if isnan(mean_row["violations"]) else count,
            "seeds": mean_row["seeds"],
        }


def _with_interval(mean: float, half: float) -> str:
    """Return a mean with its interval, which one seed does not have."""
    return f"{mean:.3f}" if isnan(half) else f"{mean:.3f} ± {half:.3f}"


def played_runs(
    name: str,
    settings: Callable[[int], covey.Config],
    folder: Path,
    seeds: Iterable[int],
    references: int,
) -> Iterator[Row]:
    """Yield the figures of a method's runs, which are played and attacked where they are not."""
    for seed in seeds:
        place = folder / f"{name.replace(' ', '-')}-{seed}"
        config = settings(seed)
        check_variant(RunFolder(place), config)
        if not is_finished(place):
            covey.run(config=config, out=place, exist="resume", progress=False)
        run = covey.load(place)
        if config.method.name != "ridge" and not (place / "audit" / "audit.json").is_file():
            run.audit(ATTACKS, references)
        run = covey.load(place)
        summary = run.summary
        used = [cluster for cluster in summary.clusters if cluster.clients]
        attacked = [e.strongest_attack or RiskEstimate.unknown("no attack", "none") for e in used]
        if POPULATION in {
            attack.source for attack in attacked
        }:  # the attack that knows was not run
            attacked.append(RiskEstimate.unknown("above 6,000 candidates", "none"))
        worst = max(
            attacked, key=lambda attack: (isnan(attack.risk), attack.risk)
        )  # unknown is no less
        note(f"{name}, seed {seed}: accuracy {summary.accuracy.overall}, {worst.source}")
        known = [(attack.estimate.source, attack.estimate.risk) for attack in run.history.attacks]
        yield {
            **{name: max([risk for by, risk in known if by == name] or [nan]) for name in ATTACKS},
            "accuracy": summary.accuracy.overall,
            "minority": summary.accuracy.by_group.get("minority", nan),
            "risk": worst.risk,
            "attack": worst.source,
            "violations": nan if summary.violations.count is None else summary.violations.count,
            "clients": sum(cluster.clients for cluster in used),
        }


def summed(rows: list[Row]) -> Row:
    """Return means with half of their 95% intervals (Student), and counts over all seeds."""
    means = {name: _mean([row[name] for row in rows]) for name in (*FIGURES, *ATTACKS)}
    counts = {name: sum(row[name] for row in rows) for name in ("violations", "clients")}
    attacks = sorted({row["attack"] for row in rows})
    return {**means, **counts, "attacks": ", ".join(attacks), "seeds": len(rows)}


def _mean(values: list[float]) -> tuple[float, float]:
    """Return a mean and half of its interval; NaN where one of the values is unknown."""
    cell = Cell("", "", "", tuple(None if isnan(value) else value for value in values))
    low, high = cell.interval or (nan, nan)
    return nan if cell.mean is None else cell.mean, (high - low) / 2


def _drawn(means: dict[str, Row]) -> Figure:
    """Draw accuracy against the risk of the riskiest model in use."""
    figure, (axes,) = canvas(("Up and left is better", "accuracy", "risk, strongest attack"))
    keys: list[Line2D] = []
    for place, (name, row) in enumerate(means.items()):
        if isnan(row["risk"][0]):
            continue  # the table says so
        (risk, wide), (accuracy, high) = row["risk"], row["accuracy"]
        marker, colour = MARKERS[place % len(MARKERS)], CLUSTERS[place % len(CLUSTERS)]
        face = colour if place < len(MARKERS) else "white"
        look: Any = {"marker": marker, "color": colour, "elinewidth": 0.8, "capsize": 2}
        axes.errorbar(risk, accuracy, yerr=high, xerr=wide, markerfacecolor=face, **look)
        keys.append(key(marker, name, colour, face))
    axes.set(xlim=(0.45, 1.05), ylim=(0, None))
    legend(figure, keys, columns=2)
    axes.axvline(0.5, color=MISSING, linestyle=":")
    return figure


def read_table(text: str) -> dict[str, Row]:
    """Return the rows of a table that was written."""
    counts = ("violations", "clients", "seeds")
    return {
        row["model"]: {
            **{name: tuple(float(row[f"{name}{part}"]) for part in PARTS) for name in FIGURES},
            **{name: nan if row[name] == "nan" else int(row[name]) for name in counts},
            "attacks": row["attacks"],
        }
        for row in csv.DictReader(StringIO(text))
    }


def table(means: Mapping[str, Row], names: Sequence[str] = FIGURES) -> str:
    """Return the table of the figure, as CSV."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    counts = ("attacks", "violations", "clients", "seeds")
    writer.writerow(["model", *(f"{name}{part}" for name in names for part in PARTS), *counts])
    for name, row in means.items():
        figures = [f"{part:.3f}" for key in names for part in row[key]]
        writer.writerow([name, *figures, *(row[key] for key in counts)])
    return text.getvalue()
