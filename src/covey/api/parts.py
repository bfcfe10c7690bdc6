"""What a run is made of, from what is at hand: all of it, or what its folder records.

Explaining, planning, denying and verifying need settings, ledger, states, secrets and the
names that the ledger has. Playing rounds and measuring need a model and data as well;
of a run as its folder records it they are refused.
"""

import inspect
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Never, cast

import torch

from covey.algorithms.client_requests import ClientRequest, ClientResponse
from covey.algorithms.clients import Clients, Setup
from covey.algorithms.round import RoundSteps
from covey.algorithms.run_algorithm import RunAlgorithm
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import Cohort
from covey.base.component_names import PASSED, is_derived, is_missing, may_be_part, pass_again
from covey.base.components import Component, UnloadedComponent, components_in
from covey.base.errors import ConfigError, CoveyError, ModelError, RunError
from covey.base.events import RunStarted
from covey.base.names import ANSWERS, BASES, Basis, ClientName, Handle, Params, client_name, unknown
from covey.base.rng import Streams
from covey.data.examples import Examples, Preference
from covey.data.population import absent_population
from covey.data.source import DataProfile
from covey.engine.protocol import Scored, ScoringJob, TrainingJob
from covey.engine.recipe import Recipe
from covey.leaving.planning import ClientPlan, ReturningClient, planning_config, unplayed_reason
from covey.ledger.store import Ledger
from covey.models.build import NETWORKS
from covey.models.feature_store import FeatureStore
from covey.runs.folder import FederationMetadata, RunFolder
from covey.runs.session import Session
from covey.runs.states import load_state, newest_whole_state
from covey.settings.clients import ClientReports, Overrides
from covey.settings.load import Config
from covey.settings.run import BuiltRun, build_run

NOTHING = Examples(torch.empty((0, 1)), torch.empty(0, dtype=torch.int64))


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
        passed = ", ".join(f"{parameter}=..." for parameter in missing)
        raise RunError(
            f"The run's {' and '.join(missing)} must come from a program, found none: call "
            f"covey.load({str(folder.path)!r}, {passed}).{call} there. What can be imported is "
            f"recorded as package.module:function, and needs none."
        )
    run = _rebuilt(folder, overrides)
    _check_same_model(run, folder)
    return run


def built_for(folder: RunFolder, config: Config, overrides: Overrides | None = None) -> BuiltRun:
    """Return a run's parts; features of a user's network are kept in this folder, once it is one.

    Raises:
        CoveyError: some part does not fit; nothing has been written.
    """
    store = FeatureStore.at(folder.features)
    return build_run(config, replace(overrides or Overrides(), features=store))


def _rebuilt(folder: RunFolder, overrides: Overrides) -> BuiltRun:
    """Return a run's parts again; the clients of a federation are out of reach."""
    roster = FederationMetadata.of(folder)
    if roster is None or roster.profile is None:
        return built_for(folder, folder.checked_config(), overrides)
    _, names = _known(folder)
    if not names:
        raise _unknown(folder)
    unreachable = Unreachable(roster.profile, names.values())
    passed = Overrides(model=overrides.model, client_backend=unreachable)
    return build_run(folder.checked_config(), passed)


def _known(folder: RunFolder) -> tuple[RunStarted | None, dict[Handle, ClientName]]:
    """Return how a run began, and the clients that it knows."""
    if not Ledger.exists(folder.ledger):
        return None, {}
    with Ledger.read(folder.ledger) as ledger:
        return folder.reader.read(ledger).history.started, ledger.names()


def _unknown(folder: RunFolder) -> RunError:
    return RunError(
        f"{folder.path} must know its clients, found none yet: run covey resume {folder.path}"
    )


class Unreachable:
    """A federation of which no node is there: enough to read its run, and to deny.

    Args:
        profile: what the clients' data look like.
        names: the clients of the run.
    """

    def __init__(self, profile: DataProfile, names: Collection[ClientName]) -> None:
        self.profile = profile
        self._names = names

    def available_clients(self) -> Collection[ClientName]:
        """Return the clients of the run; none of them gets a request."""
        return self._names

    def gather(self, *_: object) -> Collection[ClientName]:
        """Return the clients of the run."""
        return self._names

    def send(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Refuse.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"To {request.task}, {len(cohort)} clients must be reached through their nodes, found "
            f"no way to them here: carry the run on with `covey resume`."
        )

    def reports(self) -> ClientReports:
        """Return nothing."""
        return ClientReports()

    def keys(self) -> None:
        """Say that nothing is known of their keys here."""


def available_parts(folder: RunFolder, overrides: Overrides, call: str) -> BuiltRun:
    """Return a run's parts; where they cannot be had, what its folder records.

    Raises:
        CoveyError: what a program passes does not fit, or nothing is recorded yet.
    """
    overridden = (overrides.model, overrides.clients, overrides.parts)
    passed = any(value is not None for value in overridden)
    try:
        return playable(folder, overrides, call)
    except CoveyError as error:
        if passed and not _missing(folder, overrides):
            raise
        return recorded_run(folder, reason=str(error))


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedRun(BuiltRun):
    """A run that can be read and answered from, and not be played.

    Its clients are known by name, handle and what they accept; their examples are not.

    Attributes:
        missing_reason: what is said to who asks for more: a whole message.
        had_data: whether the server had the clients' examples when the run began.
    """

    missing_reason: str
    had_data: bool

    @cached_property
    def algorithm(self) -> RunAlgorithm:
        """Its algorithm, which has no model to begin with."""
        clients, rounds = self.population.clients, self.config.rounds
        return RunAlgorithm(self.config.method, Setup(self.init, clients, rounds))

    @cached_property
    def no_clients(self) -> Clients:
        """Clients that are sent nothing."""
        federation, refuse = Simulated(self.engine, Recipe()), _MissingModel(self.missing_reason)
        return Clients((), federation, RoundSteps(refuse.refuse), self.algorithm.setup)

    @cached_property
    def data_hash(self) -> str | None:
        """Unknown, where there were examples."""
        return None if self.had_data else ""


@dataclass(frozen=True, slots=True)
class _MissingModel:
    """Stands for a model that is not here: whatever needs it is refused."""

    reason: str

    def refuse(self, *_: object) -> Never:
        """Refuse to draw, train or score a model.

        Raises:
            RunError: always.
        """
        raise RunError(self.reason)

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Refuse to train; no jobs need no training."""
        return iter(()) if not tuple(jobs) else self.refuse()

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Refuse to score; no jobs need no scoring."""
        return [] if not jobs else self.refuse()


def recorded_run(folder: RunFolder, reason: str) -> RecordedRun:
    """Return a run as its folder records it.

    Args:
        folder: the run's; nothing is written to it.
        reason: what is said to who asks for a round: a whole message.

    Raises:
        RunError: nothing has been played yet, so no client is known.
    """
    config, (began, names) = planning_config(folder), _known(folder)
    if began is None or not names:
        raise _unknown(folder)
    streams = Streams(config.seed)
    absent = _MissingModel(reason)
    handles = {name: handle for handle, name in names.items()}
    population = absent_population(names.values(), NOTHING, streams, 0)
    clients = tuple(
        replace(
            client,
            handle=handles[client.name],
            preference=Preference(0.0, began.risk_thresholds.get(handles[client.name], 1.0)),
        )
        for client in population.clients
    )
    roster = FederationMetadata.of(folder)
    profile = roster.profile if roster else None
    return RecordedRun(
        config=config,
        streams=streams,
        population=replace(population, clients=clients),
        engine=absent,
        init=absent.refuse,
        num_clusters=began.num_clusters,
        notes=began.notes,
        had_data=bool(began.data_hash),
        client_backend=Unreachable(profile, names.values()) if profile else None,
        missing_reason=reason,
    )


def check_answerable(session: Session, plan: ClientPlan) -> None:
    """Refuse, before anything is done, an answer for which rounds cannot be played here.

    Raises:
        RunError: naming what has to be passed, or done first.
    """
    run, folder = session.run, session.folder
    replays = plan.chosen is not None and plan.chosen.first_replayed_round is not None
    if run.client_backend is not None and replays:
        raise RunError(
            f"The rounds of {folder.path} must be replayed by its clients' nodes, found none: ask "
            f"by `covey forget`, and `covey resume {folder.path}` answers."
        )
    if not isinstance(run, RecordedRun):
        return
    if replays:
        raise RunError(run.missing_reason)
    if reason := unplayed_reason(session):
        raise RunError(
            f"Rounds of {folder.path} must be played, found that {reason}. {run.missing_reason}"
        )


def _missing(folder: RunFolder, overrides: Overrides) -> tuple[str, ...]:
    config, passed = folder.config(), {"model": overrides.model, "clients": overrides.clients}
    named = {"model": config.model, "clients": config.data}
    if FederationMetadata.of(folder) is not None:  # its clients bring their data themselves
        del named["clients"]
    missing = [
        what
        for what, component in named.items()
        if not isinstance(component, UnloadedComponent)
        and component.is_passed
        and passed[what] is None
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
                f"{key} must be the part that began {folder.path}, {part.name} {options}, found "
                f"{actual}: pass the settings that started it."
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
            f"The model must be what began {folder.path}, with {odd} of shape "
            f"{before.get(odd, 'none')}, found {now.get(odd, 'none')}: pass that again."
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
    if not is_derived(made) and not may_be_part(module.partition(".")[0]):
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


Who = ClientName | ReturningClient
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
            f"answer or basis must be given, found neither: give auto, {', '.join(ANSWERS)}, or "
            f"basis= {', '.join(BASES)}; plan(name) shows what each answer costs."
        )
    if answer not in (None, "auto", *ANSWERS):
        raise ConfigError(unknown("answer", answer, ("auto", *ANSWERS)))
    basis = basis or "none"
    if basis not in BASES:
        raise ConfigError(unknown("basis", basis, BASES))
    return answer or "auto", basis


def listed(names: Names) -> tuple[Who, ...]:
    """Return one client or several as several, each once."""
    several = cast("Sequence[Who]", (names,) if is_one(names) else names)
    named = (
        client if isinstance(client, ReturningClient) else client_name(client) for client in several
    )
    return tuple(dict.fromkeys(named))


def is_one(names: Names) -> bool:
    """Say whether this is one client, and not several."""
    return isinstance(names, ReturningClient) or bool(client_name(names))
