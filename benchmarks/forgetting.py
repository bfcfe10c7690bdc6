"""What do answers take out of a model, and what do the models before and after give away?

A client, three fifths of whose 30 digits are said to be fives (half of these are not),
leaves federations of ten others, which are played from many seeds. Epsilon is how well
models after each answer can be told from models of other seeds that never met it, by the
best threshold on the confidence in one of its labels (Triantafillou et al., 2024,
arXiv:2406.09073, with single thresholds); it is read beside the control's, models that
never met it against each other. Membership: the AUC with which what examples lost of their
log-probability tells the leaver's from fresh ones like them. Label: how often the class
that became less likely is the one that it has most of.
"""

import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from sklearn.datasets import load_digits

import covey
from benchmarks.playing import note, played
from covey import Params, ScoringJob
from covey.base.params import model_hash
from covey.membership.attacks import auc, logit
from covey.settings.clients import Overrides
from covey.settings.run import BuiltRun, build_run

Settings = dict[str, Any]
LEAVER, LABEL = "client-00003", 5
OTHERS, EXAMPLES_PER_CLIENT, FRESH, TEST = 10, 30, 120, 600
OTHER_SEEDS = 1_000
"""Seeds from here on are those of models that never met the client, for comparison."""
NOTHING, NEVER, ANOTHER = "nothing removed", "never met", "retrain, from another seed"
DELTA, SPLITS = 1e-5, 1_000

BASE: Settings = {
    "rounds": 8,
    "population": {"holdout": 0.0, "audit_examples": 0},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "train": {"local_epochs": 5, "batch_size": 10, "optimizer": {"momentum": 0.9}},
    "risk": {"name": "none"},
    "engine": {"name": "vmap"},
}
SETS: Settings = {
    "name": "anonymity-sets",
    "min_anonymity": 3,
    "deniability_threshold": 2,
    "partition": "public-random",
}
FILTERS: Settings = {"filters": 20, "size": 3, "pool": 2}
PATCHES: Settings = {"name": "random-patches", **FILTERS}
RIDGE: Settings = {
    "rounds": 2,
    "model": {"name": "linear-head", "features": PATCHES},
    "method": {"name": "ridge", "num_clusters": 1, "initialisation": "random"},
    "engine": {"workers": 1},
}
FEDERATIONS: Mapping[str, tuple[Settings, tuple[str, ...]]] = {
    "anonymity sets": (BASE | {"aggregation": SETS}, ("deny", "roll_back", "retrain")),
    "stored updates": (BASE | {"leaving": {"store_updates": 1}}, ("calibrate", "retrain")),
    "ridge heads": (BASE | RIDGE, ("subtract", "retrain")),
}
"""Settings, and the answers that the leaver is given in turn, each in a run of its own."""


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--models", type=int, default=64, help="Seeds on either side.")
    parser.add_argument("--only", choices=FEDERATIONS, nargs="+", default=[*FEDERATIONS])


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a table per federation; `--quick` is ridge heads from four seeds."""
    models = 4 if chosen.quick else chosen.models
    names = ["ridge heads"] if chosen.quick else chosen.only
    return {f"{name}, {models} models": _federation(name, models) for name in names}


def _federation(name: str, models: int) -> list[dict[str, object]]:
    settings, answers = FEDERATIONS[name]
    by_model: dict[str, list[Seen]] = {}
    for seed in range(models):
        for answer, seen in seed_of(settings, answers, seed).items():
            by_model.setdefault(answer, []).append(seen)
        by_model.setdefault(ANOTHER, []).append(never_met(settings, OTHER_SEEDS + seed))
        if (seed + 1) % 8 == 0:
            note(f"{name}: {seed + 1} of {models} seeds")
    others, never = by_model[ANOTHER], by_model[NEVER]
    control = _control(_own([*never, *others]))
    rows = [_row(answer, seen, by_model) for answer, seen in by_model.items()]
    return [*rows, {**dict.fromkeys(rows[0]), "answer": "control", EPSILON: control}]


EPSILON = "mean epsilon"


def _row(
    answer: str, seen: Sequence["Seen"], by_model: Mapping[str, Sequence["Seen"]]
) -> dict[str, object]:
    others, never = by_model[ANOTHER], by_model[NEVER]
    before = never if answer == NEVER else by_model[NOTHING]
    # what never met the leaver is held to other seeds of its own kind
    after = others if answer == NEVER else seen
    compared = zip(before, after, strict=True)
    epsilon = epsilons(_own(seen), _own(others)) if answer != ANOTHER else None
    fresh = epsilons(_fresh(seen), _fresh(others)).mean() if answer != ANOTHER else None
    pairs = [(_lost(b, a), np.subtract(b.shares, a.shares)) for b, a in compared]
    return {
        "answer": answer,
        "median epsilon": None if epsilon is None else float(np.median(epsilon)),
        EPSILON: None if epsilon is None else float(epsilon.mean()),
        "on fresh": None if fresh is None else float(fresh),
        "confidence": float(_own(seen).mean() - _own(others).mean()),
        "accuracy": float(np.mean([model.accuracy for model in seen])),
        "bits of never met": sum(
            a.model_hash == b.model_hash for a, b in zip(seen, never, strict=True)
        ),
        "membership": float(np.mean([auc(*lost) for lost, _ in pairs])),
        "label": float(np.mean([_named(shares) for _, shares in pairs])),
        "membership, after alone": float(
            np.mean([auc(_log_p(a.leaver), _log_p(a.fresh)) for a in after])
        ),
        "label, after alone": float(np.mean([_named(np.array(a.shares)) for a in after])),
    }


@dataclass(frozen=True, slots=True)
class Seen:
    """What a model says.

    Attributes:
        leaver: logit-scaled confidences in the labels of the leaver's examples.
        fresh: the same of examples like them that nobody has.
        shares: the mean probability of each class, on the test images.
        accuracy: on the test images.
    """

    leaver: tuple[float, ...]
    fresh: tuple[float, ...]
    shares: tuple[float, ...]
    accuracy: float
    model_hash: str


def seed_of(settings: Settings, answers: Sequence[str], seed: int) -> dict[str, Seen]:
    """Play one seed, give its leaver each answer, and play it without the leaver."""
    clients = _client_data()
    with TemporaryDirectory() as folder:
        place = Path(folder)
        config = _config(settings, seed, place)
        run = build_run(config, Overrides(clients=clients))
        met = covey.run(clients=clients, config=config, out=place / "met", progress=False)
        seen = {NOTHING: _seen(run, met.params(0))}
        for answer in answers:
            own = place / answer
            if answer == "roll_back":
                # three must stay in a set of three, so that no denial is true; same models
                larger = settings | {"aggregation": {**SETS, "deniability_threshold": 3}}
                config = _config(larger, seed, place)
                covey.run(clients=clients, config=config, out=own, progress=False)
            else:
                shutil.copytree(place / "met", own)
            own_run = covey.load(own, clients=clients, trust_servers=True)  # a copy, with our key
            known = {o.answer: o.possible for o in own_run.plan(LEAVER).options}
            # where every set stays large enough, nothing calls for a roll back
            own_run.forget(LEAVER, answer if known[answer] else "deny")
            seen[answer] = _seen(run, own_run.params(0))
    seen[NEVER] = never_met(settings, seed)
    return seen


def never_met(settings: Settings, seed: int) -> Seen:
    """Return the model of a federation without the leaver."""
    run = build_run(_config(settings, seed), Overrides(clients=_client_data(LEAVER)))
    return _seen(run, played(run).clusters[0])


def _config(settings: Settings, seed: int, place: Path | None = None) -> covey.Config:
    key = {} if place is None else {"key_path": str(place / "key.pem")}
    return covey.Config.of({**settings, "seed": seed, "secrets": {"source": "seeded", **key}})


def epsilons(unlearned: ndarray, retrained: ndarray, delta: float = DELTA) -> ndarray:
    """Return each example's epsilon, by the best threshold on its confidence.

    epsilon = max over attacks of ln((1 - delta - FPR) / FNR), ln((1 - delta - FNR) / FPR)

    An attack says "unlearned" above a threshold, or below it; one with errors of one kind
    alone is left out. Sides without overlap count as the most that so many models show.
    """
    ceiling = np.log(min(len(unlearned), len(retrained)) - 1)
    values = np.concatenate([unlearned, retrained])
    above = (unlearned[None] > values[:, None]).mean(axis=1)
    wrong = (retrained[None] > values[:, None]).mean(axis=1)
    fpr = np.concatenate([wrong, 1 - wrong])
    fnr = np.concatenate([1 - above, above])
    separated = ((fpr == 0) & (fnr == 0)).any(axis=0)
    mixed = (fpr > 0) & (fnr > 0)

    def ratio(over: ndarray, under: ndarray) -> ndarray:
        usable = mixed & (over > 0)
        return np.log(np.where(usable, over, 1.0)) - np.log(np.where(usable, under, 1.0))

    ratios = np.maximum(ratio(1 - delta - fpr, fnr), ratio(1 - delta - fnr, fpr))
    return np.where(separated, ceiling, np.clip(ratios.max(axis=0), 0.0, ceiling))


def _control(never: ndarray) -> tuple[float, float]:
    """Return between which mean epsilons 99% of random halves of these models lie."""
    draws, half = covey.Streams(0).at("halves").generator(), len(never) // 2
    means: list[float] = []
    for _ in range(SPLITS):
        order = draws.permutation(len(never))
        one, other = never[order[:half]], never[order[half : 2 * half]]
        means.append(float(epsilons(one, other).mean()))
    low, high = np.quantile(means, [0.005, 0.995])
    return float(low), float(high)


def _lost(before: Seen, after: Seen) -> tuple[ndarray, ndarray]:
    """Return what examples lost of their log-probability: the leaver's, then fresh ones."""
    return (
        _log_p(before.leaver) - _log_p(after.leaver),
        _log_p(before.fresh) - _log_p(after.fresh),
    )


def _log_p(confidences: Sequence[float]) -> ndarray:
    """Return log p of log(p / (1 - p))."""
    return -np.logaddexp(0.0, -np.array(confidences))


def _named(shares: ndarray) -> float:
    """Return whether the leaver's class has the largest share; of ties, the chance."""
    largest = shares == shares.max()
    return float(largest[LABEL]) / float(largest.sum())


def _own(seen: Sequence[Seen]) -> ndarray:
    return np.array([model.leaver for model in seen])


def _fresh(seen: Sequence[Seen]) -> ndarray:
    return np.array([model.fresh for model in seen])


def _seen(run: BuiltRun, params: Params) -> Seen:
    clients, fresh, test = data()

    def log_probs(examples: covey.Examples) -> ndarray:
        (scored,) = run.engine.score([ScoringJob(params, examples)])
        assert scored.log_probs is not None  # digits are classes
        return scored.log_probs.to(torch.float64).numpy()

    def confidence(examples: covey.Examples) -> tuple[float, ...]:
        return tuple(logit(log_probs(examples), examples.labels.numpy()).tolist())

    log_probabilities = log_probs(test)
    right = log_probabilities.argmax(axis=1) == test.labels.numpy()
    return Seen(
        confidence(clients[LEAVER]),
        confidence(fresh),
        tuple(np.exp(log_probabilities).mean(axis=0).tolist()),
        float(right.mean()),
        model_hash([params]),
    )


def _client_data(without: str = "") -> dict[str, Any]:
    clients = data()[0].items()
    return {name: (e.inputs, e.labels) for name, e in clients if name != without}


@cache
def data() -> tuple[Mapping[str, covey.Examples], covey.Examples, covey.Examples]:
    """Deal the digits: to clients, as fresh ones like the leaver's, and for the test.

    The leaver and the fresh ones have three tenths of true fives, three tenths of others
    that are said to be fives, and four tenths of others.
    """
    pixels, labels = load_digits(return_X_y=True)
    scaled = torch.from_numpy(np.rint(pixels * (255 / 16)).astype(np.uint8))
    digits = covey.Examples(scaled.view(-1, 1, 8, 8), torch.from_numpy(labels.astype(np.int64)))
    digits = _shuffled(digits, "digits")
    fives = digits.take((digits.labels == LABEL).nonzero()[:, 0])
    rest = digits.take((digits.labels != LABEL).nonzero()[:, 0])
    odd: list[covey.Examples] = []
    for count in (EXAMPLES_PER_CLIENT, FRESH):
        few, usual = 3 * count // 10, 4 * count // 10
        false = covey.Examples(rest.inputs[:few], torch.full((few,), LABEL))
        own = [fives.first(few), false, _part(rest, few, usual)]
        odd.append(covey.Examples.joined(own))
        fives = _part(fives, few, len(fives))
        rest = _part(rest, few + usual, len(rest))
    left = _shuffled(covey.Examples.joined([fives, rest]), "others")
    dealt = iter([_part(left, i * EXAMPLES_PER_CLIENT, EXAMPLES_PER_CLIENT) for i in range(OTHERS)])
    names = [f"client-{i:05d}" for i in range(OTHERS + 1)]
    clients = {name: odd[0] if name == LEAVER else next(dealt) for name in names}
    return clients, odd[1], _part(left, OTHERS * EXAMPLES_PER_CLIENT, TEST)


def _shuffled(examples: covey.Examples, stream: str) -> covey.Examples:
    order = covey.Streams(0).at(stream).generator().permutation(len(examples))
    return examples.take(torch.from_numpy(order))


def _part(examples: covey.Examples, first: int, count: int) -> covey.Examples:
    return examples.take(torch.arange(first, min(first + count, len(examples))))
