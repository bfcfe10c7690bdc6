"""How well do four hospitals predict heart disease together, and what does each way cost them?

Linear models on the patients of Fed-Heart-Disease (`examples/hospitals.toml`), beside the
figures that FLamby publishes for the same training and test rows. As these test rows are few,
every method is played on 20 other splits, too. Rates, clips, pulls and lambda are those with the
highest accuracy on training rows of the published split that were held out (`--search`); no test
row has a part in it. `--csv` writes the table.
"""

import csv
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from io import StringIO
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import KFold

import covey
from benchmarks.playing import note, played
from covey import ScoringJob
from covey.base.files import replace_whole
from covey.data.formats import Table, read_hospitals
from covey.data.source import PUBLICATIONS, data_folder
from covey.dp.run_guarantees import NoisePlan, multiplier
from covey.engine.metrics import Auroc
from covey.engine.protocol import concatenated
from covey.runs.evaluation import ModelsInUse
from covey.settings.clients import Overrides
from covey.settings.run import build_run

EXAMPLE = Path(__file__).parents[1] / "examples" / "hospitals.toml"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
Settings = tuple[str, ...]
Row = dict[str, Any]

TRAINED: Settings = (
    *("rounds=30", "method={name = 'fedavg'}", "data.client_columns=false", "model.scale=1.0"),
    *("train.local_steps=10", "train.batch_size=32", "aggregation.weights=examples"),
)
NOISY_ROUNDS, DELTA = 60, 1e-4
NOISY: Settings = (
    *(f"rounds={NOISY_ROUNDS}", "method={name = 'fedavg'}", "model.scale=1.0"),
    "aggregation.server_optimizer=momentum",
)
ACCEPTED: Settings = ("privacy.record_noise=4.6", "privacy.exposure=accepted")
"""Over 60 rounds: a hospital that accepts .8 uses the whole clip (`examples/exposure.toml`)."""


def _noise_at(epsilon: float) -> Settings:
    """Return the noise that hides a patient, but for what scales its hospital's columns."""
    plan = NoisePlan(noise="record", rounds=NOISY_ROUNDS, delta=DELTA)
    return (f"privacy.record_noise={multiplier(plan, epsilon)}",)


def _of_rate(rate: float) -> Settings:
    return (f"train.learning_rate={rate}",)


METHODS: Mapping[str, Settings] = {
    "local": (*TRAINED, "method={name = 'local'}", *_of_rate(0.03)),
    "FedAvg": (*TRAINED, *_of_rate(0.3)),
    "FedProx": (*TRAINED, "method={name = 'fedprox', mu = 0.1}", *_of_rate(0.3)),
    "FedAdam": (
        *(*TRAINED, *_of_rate(0.01)),
        "aggregation.server_optimizer={name = 'adam', learning_rate = 0.3}",
    ),
    "IFCA": (*TRAINED, "method={name = 'ifca'}", *_of_rate(0.1)),
    "FedAvg, own intercepts": (*TRAINED, "model.personal=['head.bias']", *_of_rate(0.1)),
    "ridge, one intercept": ("data.client_columns=false",),
    "ridge, an intercept each": (),
    "noise, as accepted": (*NOISY, *ACCEPTED, "privacy.record_clip=1.0", *_of_rate(1.0)),
    "noise, epsilon 10": (*NOISY, *_noise_at(10.0), "privacy.record_clip=1.0", *_of_rate(0.3)),
    "noise, epsilon 1": (*NOISY, *_noise_at(1.0), "privacy.record_clip=1.0", *_of_rate(0.1)),
}
RATES: Sequence[Settings] = [_of_rate(r) for r in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)]
GRIDS: Mapping[str, Sequence[Settings]] = {
    "FedProx": [(f"method.mu={mu}", *rate) for mu, rate in product((0.01, 0.1, 1.0), RATES)],
    "FedAdam": [
        (f"aggregation.server_optimizer.learning_rate={r}", "train.learning_rate=0.01")
        for r in (0.003, 0.01, 0.03, 0.1, 0.3)
    ],
    "ridge": [(f"method.regularisation={r}",) for r in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)],
    "noise": [
        (f"privacy.record_clip={clip}", f"train.learning_rate={rate}")
        for clip, rate in product((0.3, 1.0), (0.01, 0.03, 0.1, 0.3, 1.0))
    ],
}
"""What is searched; of all others the rate alone."""

PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "FLamby, pooled": (0.783, 0.764, 0.750, 0.644, 0.749),
    "FLamby, local": (0.746, 0.746, 0.725, 0.702, 0.737),
    "FLamby, FedAvg": (0.731, 0.719, 0.650, 0.640, 0.706),
    "FLamby, FedProx": (0.731, 0.719, 0.650, 0.640, 0.706),
    "FLamby, SCAFFOLD": (0.727, 0.719, 0.650, 0.640, 0.704),
    "FLamby, FedAdam": (0.752, 0.746, 0.738, 0.667, 0.734),
    "FLamby, FedAdagrad": (0.760, 0.753, 0.738, 0.676, 0.741),
    "FLamby, cyclic": (0.758, 0.762, 0.713, 0.640, 0.736),
}
"""Accuracies by hospital and over all test rows: means over five seeds, as published."""

FOLDS, REPEATS = 5, 2


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--splits", type=int, default=20, help="Beside the published one.")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--search", action="store_true", help="Rates and lambda, on training rows.")
    parser.add_argument("--csv", type=Path, help="A file for the table.")


def measure(chosen: Namespace) -> dict[str, list[Row]]:
    """Return a row per method: the published split, and the others."""
    torch.set_num_threads(1)
    if chosen.search:
        return {name: _searched(name) for name in chosen.only}
    splits = range(1 + (1 if chosen.quick else chosen.splits))
    names = ["ridge, an intercept each"] if chosen.quick else chosen.only
    cases = [(name, split) for name in names for split in splits]
    with ProcessPoolExecutor(1 if chosen.quick else 2) as pool:
        results = dict(zip(cases, pool.map(_on_split, *zip(*cases, strict=True)), strict=True))
    rows = [_row(name, [results[name, split] for split in splits]) for name in names]
    rows += [_published(name, figures) for name, figures in PUBLISHED.items()]
    if chosen.csv:
        text = StringIO()
        writer = csv.DictWriter(text, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        replace_whole(chosen.csv, text.getvalue().encode())
    return {f"the published split, and {len(splits) - 1} others": rows}


def _row(name: str, results: Sequence[Row]) -> Row:
    """Return the published split's figures, and mean and middle nine tenths of the others'."""
    first, *others = results
    low, high = np.quantile([split["all"] for split in others], (0.05, 0.95))
    return {
        "method": name,
        **{key: f"{first[key]:.3f}" for key in (*HOSPITALS, "all", "auc")},
        "splits": f"{fmean(split['all'] for split in others):.3f}",
        "low": f"{low:.3f}",
        "high": f"{high:.3f}",
        "splits auc": f"{fmean(split['auc'] for split in others):.3f}",
    }


def _published(name: str, figures: Sequence[float]) -> Row:
    known = dict(zip((*HOSPITALS, "all"), (f"{figure:.3f}" for figure in figures), strict=True))
    return {
        "method": name,
        **known,
        **dict.fromkeys(("auc", "splits", "low", "high", "splits auc")),
    }


def _on_split(name: str, split: int) -> Row:
    """Return a method's accuracies on the test rows of a split."""
    return _played((*METHODS[name], f"data.split={split}", f"seed={split}"), Overrides())


def _played(changes: Settings, overrides: Overrides) -> Row:
    """Return accuracies by hospital and over all rows that they hold out, and the pooled AUC."""
    torch.set_num_threads(1)
    run = build_run(covey.load_config(EXAMPLE, changes), overrides)
    state = played(run)
    use, clients = ModelsInUse.of(state), run.population.clients
    jobs = [ScoringJob(use.params(use.name(client)), client.holdout) for client in clients]
    scored = list(run.engine.score(jobs))
    together = concatenated(scored)
    labels = torch.cat([client.holdout.labels for client in clients])
    by_hospital = {c.name: s.accuracy for c, s in zip(clients, scored, strict=True)}
    pooled = float((together.predictions == labels).double().mean())
    return {**by_hospital, "all": pooled, "auc": float(Auroc().measure(together, labels))}


def _searched(name: str) -> list[Row]:
    """Return accuracies on held-out training rows of the published split, by setting."""
    kind = name.partition(",")[0]
    grid = GRIDS.get(kind, RATES)
    folds = list(_folds())
    cases = [
        ((*METHODS[name], *point), Overrides(clients=own)) for point, own in product(grid, folds)
    ]
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(_played, *zip(*cases, strict=True)))
    rows: list[Row] = []
    for at, point in enumerate(grid):
        here = results[at * len(folds) : (at + 1) * len(folds)]
        figures = {key: f"{fmean(one[key] for one in here):.4f}" for key in ("all", "auc")}
        rows.append({"settings": " ".join(point), **figures})
        note(f"{name}: {rows[-1]}")
    return rows


def _folds() -> Iterator[dict[str, tuple[Table, Table]]]:
    """Yield the hospitals' training rows, a fifth of each held out."""
    tables = read_hospitals(PUBLICATIONS["heart-disease"], data_folder(""), 0)
    for repeat, fold in product(range(REPEATS), range(FOLDS)):
        held = dict[str, tuple[Table, Table]]()
        for name, (train, _) in tables.items():
            folds = KFold(FOLDS, shuffle=True, random_state=repeat).split(train["label"])
            parts = list(folds)[fold]
            inside, outside = (
                {key: column[rows] for key, column in train.items()} for rows in parts
            )
            held[name] = inside, outside
        yield held
