"""What does a bound on every record's exposure cost, by training under individual noise?

A softmax head on Gabor features (`examples/exposure.toml`) is trained on five populations:
as the clients accept, at one clip for all that bounds everybody alike, and without noise by
FedAvg, with and without weight decay. `--network` trains a network on MNIST at a few bounds.
Runs are attacked by their loss, Shokri's attack, LiRA and RMIA, and under noise by the
likelihood ratio over all rounds, which no attack beats. Clips and rates are those with the
least training loss of seed 0 (`--search`), whose figures are in no table. Runs that lie in
`--out` are not played again.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import covey
from benchmarks.playing import note, played
from covey import ScoringJob
from covey.base.built_ins import BOUND
from covey.models.feature_store import FeatureStore
from covey.settings.clients import Overrides
from covey.settings.run import build_run

EXAMPLE = Path(__file__).parents[1] / "examples" / "exposure.toml"
Settings = tuple[str, ...]
Row = dict[str, Any]

BRIGHTNESS: Settings = ("population.clients=60", "population.examples_per_client=250")
SMALL_MINORITY = (
    "population.groups=[{share = 0.2, shift = [%s], examples_per_client = 50}, "
    "{share = 0.8, shift = [0.9, 1.2], examples_per_client = 250}]"
)
SIGNED: Settings = ("model.features={filters = 60, size = 5}",)
POPULATIONS: Mapping[str, Settings] = {
    "cifar-small": (),
    "dark20": (SMALL_MINORITY % "0.2, 0.4", "train.learning_rate=2.0"),
    "inv20": (
        SMALL_MINORITY % "-1.2, -0.9",
        "train.learning_rate=2.0",
        "model.features={filters = 120, size = 5, response = 'absolute'}",
    ),
    "MNIST 60 x 200": ("data.name=mnist", *BRIGHTNESS, "train.learning_rate=4.0"),
    "Fashion-MNIST 60 x 200": ("data.name=fashion-mnist", *BRIGHTNESS, "train.learning_rate=4.0"),
}

OPEN: Settings = (
    *("rounds=20", "privacy.record_clip=0", "privacy.record_noise=0", "privacy.exposure=1"),
    *("train.local_epochs=5", "train.batch_size=10", "train.learning_rate=0.3"),
    "aggregation.server_optimizer=none",
)
ALIKE = 0.65
"""What one clip for all bounds everybody by: the mean of what clients accept."""
WAYS: Mapping[str, Settings] = {
    "as accepted": (),
    "one clip for all": (f"privacy.exposure={ALIKE}",),
    "no noise": OPEN,
    "no noise, weight decay .01": (*OPEN, "train.optimizer.weight_decay=0.01"),
}

CLIPS, RATES = (0.3, 1.0, 3.0), (0.5, 1.0, 2.0, 4.0, 8.0)
BOUNDS = (0.55, 0.6, 0.65)
NETWORK: Settings = (*("data.name=mnist", *BRIGHTNESS), 'model={name = "mnist-cnn"}')
NETWORK_UNDER_NOISE: Settings = ("privacy.record_clip=0.3", "train.learning_rate=1.0")
"""Of seven clips, rates and optimizers of the server the one with the highest training accuracy."""
QUICK: Settings = (
    *("rounds=2", "population.clients=4", "population.examples_per_client=30"),
    *("population.audit_examples=100", "data.name=digits", "population.shift=rotation"),
    *("population.minority=[0, 25]", "population.majority=[25, 50]"),
)
DRAWS = 10_000
"""Simulated noises for the worst record of each client."""


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--seeds", type=int, default=5, help="From 1 on: 0 chose the settings.")
    parser.add_argument("--references", type=int, default=2, help="Per run; at least 2.")
    parser.add_argument("--only", nargs="+", choices=POPULATIONS, default=list(POPULATIONS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["as accepted"])
    parser.add_argument("--network", action="store_true", help="The MNIST CNN at a few bounds.")
    parser.add_argument("--search", action="store_true", help="Clips and rates, on seed 0.")
    parser.add_argument("--out", type=Path, default=Path("exposure"), help="The runs' folder.")


def measure(chosen: Namespace) -> dict[str, list[Row]]:
    """Return a row per population and way: means over the seeds."""
    if chosen.quick:
        with TemporaryDirectory() as place:
            case = {"digits, as accepted": QUICK}
            return {"quick": list(_rows(case, Path(place), range(1, 2), 2))}
    if chosen.search:
        return {name: list(_searched(name)) for name in chosen.only}
    cases = {
        f"{name}, {way}": (*POPULATIONS[name], *WAYS[way])
        for name, way in product(chosen.only, chosen.ways)
    }
    if chosen.network:
        cases = {
            f"MNIST CNN, at most {bound}": (*NETWORK, *NETWORK_UNDER_NOISE, *bounded(bound))
            for bound in BOUNDS
        }
        slower = ("train.batch_size=25", "train.learning_rate=0.05")
        cases["MNIST CNN, no noise"] = (*NETWORK, *OPEN, *slower)
    seeds = range(1, 1 + chosen.seeds)
    references = 0 if chosen.network else chosen.references  # each trains as long as the run
    return {f"{chosen.seeds} seeds": list(_rows(cases, chosen.out, seeds, references))}


def bounded(bound: float) -> Settings:
    """Return settings in which all records have this bound over 60 rounds."""
    z = sqrt(60) / (2 * NormalDist().inv_cdf(bound))
    return (f"privacy.record_noise={z}", "privacy.exposure=1")


def _rows(
    cases: Mapping[str, Settings], folder: Path, seeds: range, references: int
) -> Iterator[Row]:
    for name, changes in cases.items():
        runs = [_attacked(name, changes, folder, seed, references) for seed in seeds]
        columns = {key: [run[key] for run in runs] for key in runs[0]}
        yield {
            "case": name,
            "accuracy": f"{fmean(columns['accuracy']):.3f}",
            "spread": f"{stdev(columns['accuracy']):.3f}" if len(runs) > 1 else None,
            "minority": f"{fmean(columns['minority']):.3f}",
            "majority": f"{fmean(columns['majority']):.3f}",
            **{
                attack: f"{max(values):.3f}"
                for attack, values in columns.items()
                if attack in ("loss", "shokri", "lira", "rmia") and None not in values
            },
            "worst record": _largest(columns["worst record"]),
            "bound": _largest(columns["bound"]),
            # unknown in one run is unknown in all
            "above": None if None in columns["above"] else sum(columns["above"]),
            "clients": sum(columns["clients"]),
            "simulated": _largest(columns["simulated"]),
        }


def _largest(values: list[float | None]) -> str | None:
    known = [value for value in values if value is not None]
    return f"{max(known):.3f}" if known else None


def _attacked(name: str, changes: Settings, folder: Path, seed: int, references: int) -> Row:
    """Return the figures of a run, which is played and attacked where it is not.

    Without references it is attacked by its loss alone, as every run at its end.
    """
    place = folder / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
    settings = covey.load_config(EXAMPLE, [*changes, f"seed={seed}"])
    run = covey.run(config=settings, out=place, exist="resume", progress=False)
    audited = run.audit(references=references) if references else None
    summary = covey.load(place).summary
    ratio = audited.likelihood_ratio if audited else None
    strongest = {"loss": summary.clusters[0].true_risk}
    for cluster in audited.clusters if audited else ():
        attacks = cluster.attacks.items()
        strongest = {name: attack.overall.balanced_accuracy.value for name, attack in attacks}
    worst = () if ratio is None else ratio.by_client.values()
    draws = np.random.default_rng(seed)
    bounds = [attack.estimate for attack in covey.load(place).history.attacks if attack.client]
    bounds = [bound for bound in bounds if bound.source == BOUND]
    groups = summary.accuracy.by_group
    note(f"{name}, seed {seed}: {summary.accuracy.overall}, {summary.violations.count} above")
    return {
        "accuracy": summary.accuracy.overall,
        "minority": groups["minority"],
        "majority": groups["majority"],
        **strongest,
        "worst record": None if ratio is None else ratio.worst,
        "bound": max((bound.risk for bound in bounds), default=None),
        "above": summary.violations.count,
        "clients": settings.population.clients,
        "simulated": max((_simulated(client, draws) for client in worst), default=None),
    }


def _simulated(success: float, draws: np.random.Generator) -> float:
    """Return by how many standard errors simulated noise exceeds what was computed.

    log p / q has mean +-mu^2 / 2 and variance mu^2, with the record and without.
    """
    mu = 2 * NormalDist().inv_cdf(success)
    ratios = draws.normal(0, mu, (2, DRAWS)) if mu else np.zeros((2, DRAWS))
    right = (ratios[0] + mu**2 / 2 > 0).mean() + (ratios[1] - mu**2 / 2 <= 0).mean()
    return float((right / 2 - success) / sqrt(0.25 / (2 * DRAWS)))


def _searched(name: str) -> Iterator[Row]:
    """Return training losses of seed 0 by clip and rate."""
    for clip, rate in product(CLIPS, RATES):
        changes = (f"privacy.record_clip={clip}", f"train.learning_rate={rate}")
        settings = covey.load_config(
            EXAMPLE, [*POPULATIONS[name], *changes, "secrets.source=seeded"]
        )
        loss = training_loss(settings)
        yield {"clip": clip, "rate": rate, "training loss": loss}
        note(f"{name}: clip {clip}, rate {rate}: {loss:.4f}")


def training_loss(settings: covey.Config) -> float:
    """Return the mean loss of the clients' own records under the model at the end."""
    store = FeatureStore.at(Path("features.sqlite"))
    run = build_run(settings, Overrides(features=store))
    model = played(run).clusters[0]
    jobs = [ScoringJob(model, client.train) for client in run.population.clients]
    return float(np.concatenate([score.losses.numpy() for score in run.engine.score(jobs)]).mean())
