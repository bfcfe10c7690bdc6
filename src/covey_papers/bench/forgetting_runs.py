"""One seed of a federation: it meets the leaver, answers it, and never met it."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from covey.build import BuiltRun, Overrides, build_run
from covey.checkpoints import checkpoint_paths
from covey.config import Config
from covey.data import Examples
from covey.engine import ScoringJob
from covey.heads import ClusterSums
from covey.membership import logit
from covey.params import flatten, model_hash
from covey.runs import Run
from covey.runtime import RunFolder, client_plans, forget, load_state, run_rounds
from covey.types import Params
from covey_papers.bench.forgetting_data import (
    LEAVER,
    TOGETHER,
    ForgettingSet,
    forgetting_data,
)

__all__ = ["Answered", "SeedResult", "Seen", "never_met", "seed_result"]


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


@dataclass(frozen=True, slots=True)
class Answered:
    """What an answer left.

    Attributes:
        answer: the one that was given.
        from_round: that it played again first; None: none.
        weights_apart: the largest difference of a weight from that one.
        sums_tell: whether sums over clients before, less those after, have the exact
            share of each label among the leaver's; None: there are no sums.
    """

    answer: str
    seen: Seen
    from_round: int | None
    weights_apart: float
    sums_tell: bool | None = None


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One seed.

    Attributes:
        never: the model that never met the leaver.
        together: answers to several leavers at once.
    """

    seed: int
    met: Seen
    never: Seen
    answers: Mapping[str, Answered]
    together: Mapping[str, Seen]


def seed_result(each: ForgettingSet, seed: int) -> SeedResult:
    """Play a federation to its end, and give its leaver each answer in turn."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        config = _config(each.settings, seed, place)
        run = build_run(config, Overrides(clients=forgetting_data().brought()))
        whole = RunFolder.create(place / "met", config)
        run_rounds(run, whole)
        never = _params_never(each, seed)
        without = {
            answer: _answered(each, answer, run, place, never)
            for answer in each.answers
        }
        together: dict[str, Seen] = {}
        for answer in each.together:
            own = place / f"together-{answer}"
            shutil.copytree(whole.path, own)
            forget(run, RunFolder(own), list(TOGETHER), answer)
            together[answer] = _seen(run, Run(own).params(0))
        met = _seen(run, Run(whole.path).params(0))
        return SeedResult(seed, met, _seen(run, never), without, together)


def never_met(each: ForgettingSet, seed: int) -> Seen:
    """Return the model of a federation that never met the leaver."""
    run = build_run(_config(each.settings, seed), _without_leaver())
    return _seen(run, _params_never(each, seed))


def _answered(
    each: ForgettingSet, answer: str, run: BuiltRun, place: Path, never: Params
) -> Answered:
    """Give one answer, in a copy of the run."""
    own = place / answer
    shutil.copytree(place / "met", own)
    if answer in each.changed:
        settings = {**each.settings, **each.changed[answer]}
        config = _config(settings, run.config.seed, place)
        (own / "config.toml").write_text(config.toml(), encoding="utf-8")
        run = build_run(config, Overrides(clients=forgetting_data().brought()))
    given = _possible(run, RunFolder(own), answer)
    option = forget(run, RunFolder(own), [LEAVER], given)[1][0].answered.option
    found = Run(own).params(0)
    apart = flatten(found) - flatten(never)
    return Answered(
        option.answer,
        _seen(run, found),
        option.first_replayed_round,
        float(apart.abs().max()),
        _sums_tell(place / "met", own) if given == "subtract" else None,
    )


def _sums_tell(before: Path, after: Path) -> bool:
    """Say whether the states before and after have the leaver's labels between them."""
    one, other = (
        load_state([*checkpoint_paths(RunFolder(each).checkpoints)][-1])[0]
        .kept(ClusterSums)
        .sums[0]
        for each in (before, after)
    )
    told = (one.targets - other.targets)[-1]  # of the feature that is always 1
    own = forgetting_data().clients[LEAVER].labels
    counts = torch.bincount(own, minlength=len(told))
    return bool((told * len(own) == counts * told.sum()).all() and told.sum() > 0)


def _possible(run: BuiltRun, folder: RunFolder, answer: str) -> str:
    """Return this answer; a denial where no set became too small to be rolled back."""
    (plan,) = client_plans(run, folder, [LEAVER], "auto")
    known = {option.answer: option.possible for option, _ in plan.options}
    return "deny" if answer == "roll_back" and not known[answer] else answer


def _params_never(each: ForgettingSet, seed: int) -> Params:
    """Play the same seed without the leaver; nothing is written."""
    run = build_run(_config(each.settings, seed), _without_leaver())
    state, clients = run.strategy.init(run.streams), run.population.clients
    for t in range(run.config.rounds):
        streams = run.streams.at("round", t)
        state = run.strategy.play_round(state, run.clients(clients, t), streams).state
    return state.clusters[0]


def _without_leaver() -> Overrides:
    return Overrides(clients=forgetting_data().brought(frozenset({LEAVER})))


def _config(
    settings: Mapping[str, Any], seed: int, place: Path | None = None
) -> Config:
    key = {} if place is None else {"key_path": str(place / "key.pem")}
    secrets = {"source": "seeded", **key}
    return Config.of({**settings, "seed": seed, "secrets": secrets})


def _seen(run: BuiltRun, params: Params) -> Seen:
    known = forgetting_data()
    own = _log_probs(run, params, known.clients[LEAVER])
    fresh = _log_probs(run, params, known.fresh)
    test = _log_probs(run, params, known.test)
    right = test.argmax(axis=1) == known.test.labels.numpy()
    return Seen(
        tuple(logit(own, known.clients[LEAVER].labels.numpy()).tolist()),
        tuple(logit(fresh, known.fresh.labels.numpy()).tolist()),
        tuple(np.exp(test).mean(axis=0).tolist()),
        float(right.mean()),
        model_hash([params]),
    )


def _log_probs(run: BuiltRun, params: Params, examples: Examples) -> np.ndarray:
    (scored,) = run.engine.score([ScoringJob(params, examples)])
    assert scored.log_probs is not None  # digits are classes  # noqa: S101
    return scored.log_probs.to(torch.float64).numpy()
