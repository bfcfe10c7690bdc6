"""covey from Python: the same runs, with a model and data that live in the program."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import isroutine
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn

from covey.api.pages import in_notebook, live_line
from covey.api.parts import built_for, reference_of
from covey.api.pruning import delete_run
from covey.api.run import Run
from covey.api.sweeps import Sweep, check_variant, concluded_sweep, variants_of
from covey.base.arguments import in_range, place, usable
from covey.base.components import Count, Positive, reference
from covey.base.errors import ConfigError, DataError, user_function
from covey.base.history import History
from covey.base.names import ClientName, unknown
from covey.data.sets import PassedClients
from covey.models.build import PassedModel
from covey.report.clients import describe_emptiness, diverged_sentences
from covey.runs.auditing import is_finished
from covey.runs.evaluation import OnRound
from covey.runs.folder import RunFolder
from covey.runs.reading import describe_reached
from covey.runs.session import Observer
from covey.settings.clients import Overrides
from covey.settings.load import Config, config_of
from covey.settings.run import BuiltRun
from covey.settings.schema import StoppingConfig


class EarlyStopping(StoppingConfig):
    """When a run ends early: `[stopping]` of the settings, which it stands in for.

    >>> covey.run(model, clients, stop=covey.EarlyStopping(patience=3))
    """

    figure: str = "accuracy"


Clients = Any
"""One entry per client, by name or in a list, or a partitioner: see `covey.data`."""
ModelOrFactory = Callable[[], nn.Module] | nn.Module
Exist = Literal["error", "resume", "overwrite"]


def run(  # noqa: PLR0913 - most have defaults
    model: ModelOrFactory | None = None,
    clients: Clients | None = None,
    config: Config | Mapping[str, Any] | None = None,
    out: str | Path = "runs/python",
    observe: Observer = lambda _: None,
    *,
    thresholds: Mapping[ClientName, float] | None = None,
    risk_weights: Mapping[ClientName, float] | None = None,
    on_round: OnRound | None = None,
    stop: EarlyStopping | None = None,
    exist: Exist = "error",
    progress: bool | None = None,
) -> Run:
    """Start a run in a new folder and play it to its end.

    A model or clients that can be imported are recorded as `package.module:name`, so that
    the command line finds them later; anything else is in this program only.

    Args:
        model: builds a fresh module; its class scores come out of `forward`, as logits
            or log-probabilities; for several labels a logit each; for a number one
            output; for tokens (batch, tokens, classes). Or a module: it is copied, and its
            weights are every cluster's start. None: the network that the settings name.
        clients: data per client, a dict by name or a list: (inputs, labels) as tensors
            or arrays, a table with a column of labels (`data.label`), a map-style data
            set of torch or Hugging Face, a dict of columns, or a pair (train, test) of
            these, whose test is the client's holdout; or a function that returns them.
            Inputs that are a dict or a tuple of arrays are several arguments of `forward`.
            uint8 are images, whole numbers stay whole (ids for an embedding), all else is
            float32; labels are those of `model.task`. Every item is read once. None: the
            data set that the settings name.
        config: the settings, or a dict of them, nested or by `section.key`.
        out: the new run's folder.
        observe: called with the run so far: before the first round, after every one, and
            at the end.
        thresholds: risk threshold by client, in [0, 1]; others as the settings say.
        risk_weights: weight on the risk by client, in [0, 1]; others as the settings say.
        on_round: called once with each round that is recorded, as `covey.RoundMetrics`. What
            it raises stops the run, as Ctrl-C does: `covey.resume` goes on after the round.
        stop: when the run ends early, with the final audit that a run of so many rounds
            has; None: as the settings say.
        exist: what becomes of a run that is in the folder already. "resume": it is carried
            on, if its settings and data are these. "overwrite": it is deleted, unless it is
            being written, holds proofs, or somebody in it waits for an answer. A folder
            that is no run is never touched.
        progress: whether the newest round is shown in one live line; None: in a notebook
            alone.

    Raises:
        CoveyError: something does not fit; nothing was written.
    """
    settings = config_of(config)
    if stop is not None:
        settings = settings.with_settings({"stopping": stop.model_dump()})
    named, overrides = _recorded_as(model, clients, settings)
    preferring = replace(overrides, thresholds=thresholds, risk_weights=risk_weights)
    path = place("out", out)
    assembled = built_for(RunFolder(path), named, preferring)
    with usable(path):
        made = _run_in(path, assembled, overrides, exist)
    return _played(made, _watched(observe, made.folder.name, progress), on_round, overrides)


def sweep(
    config: Config | Mapping[str, Any] | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | Sequence[int] = 1,
    out: str | Path = "sweeps/python",
    *,
    model: ModelOrFactory | None = None,
    clients: Clients | None = None,
) -> Sweep:
    """Play every combination of settings with every seed, and compare them pair by pair.

    Runs that are there already are not played again, and unfinished ones are resumed: as
    of `covey sweep`, whose folders these are.

    Args:
        config: the settings, as of `covey.run`.
        over: by `section.key`, the values that it takes.
        seeds: how many, from 0; or which.
        out: the sweep's folder, with a run in each folder inside it.
        model: as of `covey.run`.
        clients: the same.

    Raises:
        CoveyError: something does not fit, or a folder holds another run.
    """
    settings, root, axes = config_of(config), place("out", out), list((over or {}).items())
    for key, values in axes:
        several: Any = values
        if isinstance(values, str | bytes) or not isinstance(several, Sequence) or not values:
            raise ConfigError(
                f"over must list values of {key}, found {values!r}: pass over={{{key!r}: [...]}}."
            )
    which = seeds if isinstance(seeds, Sequence) else range(in_range("seeds", seeds, Positive))
    if isinstance(seeds, str | bytes) or not which:
        raise ConfigError(f"seeds must be how many, or which, found {seeds!r}: pass seeds=3.")
    wanted = [in_range("seeds", seed, Count) for seed in which]
    variants = variants_of(lambda pairs: settings.changed(dict(pairs)), axes, wanted)
    for name, variant in variants.items():
        folder = RunFolder(root / name)
        with usable(root):
            check_variant(folder, _recorded_as(model, clients, variant)[0])
        if not is_finished(folder.path):
            run(model, clients, variant, folder.path, exist="resume")
    return concluded_sweep(root, variants, [key for key, _ in axes])


def resume(
    folder: str | Path,
    model: ModelOrFactory | None = None,
    clients: Clients | None = None,
    observe: Observer = lambda _: None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    on_round: OnRound | None = None,
    progress: bool | None = None,
) -> Run:
    """Carry a run on to its end, with the model and clients it was started with.

    Args:
        folder: the run's.
        model: what the run was started with, if that was passed by a program.
        clients: the same.
        observe: as of `covey.run`.
        config: the same: settings in which parts of the program's own stand.
        on_round: as of `covey.run`; rounds that were recorded before are not passed again,
            but for those that are played anew as a client left (`RoundMetrics.again`).
        progress: as of `covey.run`.
    """
    watched = _watched(observe, place("folder", folder).name, progress)
    passed = Overrides(model, clients, parts=None if config is None else config_of(config))
    return _played(load(folder, model, clients, config), watched, on_round, passed)


def _played(run: Run, observe: Observer, on_round: OnRound | None, overrides: Overrides) -> Run:
    """Play a run to its end; warn of models that failed, and say how a stopped run goes on."""
    try:
        run.resume(observe, on_round=on_round)
    except KeyboardInterrupt:
        passed = {"model": overrides.model, "clients": overrides.clients, "config": overrides.parts}
        again = (f"{name}=..." for name, value in passed.items() if value is not None)
        call = f"covey.resume({', '.join([repr(str(run.folder)), *again])})"
        reached = describe_reached(RunFolder(run.folder))
        raise KeyboardInterrupt(f"stopped {reached}; continue: {call}") from None
    empty = describe_emptiness(run.history, RunFolder(run.folder).config().stopping.empty_rounds)
    for sentence in filter(None, (empty, *diverged_sentences(run.history))):
        warnings.warn(f"{run.folder}: {sentence}", RuntimeWarning, stacklevel=3)
    return run


def load(
    folder: str | Path,
    model: ModelOrFactory | None = None,
    clients: Clients | None = None,
    config: Config | Mapping[str, Any] | None = None,
    *,
    trust_code: bool = False,
    trust_servers: bool = False,
) -> Run:
    """Return a run, finished or not.

    Args:
        folder: the run's.
        model: what the run was started with, if that was passed by a program. It is
            needed to play rounds or to measure models, and for nothing else.
        clients: the same.
        config: the same: settings in which parts of the program's own stand, such as a
            loss that no module has. Of all else the run's own settings count.
        trust_code: allow, from now on, the code that the settings name as it is now, in a
            folder that you did not begin there.
        trust_servers: the same of the database, cluster and trackers that they name.

    Raises:
        CoveyError: there is no run, or other parts stand in the settings.
    """
    path = place("folder", folder)
    with usable(path):
        existing = RunFolder.existing(path)
    if trust_code:
        existing.allow_code()
    if trust_servers:
        existing.allow_servers()
    overrides = _overrides(model, clients)
    if config is not None:
        overrides = replace(overrides, parts=config_of(config))
    return Run(path, overrides)


def _watched(observe: Observer, title: str, progress: bool | None) -> Observer:  # noqa: FBT001
    """Return what is called with the run's history, and shows it if it is to be shown."""
    if not (in_notebook() if progress is None else progress):
        return observe
    show = live_line(title)

    def both(history: History) -> None:
        show(history)
        observe(history)

    return both


def _run_in(path: Path, parts: BuiltRun, overrides: Overrides, exist: Exist) -> Run:
    """Return the run of a folder, a new one unless one is there to be carried on.

    Raises:
        RunError: something is there that must stay.
        ConfigError: `exist` is none of its values.
    """
    if exist not in get_args(Exist):
        raise ConfigError(unknown("exist", exist, get_args(Exist)))
    if exist == "resume" and RunFolder(path).config_path.is_file():
        return Run(path, overrides, parts)
    if exist == "overwrite":
        delete_run(path)
    return Run.begin(path, parts, overrides)


def _overrides(model: ModelOrFactory | None, clients: Clients | None) -> Overrides:
    if isroutine(clients) or isinstance(clients, partial):
        clients = user_function("function of clients", clients, DataError)()
    return Overrides(model, clients)


def _recorded_as(
    model: ModelOrFactory | None, clients: Clients | None, settings: Config
) -> tuple[Config, Overrides]:
    """Return the settings as a run records them, and what it does not find by them."""
    data = reference_of(clients)
    if data is not None:  # read as any later process will read them
        settings, clients = settings.naming(data=data), None
    overrides = _overrides(model, clients)
    return _named(settings, overrides, reference_of(model)), overrides


def _named(config: Config, overrides: Overrides, model: str | None) -> Config:
    """Write into the settings what a program passes by hand, by name where it has one."""
    if overrides.clients is not None:
        config = config.naming(data=reference(PassedClients()))
    if overrides.model is None:
        return config
    return config.naming(model=model or reference(PassedModel()))
