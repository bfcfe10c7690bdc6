"""What a run is made of, from what is at hand: all of it, or what its folder records."""

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from covey.base.component_names import PASSED, is_missing, pass_again
from covey.base.components import Component, Unread, components_in
from covey.base.errors import ConfigError, CoveyError, ModelError, RunError
from covey.base.names import BASES, Basis, ClientName
from covey.base.own_code import only_from
from covey.data.arrays import read_client
from covey.ledger.store import Ledger
from covey.models.build import NETWORKS
from covey.runtime.folder import FederationMetadata, RunFolder
from covey.runtime.inputs import rebuilt_run
from covey.runtime.planning import RecordedRun, Returning, recorded_run, unplayed_reason
from covey.runtime.session import Session
from covey.runtime.states import load_state, newest_whole_state
from covey.settings.clients import Overrides
from covey.settings.load import Config
from covey.settings.run import BuiltRun
from covey.unlearning.plan import ANSWERS
from covey.unlearning.requests import ClientPlan


def playable(folder: RunFolder, overrides: Overrides, call: str) -> BuiltRun:
    """Return a run's parts, so that rounds can be played and models measured.

    Args:
        folder: the run's.
        overrides: what a program passes again that the settings do not name.
        call: what the run is to do, as an error repeats it.

    Raises:
        CoveyError: its model or its clients' data are missing, or are others.
    """
    _pass_parts(folder, overrides)
    if missing := _missing(folder, overrides):
        passed = ", ".join(f"{each}=..." for each in missing)
        raise RunError(
            f"This needs the run's {' and '.join(missing)}, which came from a program: call "
            f"covey.load({str(folder.path)!r}, {passed}).{call} there. A run that is started with "
            f"what can be imported records it as package.module:function, and needs no program."
        )
    with only_from(folder.origins()):
        run = rebuilt_run(folder, overrides)
    _check_same_model(run, folder)
    return run


def available_parts(folder: RunFolder, overrides: Overrides, call: str) -> BuiltRun:
    """Return a run's parts; where they cannot be had, what its folder records.

    Raises:
        CoveyError: what a program passes does not fit, or nothing is recorded yet.
    """
    overridden = (overrides.model, overrides.clients, overrides.parts)
    passed = any(each is not None for each in overridden)
    try:
        return playable(folder, overrides, call)
    except CoveyError as error:
        if passed and not _missing(folder, overrides):
            raise
        return recorded_run(folder, reason=str(error))


def check_answerable(session: Session, plan: ClientPlan) -> None:
    """Refuse, before anything is done, an answer for which rounds cannot be played here.

    Raises:
        RunError: naming what has to be passed, or done first.
    """
    run, folder = session.run, session.folder
    replays = plan.chosen is not None and plan.chosen.first_replayed_round is not None
    if run.client_backend is not None and replays:
        raise RunError(
            f"The rounds of {folder.path} can be played again through its clients' nodes "
            f"only. Put the request down with `covey forget`; it is answered when the "
            f"run is carried on with `covey resume {folder.path}`."
        )
    if not isinstance(run, RecordedRun):
        return
    if replays:
        raise RunError(run.missing_reason)
    if reason := unplayed_reason(session):
        raise RunError(
            f"Before anybody can be answered, rounds of {folder.path} have to be played: "
            f"{reason}. {run.missing_reason}"
        )


def _missing(folder: RunFolder, overrides: Overrides) -> tuple[str, ...]:
    config, passed = folder.config(), {"model": overrides.model, "clients": overrides.clients}
    named = {"model": config.model, "clients": config.data}
    if FederationMetadata.of(folder) is not None:  # its clients bring their data themselves
        del named["clients"]
    missing = [
        what
        for what, component in named.items()
        if not isinstance(component, Unread) and component.is_passed and passed[what] is None
    ]
    own = any(is_missing(part.name) for _, part in _own(config))
    return (*missing, "config") if own else tuple(missing)


def _own(config: Config) -> Iterator[tuple[str, Component]]:
    """Yield what a program passed of which no import finds the name, by its setting."""
    for key, component in components_in(config):
        if component.name.startswith(PASSED):
            yield key, component


def _pass_parts(folder: RunFolder, overrides: Overrides) -> None:
    """Let a program's own parts be found again; whether they are the same is seen later.

    Raises:
        RunError: others stand in the settings, or have other options.
    """
    if overrides.parts is None:
        return
    passed = dict(_own(overrides.parts))
    for key, part in _own(folder.config()):
        again, options = passed.get(key), part.own_settings()
        if again is None or again.own_settings() != options:
            actual = "no part" if again is None else f"{again.name} {again.own_settings()}"
            raise RunError(
                f"{key} must be the part that began the run in {folder.path}, {part.name} "
                f"{options}, found {actual}. Pass the settings with which it was started."
            )
        pass_again(part.name, again.name)


def _check_same_model(run: BuiltRun, folder: RunFolder) -> None:
    """Refuse a user's model whose parameters are not those of the run's states."""
    if run.config.model.name in NETWORKS or not Ledger.exists(folder.ledger):
        return
    with Ledger.read(folder.ledger) as ledger:
        newest = newest_whole_state(folder.checkpoints, ledger)
    if newest is None:
        return
    before, now = (
        {name: tuple(value.shape) for name, value in params.items()}
        for params in (load_state(newest)[0].clusters[0], run.init(run.streams))
    )
    if before != now:
        odd = min(before.items() ^ now.items())[0]
        raise ModelError(
            f"The model must be the one that began the run in {folder.path}, whose "
            f"{odd} has the shape {before.get(odd, 'of nothing: it has none')}, found "
            f"{now.get(odd, 'none')}. Pass the same model again."
        )


def reference_of(made: object) -> str | None:
    """Return a function or class as `package.module:name`; None if it has no such name.

    Only what is this very object when it is imported: neither a lambda, nor what stands in
    a function, in a script that was started, or in a module that no search path leads to.
    One that takes two arguments has none either: by name a model's factory gets its
    sizes, and this would be another model.
    """
    module, name = getattr(made, "__module__", None), getattr(made, "__qualname__", "")
    if not callable(made) or not isinstance(module, str) or not isinstance(name, str):
        return None
    if module in ("__main__", "__mp_main__"):
        return None
    if getattr(sys.modules.get(module), name, None) is not made or not _is_importable(module):
        return None
    try:
        takes_two = len(inspect.signature(made).parameters) == 2
    except (TypeError, ValueError):  # some builtins have no signature
        takes_two = False
    return None if takes_two else f"{module}:{name}"


def _is_importable(module: str) -> bool:
    """Say whether the search path leads to the file that the module was loaded from."""
    parent, loaded = module.rpartition(".")[0], sys.modules.get(module)
    if loaded is None or (parent and not _is_importable(parent)):
        return False
    path = list(sys.modules[parent].__path__) if parent else None
    specs = (finder.find_spec(module, path) for finder in sys.meta_path)
    spec_now, before = next((spec for spec in specs if spec is not None), None), loaded.__spec__
    return spec_now is not None and before is not None and spec_now.origin == before.origin


Who = ClientName | Returning
Several = list[ClientName] | list[Who]
Names = Who | Several | tuple[Who, ...]
"""One client or several: by name or, who has left, by name and salt."""


def wanted_answer(answer: str | None, basis: str | None) -> tuple[str, Basis]:
    """Return the answer that is wanted, and what the request rests on.

    Raises:
        ConfigError: neither of them is passed, or there is no such one.
    """
    if answer is None and basis is None:
        raise ConfigError(
            "Letting somebody leave takes an answer or the request's basis, found neither. "
            f"Give answer= auto, {', '.join(ANSWERS)}, or basis= {', '.join(BASES)}; "
            f"plan(name) shows what each answer costs."
        )
    if answer not in (None, "auto", *ANSWERS):
        raise ConfigError(f"answer takes auto, {', '.join(ANSWERS)}, found {answer!r}. Choose one.")
    basis = basis or "none"
    if basis not in BASES:
        raise ConfigError(f"basis takes {', '.join(BASES)}, found {basis!r}. Choose one.")
    return answer or "auto", basis


def listed(names: Names) -> tuple[Who, ...]:
    """Return one client or several as several, each once."""
    one = isinstance(names, str | Returning)
    several: Sequence[Who] = (names,) if one else names
    return tuple(dict.fromkeys(several))


def examples_in(data: Any) -> Any:  # noqa: ANN401 - as `clients_of` takes one client's
    """Return a client's new records; of a path, what its .npz file holds.

    Raises:
        DataError: the file is malformed.
    """
    return read_client(Path(data)) if isinstance(data, str | Path) else data
