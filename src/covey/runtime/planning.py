"""What could be answered to clients that ask to leave, read from what is recorded.

A run as its folder records it, without its model and its clients' data.

Explaining, planning, denying and verifying need settings, ledger, states, secrets and the
names that the ledger knows. Playing rounds and measuring need a model and data as well;
here they are refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Never

import torch

from covey.algorithms.clients import Clients, Setup
from covey.algorithms.simulated import Simulated
from covey.base import events
from covey.base.errors import ConfigError, RunError
from covey.base.history import History
from covey.base.names import Basis, ClientName, Handle, Params
from covey.base.rng import Streams
from covey.build.aggregators import anonymity_of, sums_of
from covey.build.algorithms import ReplayOptions, RunAlgorithm, depends_on_population
from covey.build.run import BuiltRun
from covey.components.own_code import no_foreign_code, only_from
from covey.config.settings import Config
from covey.data.examples import Client, Examples, Preference
from covey.data.population import absent_population
from covey.engine.protocol import Scored, ScoringJob, TrainingJob
from covey.engine.recipe import Recipe
from covey.ledger.store import Ledger
from covey.membership.references import RetrainRecipe
from covey.membership.truth import Reference
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import FederationMetadata, Unreachable
from covey.runtime.ledger_record import facts_about
from covey.runtime.receipts import check_anchors
from covey.runtime.session import Session, check_settings, rounds_of
from covey.runtime.states import (
    checkpoint_paths,
    load_state,
    newest_whole_state,
    round_of,
    rounds_in,
)
from covey.unlearning.participation import Participation, participation_of
from covey.unlearning.plan import (
    AnswerChoice,
    AnswerRules,
    Option,
    WantedAnswer,
    choose_answers,
    options,
)


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client's answers, each with its cost, and the one it would be given.

    Attributes:
        options: of this client, once those who ask with it and before it have left.
        chosen: with the rounds that are replayed for all; None where none would be true.
        reason: why none is; "": one is.
        basis: what the request rests on.
    """

    client: ClientName
    options: tuple[Option, ...]
    chosen: Option | None
    reason: str
    basis: Basis = "none"


def plans_for(
    session: Session, wanted: Mapping[ClientName, WantedAnswer]
) -> tuple[ClientPlan, ...]:
    """Return what each client is answered if all of them leave at once; nothing is done.

    Raises:
        RunError: nobody can leave this run, or not all of them.
    """
    rules = current_rules(session)
    _check_somebody_remains(session, [each.handle for each in wanted.values()])
    choices = session.record().answers([*wanted.values()], rules)
    return tuple(
        _plan(name, each.basis, choice, session.folder, session.ledger)
        for (name, each), choice in zip(wanted.items(), choices, strict=True)
    )


def options_for(session: Session, handle: Handle, x: int) -> tuple[Option, ...]:
    """Return every answer that a client could be given, were x the deniability threshold.

    Raises:
        RunError: nobody can leave this run.
    """
    _check_somebody_remains(session, [handle])
    return options(session.record().participation, handle, current_rules(session, x))


def current_rules(session: Session, x: int | None = None) -> AnswerRules:
    """Return what the run allows, after the rounds that are recorded."""
    coming = next_round(session.ledger.last_round(), session.rounds)
    return answer_rules(session.run.config, session.folder, coming, x)


def next_round(last_round: int | None, rounds: int) -> int:
    """Return the first round that is not recorded, of so many; its end is none."""
    return 0 if last_round is None else min(last_round + 1, rounds)


def answer_rules(
    config: Config, folder: RunFolder, next_round: int, x: int | None = None
) -> AnswerRules:
    """Return what a run allows that has recorded the rounds before `next_round`.

    Raises:
        RunError: nobody can leave this run.
    """
    if config.method.one_client_each:
        raise RunError(
            f"Clients leave a model that they share, but with method.name = {config.method.name!r} "
            "each has its own. Delete that client's model instead."
        )
    terms = anonymity_of(config)
    return AnswerRules(
        deniability_threshold=(x or terms.deniability_threshold) if terms else None,
        stored_updates=bool(rounds_in(folder.updates)),
        restorable=(0, *(t + 1 for t in rounds_in(folder.checkpoints))),
        next_round=next_round,
        prefix_independent=not depends_on_population(config),
        min_organisations=terms.min_organisations if terms else 1,
        sums=sums_of(config),
    )


def _check_somebody_remains(session: Session, leaving: Sequence[Handle]) -> None:
    if {c.handle for c in session.run.population.clients} <= set(leaving):
        reason = "this client is the last one" if len(leaving) == 1 else "all would leave"
        raise RunError(
            f"A run needs somebody to go on with, but {reason}. Delete the run's folder instead."
        )


def _plan(
    name: ClientName, basis: Basis, choice: AnswerChoice, folder: RunFolder, ledger: Ledger
) -> ClientPlan:
    priced = tuple(_priced(folder, ledger, each) for each in choice.options)
    return ClientPlan(name, priced, choice.chosen, choice.reason, basis)


def _priced(folder: RunFolder, ledger: Ledger, option: Option) -> Option:
    first = option.first_replayed_round
    if not option.possible or first is None:
        return replace(option, seconds=0.0, bytes_deleted=0)
    took = ledger.seconds_per_round()
    obsolete = [
        path
        for place in (folder.checkpoints, folder.updates)
        for path in checkpoint_paths(place)
        if option.answer == "subtract" or round_of(path) >= first
    ]
    return replace(
        option,
        seconds=option.rounds_replayed * median(took) if took else None,
        bytes_deleted=sum(path.stat().st_size for path in obsolete),
    )


def read_client(folder: RunFolder, handle: Handle) -> tuple[Participation, ClientPlan]:
    """Read where a client took part, and what could be answered to it now.

    The right to write is not asked for, so the run goes on meanwhile.

    Raises:
        CoveyError: the ledger or the settings cannot be read.
    """
    with Ledger.read(folder.ledger) as ledger, no_foreign_code():
        about = facts_about(ledger, handle)
        held, name = participation_of(about), ledger.name_of(handle) or ""
        try:
            config = folder.config()
            ended = (e.rounds for _, e in about if isinstance(e, events.RunEndedEarly))
            coming = next_round(ledger.last_round(), next(ended, config.rounds))
            rules = answer_rules(config, folder, coming)
        except RunError as error:
            return held, ClientPlan(name, (), None, str(error))
        (choice,) = choose_answers(held, [WantedAnswer(handle)], rules)
        return held, _plan(name, "none", choice, folder, ledger)


NOTHING = Examples(torch.empty((0, 1)), torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRun(BuiltRun):
    """A run that can be read and answered from, and not be played.

    Its clients are known by name, handle and what they accept; their examples are not.

    Attributes:
        missing_reason: what is said to who asks for more: a whole message.
    """

    missing_reason: str = ""

    def with_clients(self, clients: tuple[Client, ...]) -> "RecordedRun":
        """Return the same run with these clients instead of its own."""
        return replace(self, population=replace(self.population, clients=clients))

    def for_replay(self, options: ReplayOptions) -> "RecordedRun":
        """Return the run itself: it plays no round, neither anew nor again."""
        del options
        return self


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
    try:
        with only_from(folder.origins()):
            config = folder.checked_config()
    except ConfigError:
        config = folder.config()
    began, names = None, dict[Handle, ClientName]()
    if Ledger.exists(folder.ledger):
        with Ledger.read(folder.ledger) as ledger:
            began, names = folder.reader.read(ledger).history.started, ledger.names()
    streams = Streams(config.seed)
    if began is None or not names:
        raise RunError(
            f"{folder.path} must know its clients before anything can be told of them, and "
            f"none has taken part yet. Play the run first: covey resume {folder.path}"
        )
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
    setup = Setup(absent.refuse, clients, config.rounds, layers=(), chance_loss=0.0)
    roster = FederationMetadata.of(folder)
    profile = roster.profile if roster else None
    return RecordedRun(
        config=config,
        streams=streams,
        population=replace(population, clients=clients),
        engine=absent,
        init=absent.refuse,
        algorithm=RunAlgorithm(config.method, setup),
        num_clusters=began.num_clusters,
        nobody=Clients((), Simulated(absent, Recipe()), absent.refuse, setup),
        reference=Reference(()),
        retrain_recipe=RetrainRecipe(absent.refuse, absent.refuse, Recipe(), config.rounds),
        notes=began.notes,
        data_hash=None if began.data_hash else "",
        client_backend=Unreachable(profile, names.values()) if profile else None,
        missing_reason=reason,
    )


def unplayed_reason(folder: RunFolder) -> str:
    """Say what has to be played before this run can answer anybody; "": nothing.

    An answer is given between rounds, in the state after the last one that is recorded.
    """
    config = folder.config()
    with Ledger.read(config.ledger.url or folder.ledger_path) as ledger:
        last, requests = ledger.last_round(), ledger.requests()
        newest = newest_whole_state(folder.checkpoints, ledger)
        rounds = rounds_of(config, folder.reader.read(ledger).history)
    if any(each.state in ("pending", "serving") for each in requests) or any(
        folder.queued_requests()
    ):
        return "earlier requests to leave it are not answered yet"
    state = load_state(newest)[0].round_index if newest else 0
    if last is None or state < min(last + 1, rounds):
        return "its newest state is older than its last recorded round"
    if last == rounds - 1:
        return "its last round is played, and its end is not recorded yet"
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A run as its events tell it.

    Attributes:
        names: the handle of every client that has not left.
    """

    history: History
    ledger_head: str
    names: Mapping[ClientName, Handle]


def read_run_record(folder: RunFolder) -> RunRecord:
    """Read a run's ledger, without its data.

    Raises:
        LedgerError: there is none, it cannot be read, or its history is not the one that
            receipts were signed for.
        RunError: the settings are not those that began the run.
    """
    config = folder.config()
    with Ledger.read(config.ledger.url or folder.ledger_path) as ledger:
        check_anchors(folder, ledger)
        names = {name: handle for handle, name in ledger.names().items()}
        record = folder.reader.read(ledger)
        check_settings(config, record.history, folder)
        return RunRecord(record.history, record.head, names)
