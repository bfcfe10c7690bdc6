"""Is the measured risk the true one?

Federations whose truth a simulation knows: before some rounds both sources look at the same
cluster models, and are held to the risk of the same attack on the real members and matched
non-members. Controls: random labels learnt by heart must be found, and halves of what no
model has seen must not. Right is a figure within .03 or two standard errors of the truth;
covered is one whose 95% interval, with the truth's own error, has the truth in it.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

import covey
from benchmarks.playing import note
from covey import Examples, Params, Recipe, Streams
from covey.algorithms.redteam import RedTeamed, targets
from covey.base.figure import RiskEstimate
from covey.engine.optimizers import Sgd
from covey.engine.protocol import Engine, TrainingJob
from covey.membership.controls import attacked, negative_control, random_halves
from covey.membership.intervals import MIN_RECORDS
from covey.membership.truth import true_risk
from covey.settings.risk import risk_measurement
from covey.settings.run import BuiltRun, build_run

Settings = Mapping[str, Any]
SOURCES = ("shadow", "federated")
NEAR, LEARNT = 0.03, 100
BY_HEART = covey.Recipe(
    local_epochs=100, batch_size=10, learning_rate=0.03, optimizer=Sgd(momentum=0.9)
)

GROUPS_KNOWN = {"name": "ifca", "initialisation": "groups"}
"""Clusters as large as their groups; clients choose after a quarter of `rounds`."""
HARD = {"batch_size": 10, "learning_rate": 0.03, "optimizer": {"momentum": 0.9}}
"""Training that learns by heart what is little and hard."""
DIGITS: Settings = {"rounds": 30, "train": {"local_epochs": 5, "optimizer": {"momentum": 0.9}}}
FEW: Settings = {"clients": 12, "examples_per_client": 40, "minority_share": 0.3}
BRIGHT: Settings = {
    "clients": 40,
    "audit_examples": 2000,
    "shift": "brightness",
    "majority": [0.9, 1.2],
}
LATER = (2, 4, 6, 8, 10, 12, 14)
EVERY_ROUND = (2, 3, 4, 5, 6, 7, 8)
FULL: Mapping[str, tuple[Settings, tuple[int, ...]]] = {
    "digits": (DIGITS, (5, 10, 15, 20, 25, 30)),
    "cifar-small": (
        {
            "data": {"name": "cifar10"},
            "population": BRIGHT
            | {"examples_per_client": 62, "minority_share": 0.2, "minority": [0.5, 0.8]},
            "train": {**HARD, "local_epochs": 5},
        },
        LATER,
    ),
    "CIFAR-10, 40 x 250": (
        {
            "data": {"name": "cifar10"},
            "population": BRIGHT
            | {"examples_per_client": 250, "minority_share": 0.1, "minority": [-1.2, -0.9]},
            "train": HARD,
        },
        EVERY_ROUND,
    ),
    "Fashion-MNIST, 60 x 50": (
        {
            "data": {"name": "fashion-mnist"},
            "population": {
                "clients": 60,
                "examples_per_client": 50,
                "audit_examples": 2000,
                "minority_share": 0.15,
            },
            "train": {**HARD, "local_epochs": 3},
        },
        EVERY_ROUND,
    ),
    "MNIST, 200 x 250": (
        {
            "data": {"name": "mnist"},
            "population": {
                "clients": 200,
                "examples_per_client": 250,
                "audit_examples": 2000,
                "minority_share": 0.15,
            },
            "engine": {"workers": 2},
        },
        (2, 3, 4),
    ),
}
"""Settings, and the rounds before which models are looked at."""
QUICK: Mapping[str, tuple[Settings, tuple[int, ...]]] = {
    "digits, 12 clients": (
        {**DIGITS, "rounds": 12, "population": FEW, "model": {"name": "mlp"}},
        (4, 8),
    )
}


@dataclass(frozen=True, slots=True)
class Look:
    """One cluster model before one round: the truth, and what each source said of it.

    Attributes:
        matchable: whether the server's pool holds enough to match the cluster's size.
    """

    truth: float
    truth_error: float
    matchable: bool
    estimates: Mapping[str, RiskEstimate]


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--only", choices=FULL, nargs="+", default=[*FULL])


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return what each source is worth, and the controls."""
    sets = QUICK if chosen.quick else {name: FULL[name] for name in chosen.only}
    looks: list[Look] = []
    controls: list[dict[str, object]] = []
    for name, (settings, rounds) in sets.items():
        usual = {"rounds": 16, "method": GROUPS_KNOWN, **settings}
        answers, shown = looked(usual, rounds)
        looks += answers
        controls += [{"set": name, **control} for control in shown]
        note(f"{name}: {len(answers)} models")
    return {
        f"{len(looks)} cluster models": [worth(looks, source) for source in SOURCES],
        "controls": controls,
    }


def worth(looks: Sequence[Look], source: str) -> dict[str, object]:
    """Return what one source's calibrated figures are worth."""
    calibrated = [look for look in looks if look.estimates[source].calibrated]
    able = [look for look in looks if look.matchable or source != "shadow"]
    risks = np.array([look.estimates[source].risk for look in calibrated], dtype=float)
    own = np.array([look.estimates[source].standard_error for look in calibrated], dtype=float)
    truths = np.array([look.truth for look in calibrated])
    errors = risks - truths
    standard = np.hypot(own, [look.truth_error for look in calibrated])
    off, row = np.abs(errors), {"source": source, "figures": len(calibrated)}
    if not calibrated:
        return row
    ordered = min(len({*truths}), len({*risks})) > 1
    return row | {
        "mean error": float(off.mean()),
        "right": float((off <= np.maximum(NEAR, 2 * standard)).mean()),
        "covered": float((off <= 1.96 * standard).mean()),
        "largest error": float(off.max()),
        "in standard errors": float((off / standard).max()),
        "bias": float(errors.mean()),
        "rank correlation": float(spearmanr(truths, risks)[0]) if ordered else None,  # pyright: ignore
        "withheld": 1 - sum(e.estimates[source].calibrated for e in able) / max(1, len(able)),
    }


def looked(settings: Settings, rounds: Sequence[int]) -> tuple[list[Look], list[dict[str, object]]]:
    """Play a federation, and look at all clusters before these rounds, without acting."""
    run = build_run(_with_source(settings, "shadow"))  # with a pool, as shadows need one

    def parts(source: str) -> BuiltRun:
        return replace(run, config=_with_source(settings, source))

    blind = parts("none").with_clients(run.population.clients)
    algorithm, clients = blind.algorithm, blind.no_clients.among(run.population.clients)
    state, looks = algorithm.init(run.streams), list[Look]()
    teams = {source: risk_measurement(parts(source), state.clusters) for source in SOURCES}
    for t in range(max(rounds)):
        state = algorithm.round(state, clients, run.streams.at("round", t)).state
        for target in targets(state, {c.handle: c for c in run.population.clients}):
            if state.round_index not in rounds:
                break
            estimates: dict[str, RiskEstimate] = {}
            streams = run.streams.at("round", target.round_index, "red team")
            for source, team in teams.items():
                assert isinstance(team, RedTeamed)
                seen = replace(target, states=state.states)
                assessment = team.look(seen, streams.at(target.cluster))
                estimates[source] = assessment.estimate
                if assessment.state is not None:
                    state = state.with_state(assessment.state)
            looks += _look(run, target, estimates)
    return looks, [*_controls(run, state.clusters)]


def _look(
    run: BuiltRun, target: covey.Target, estimates: Mapping[str, RiskEstimate]
) -> Iterator[Look]:
    """Yield a look, if there is a truth: of a model that diverged there is none."""
    at = run.streams.at("round", target.round_index, "audit", target.cluster)
    truth = true_risk(run.engine, target.params, target.members, run.reference, at)
    diverged = any(estimate.diverged for estimate in estimates.values())
    if not truth.is_known or diverged:
        return
    size = sum(len(client.train) for client in target.members)
    matchable = size + MIN_RECORDS <= len(run.population.pool)
    yield Look(truth.risk, truth.standard_error, matchable, estimates)


def positive_control(
    engine: Engine, start: Params, recipe: Recipe, examples: Examples, streams: Streams
) -> RiskEstimate:
    """Attack a model that learnt random labels of half of the examples by heart.

    Nothing but memory helps with random labels, so the risk must be well above 0.5 if
    the recipe trains for long enough to fit them; an attack that misses it is broken.
    """
    generator = streams.at("labels").generator()
    labels = torch.from_numpy(generator.permutation(examples.labels.numpy()))
    members, others = random_halves(replace(examples, labels=labels), generator)
    job = TrainingJob(start, members, streams.at("training"), recipe)
    (trained,) = engine.train([job])
    return attacked(engine, trained, (members, others), streams)


def _controls(run: BuiltRun, clusters: Sequence[Params]) -> Iterator[dict[str, object]]:
    unseen, streams = (Examples.joined(run.reference.by_group), run.streams.at("controls"))
    few = unseen.first(min(len(unseen), LEARNT))
    learnt = positive_control(run.engine, run.init(streams), BY_HEART, few, streams)
    known = {"random labels": learnt}
    for j, params in enumerate(clusters):
        control = negative_control(run.engine, params, unseen, streams.at(j))
        known[f"unseen halves, cluster {j}"] = control
    for name, estimate in known.items():
        off = (estimate.risk - 0.5) / estimate.standard_error
        passed = off > 3 if name == "random labels" else abs(off) <= 3
        yield {"control": name, "risk": estimate.risk, "passed": passed}


def _with_source(settings: Settings, source: str) -> covey.Config:
    return covey.Config.of({**settings, "risk": {"name": source}})
