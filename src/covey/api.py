"""covey from Python: the same runs, with a model and data that live in the program."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import isroutine
from pathlib import Path
from typing import Any

from torch import nn

from covey.build import Overrides, build_run
from covey.build.plugins import user_function
from covey.components.registry import reference
from covey.config import Config, config_of
from covey.data import examples_of
from covey.data.sets.passed import PassedClients
from covey.errors import DataError
from covey.membership import Scorer
from covey.models.passed import PassedModel
from covey.runs import Run, reference_of, run_to_end
from covey.runtime import DEFAULT_ATTACKS, Observer, RunFolder
from covey.runtime.verification import verify
from covey.types import ClientName

__all__ = [
    "Run",
    "audit",
    "audit_epsilon",
    "examples_of",
    "game",
    "load",
    "resume",
    "run",
    "verify",
]

Clients = Any
"""One entry per client, by name or in a list, or a partitioner: see `covey.data`."""
Model = Callable[[], nn.Module] | nn.Module


def run(  # noqa: PLR0913 - nobody gives all of them
    model: Model | None = None,
    clients: Clients | None = None,
    config: Config | Mapping[str, Any] | None = None,
    out: str | Path = "runs/python",
    observe: Observer = lambda _: None,
    *,
    thresholds: Mapping[ClientName, float] | None = None,
    risk_weights: Mapping[ClientName, float] | None = None,
) -> Run:
    """Start a run in a new folder and play it to its end.

    A model or clients that can be imported are recorded as `package.module:name`, so that
    the command line finds them later; anything else lives in this program only.

    Args:
        model: builds a fresh module; its class scores come out of `forward`, as logits
            or log-probabilities; for several labels a logit each; for a number one
            output. Or a module: it is copied, and its weights are every cluster's start.
            None: the network that the settings name.
        clients: data per client, a dict by name or a list: (inputs, labels) as tensors
            or arrays, a table with a column of labels (`data.label`), a map-style data
            set of torch or Hugging Face, a dict of columns, or a pair (train, test) of
            these, whose test is the client's holdout; or a function that returns them.
            uint8 are images, whole numbers stay whole (ids for an embedding), all else is
            float32; labels are those of `model.task`. Every item is read once. None: the
            data set that the settings
            name.
        config: the settings, or a dict of them, nested or by `section.key`.
        out: the new run's folder.
        observe: called after every round.
        thresholds: risk threshold by client, in [0, 1]; others as the settings say.
        risk_weights: weight on the risk by client, in [0, 1]; others as the settings say.

    Raises:
        CoveyError: something does not fit; nothing was written.
    """
    settings, data = config_of(config), reference_of(clients)
    if data is not None:  # read as any later process will read them
        settings, clients = _with(settings, data=data), None
    overrides = _overrides(model, clients)
    named = _named(settings, overrides, reference_of(model))
    stated = replace(overrides, thresholds=thresholds, risk_weights=risk_weights)
    assembled = build_run(named, stated)
    folder = RunFolder.create(Path(out), assembled.config)
    answered = run_to_end(assembled, folder, observe)
    made = Run(folder.path, overrides)
    made.answered = answered
    return made


def resume(
    folder: str | Path,
    model: Model | None = None,
    clients: Clients | None = None,
    observe: Observer = lambda _: None,
) -> Run:
    """Carry a run on to its end, with the model and clients it was started with."""
    return load(folder, model, clients).resume(observe)


def load(
    folder: str | Path,
    model: Model | None = None,
    clients: Clients | None = None,
) -> Run:
    """Return a run, finished or not.

    Args:
        folder: the run's.
        model: what the run was started with, if that was passed by a program. It is
            needed to play rounds or to measure models, and for nothing else.
        clients: the same.

    Raises:
        RunError: there is no run.
    """
    return Run(Path(folder), _overrides(model, clients))


def audit(  # noqa: PLR0913 - the last three have defaults that a run does not need
    folder: str | Path,
    attacks: Sequence[str | Scorer] = DEFAULT_ATTACKS,
    references: int = 4,
    model: Model | None = None,
    clients: Clients | None = None,
    *,
    observe: Callable[[int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Attack every final cluster model of a finished run.

    Args:
        folder: the run's; `audit/` in it is written anew.
        attacks: names as `covey audit --attack` takes them, or attacks with options.
            Your own is `package.module:name`, a function that takes `Signals` and returns
            a score per record, or a `covey.Attack`.
        references: federations of the run's own recipe, played again per cluster.
        model: what the run was started with, if that was passed by a program.
        clients: the same.
        observe: called with a cluster and how many of its references have been played.

    Returns:
        What audit.json holds. Figures are over records, with 95% intervals.

    Raises:
        CoveyError: something does not fit.
    """
    return load(folder, model, clients).audit(attacks, references, observe)


def audit_epsilon(
    folder: str | Path,
    model: Model | None = None,
    clients: Clients | None = None,
    draws: int = 10_000,
) -> dict[str, Any]:
    """Put a run's noise to the test: is one release's epsilon really delivered?

    Args:
        folder: the run's; nothing is written to it, and of its models nothing is read.
        model: what the run was started with, if that was passed by a program.
        clients: the same.
        draws: releases with a canary, and as many without.

    Returns:
        The accounted epsilon, and the one up to which all are refuted.

    Raises:
        CoveyError: the run adds no noise that is accounted for.
    """
    return load(folder, model, clients).audit_epsilon(draws)


def game(
    folder: str | Path,
    model: Model | None = None,
    clients: Clients | None = None,
    *,
    control: bool = False,
    observe: Observer = lambda _: None,
) -> dict[str, Any]:
    """Play the participation game on a finished run: who can tell who took part?

    Args:
        folder: the run's; nothing is written to it.
        model: what the run was started with, if that was passed by a program.
        clients: the same.
        control: play the run once more without up to 5 participants, and ask about them
            in both runs. It takes as long as the run did.
        observe: called after every round of the control.

    Returns:
        AUCs with 95% intervals over clients: of participants, and of those who left
        ("left", or None and "left_reason"), against reserved clients.

    Raises:
        CoveyError: something does not fit.
    """
    return load(folder, model, clients).game(control=control, observe=observe)


def _overrides(model: Model | None, clients: Clients | None) -> Overrides:
    if isroutine(clients) or isinstance(clients, partial):
        clients = user_function("function of clients", clients, DataError)()
    return Overrides(model, clients)


def _named(config: Config, overrides: Overrides, model: str | None) -> Config:
    """Write into the settings what a program passes by hand, by name where it has one."""
    if overrides.clients is not None:
        config = _with(config, data=reference(PassedClients()))
    if overrides.model is None:
        return config
    return _with(config, model=model or reference(PassedModel()))


def _with(config: Config, **names: str) -> Config:
    settings = config.model_dump()
    for section, name in names.items():
        settings[section]["name"] = name
    return Config.of(settings)
