"""An open run that can be continued: its parts, folder, ledger and secrets."""

import hashlib
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from statistics import fmean

from covey.base.errors import LedgerError, RunError
from covey.base.events import ComponentsUsed, ThresholdChanged
from covey.base.figure import Figure
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.build.aggregators import anonymity_of
from covey.build.clients import KnowsKeys
from covey.build.run import BuiltRun, build_run, data_hash
from covey.components.own_code import ForeignCodeError, only_from
from covey.config.settings import Config
from covey.data.examples import Client
from covey.ledger.store import Ledger
from covey.models.build import held_params
from covey.runtime.anchors import check_anchors
from covey.runtime.folder import RunFolder, check_settings, now
from covey.runtime.inputs import check_inputs, with_changed_records
from covey.runtime.ledger_record import Entry, LedgerReader, LedgerRecord, by_round, records_of
from covey.runtime.secrets import Secrets, check_secret, note_secret, secrets_of
from covey.runtime.states import keep_frozen
from covey.unlearning.plan import WantedAnswer


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """Everything needed to write one run; the ledger's lock is held.

    Attributes:
        returned: clients that left and ask for a stronger answer, and those that were answered
            with a stop, as far as their data are still there; they take part in nothing.
    """

    run: BuiltRun
    folder: RunFolder
    ledger: Ledger
    secrets: Secrets
    returned: Mapping[Handle, Client] = field(default_factory=dict[Handle, Client])

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""
        return rounds_of(self.run.config, self.record().history)

    def record(self) -> LedgerRecord:
        """Return what the ledger holds now; it is read again only if that changed."""
        return self.folder.reader.read(self.ledger)

    def client(self, handle: Handle) -> Client | None:
        """Return a client that takes part or has returned, if its data are there."""
        present = (c for c in self.run.population.clients if c.handle == handle)
        return next(present, self.returned.get(handle))

    def with_data_of(self, run: BuiltRun, asked: Iterable[WantedAnswer]) -> "Session":
        """Return the same run, in which the data are at hand of those who ask, if any are there.

        Args:
            run: with the data of those who left as well.
            asked: who asks, by name and under its handle.
        """
        handles = {each.client: each.handle for each in asked}
        returned = {
            handles[client.name]: replace(client, handle=handles[client.name])
            for client in run.population.clients
            if client.name in handles
        }
        return replace(self, returned={**self.returned, **returned})

    def with_newcomers(self, names: Collection[ClientName]) -> "Session":
        """Return the same run with these clients in it, unless they have left."""
        run = with_recorded_handles(self.run.with_clients_named(names), self.ledger, self.secrets)
        backend = run.client_backend
        self.ledger.enrol(
            {c.handle: c.name for c in run.population.clients},
            backend.keys() if isinstance(backend, KnowsKeys) else None,
            run.population.organisation_by_handle(),
        )
        return replace(self, run=run)

    def without_clients(self, handles: Collection[Handle]) -> "Session":
        """Return the same run without these clients."""
        clients = self.run.population.clients
        stay = tuple(c for c in clients if c.handle not in handles)
        if len(stay) == len(clients):
            return self
        return replace(self, run=self.run.with_clients(stay))


def open_or_create(path: Path, config: Config) -> tuple[BuiltRun, RunFolder]:
    """Return the run of a folder, or a new one in it, with nothing played.

    Raises:
        CoveyError: some part does not fit; data that are missing leave no folder.
    """
    if (path / "config.toml").is_file():
        folder = RunFolder.existing(path)
        with only_from(folder.origins()):
            return build_run(folder.checked_config()), folder
    return build_run(config), RunFolder.create(path, config)


@contextmanager
def open_session(run: BuiltRun, folder: RunFolder) -> Generator[Session]:
    """Open a run, with the clients that have not left, under their handles.

    A start that fails before anything was recorded leaves no folder behind.

    Raises:
        RunError: the settings or the data are not those that began the run.
        LedgerLocked: another process is playing this run.
    """
    is_open = False
    try:
        with _ledger(run, folder) as ledger:
            session = _session(run, folder, ledger)
            is_open = True
            yield session
    except Exception:
        # Names that a ledger elsewhere holds must stay within this folder's reach.
        elsewhere = is_open and bool(run.config.ledger.url)
        if not elsewhere and (not is_open or _is_unrecorded(folder)):
            folder.discard()
        raise


@contextmanager
def reading_session(run: BuiltRun, folder: RunFolder) -> Generator[Session]:
    """Open a run to look at it, even while another process plays it; nothing is written.

    Before anything is recorded, `open_session` begins its ledger.

    Raises:
        RunError: the settings or the data are not those that began the run.
    """
    if not Ledger.exists(run.config.ledger.url or folder.ledger_path):
        with open_session(run, folder) as session:
            yield session
    else:
        with Ledger.read(folder.ledger) as ledger:
            yield _checked(run, folder, ledger)[0]


def _session(run: BuiltRun, folder: RunFolder, ledger: Ledger) -> Session:
    """Check that the run is the recorded one, and enrol its clients."""
    session, inputs = _checked(run, folder, ledger)
    active, history = session.run, session.record().history
    note_secret(folder.secret_marker, ledger)
    settings = hashlib.sha256(active.config.toml().encode()).hexdigest()
    ledger.files.note({**inputs, folder.config_path.name: settings})
    ledger.files.settle(folder.config_path.name, settings)
    if active.module is not None:
        keep_frozen(folder, held_params(active.module, active.config.model.personal))
    ledger.enrol(
        {c.handle: c.name for c in active.population.clients},
        organisations=active.population.organisation_by_handle(),
    )
    x = history.started.deniability_threshold if history.started else None
    with suppress(ForeignCodeError):  # who only reads the run judges no request
        terms = anonymity_of(active.config)
        if x is not None and terms and terms.deniability_threshold != x:
            # it judges requests, not training
            ledger.append_between(records_of([ThresholdChanged(terms.deniability_threshold)]))
    return session


def _checked(run: BuiltRun, folder: RunFolder, ledger: Ledger) -> tuple[Session, Mapping[str, str]]:
    """Return the recorded run, and the hashes of its inputs; nothing is written."""
    check_anchors(folder, ledger)
    if run.client_backend is not None:  # who is not here now may come back
        run = run.with_clients_named(ledger.names().values())
    run = with_changed_records(run, folder, ledger)
    source = run.config.secrets.source
    if source == "os":
        check_secret(folder.secret_marker, ledger)
    secrets = secrets_of(run.streams, source, folder.secret_marker)
    active = with_recorded_handles(run, ledger, secrets)
    history = folder.reader.read(ledger).history
    check_same(active, history, folder)
    check_data(run, active, history, ledger)
    inputs = check_inputs(active, history, ledger)
    if run.client_backend is None:  # on Flower they are the operator's to change
        now = active.population.organisation_by_handle()
        present = {client.handle for client in active.population.clients}
        for handle, before in ledger.organisations().items():
            if handle in present and now.get(handle) != before:
                raise RunError(
                    f"Whose client each one is must be what population.organisations said "
                    f"when this run began, found another organisation of the client {handle}. "
                    f"Put the file back, or start a new run."
                )
    stopped = ledger.stopped()
    returned = {
        stopped[client.name]: replace(client, handle=stopped[client.name])
        for client in run.population.clients
        if client.name in stopped
    }
    return Session(active, folder, ledger, secrets, returned), inputs


def rounds_of(config: Config, history: History) -> int:
    """Return how many rounds a run has: those that were planned, or where it ended."""
    return history.ended_early.rounds if history.ended_early else config.rounds


def _is_unrecorded(folder: RunFolder) -> bool:
    """Return whether it is certain that nothing was recorded of a run."""
    try:
        with Ledger.read(folder.ledger) as ledger:
            return ledger.last_round() is None
    except LedgerError:
        return False


def read_events(ledger: Ledger) -> list[Entry]:
    """Return the current story, entry by entry; None: between two rounds."""
    return [*by_round(LedgerReader().read(ledger).events)]


def read_history(ledger: Ledger) -> History:
    """Fold what is recorded."""
    return LedgerReader().read(ledger).history


def check_same(run: BuiltRun, history: History, folder: RunFolder) -> None:
    """Refuse to continue a run with other settings."""
    check_settings(run.config, history, folder)
    recorded = _sources(history.components)
    for what, found in _sources(next(iter(run.components_used), None)).items():
        if recorded.get(what, found) != found:
            raise RunError(
                f"The {what} must be the one that began the run in {folder.path}, with "
                f"hash {recorded[what][:12]}, found {found[:12]}. Put it back, or start a "
                f"new run."
            )


def _sources(used: ComponentsUsed | None) -> dict[str, str]:
    """Return the hash of each component's source, and of the tensors of fixed ones."""
    found = {} if used is None else used.components
    kinds = (("source", "source"), ("tensors", "content of the tensors"))
    return {
        f"{what} of {setting}": str(each[kind])
        for setting, each in found.items()
        for kind, what in kinds
        if kind in each
    }


def check_data(whole: BuiltRun, active: BuiltRun, history: History, ledger: Ledger) -> None:
    """Refuse other data than those that the run last knew.

    Whoever left while no data were at hand left no hash of the others' data. Those are
    then compared together with the leavers' own, where somebody still brings these, and
    by the clients' names where nobody does.

    Args:
        whole: the run with the clients that its settings or a program bring.
        active: the same, with the clients that have not left, under their handles.
        history: the run's.
        ledger: the same.

    Raises:
        RunError: they are others.
    """
    began = history.started
    if began is None or active.data_hash in (None, began.data_hash):
        return
    unknown = takewhile(lambda each: each.data_hash is None, reversed(history.left))
    left = {each.handle for each in unknown}
    back = [c for c in whole.population.clients if c.handle in left]
    present = {client.name: client for client in active.population.clients}
    if len(back) == len(left):
        clients = tuple(
            present.get(client.name, client)
            for client in whole.population.clients
            if client.name in present or client.handle in left
        )
        merged = replace(whole.population, clients=clients)
        before, now = began.data_hash, data_hash(merged)
        if before != now:
            raise RunError(
                f"The clients' data must be those that began the run in {ledger.location}, with "
                f"hash {before[:12]}, found {now[:12]}. Put them back, or start a new run."
            )
    elif odd := sorted(present.keys() ^ (set(ledger.names().values()) - ledger.stopped().keys())):
        raise RunError(
            f"The clients must be those that {ledger.location} knows by name, and "
            f"{odd[0]!r} is missing on one side. Bring the data of every client that has "
            f"not left."
        )


def with_recorded_handles(run: BuiltRun, ledger: Ledger, secrets: Secrets) -> BuiltRun:
    """Return the run with the clients that have not left, under their handles."""
    all_clients, tombstones = run.population.clients, ledger.tombstones()
    handles = {name: handle for handle, name in ledger.names().items()}

    def recorded(client: Client) -> Client:
        handle = handles.get(client.name) or secrets.handle(client.handle)
        return client if handle == client.handle else replace(client, handle=handle)

    names = (client.name for client in all_clients)
    marks = secrets.tombstones(names) if tombstones else {}
    left = {name for name, mark in marks.items() if mark in tombstones} | ledger.stopped().keys()
    clients = tuple(recorded(client) for client in all_clients if client.name not in left)
    same = [c.handle for c in clients] == [c.handle for c in all_clients]
    return run if same else run.with_clients(clients)


TRACES = (
    "checkpoints",
    "copies",
    "exports",
    "frozen.safetensors",
    "metrics.csv",
    "proofs",
    "records",
    "report.html",
    "secret",
    "superseded",
    "updates",
)
"""What a run's folder holds once its ledger was begun."""


def _ledger(run: BuiltRun, folder: RunFolder) -> Ledger:
    where = run.config.ledger.url or folder.ledger_path
    if Ledger.exists(where):
        return Ledger.open(where, now, folder.reader.last)
    if left := [each for each in TRACES if (folder.path / each).exists()]:
        raise RunError(
            f"The ledger of {folder.path} is gone: {left[0]} is there and was written "
            f"after it. Restore {where if where == folder.ledger_path else 'it'} from a "
            f"copy; without it nothing is known of who took part, and nothing of the run "
            f"is touched. Or start a new run, with another --out."
        )
    return Ledger.create(where, now)


@dataclass(frozen=True, slots=True)
class ClientValues:
    """What is known of one client after a round; None: it is not known here.

    Attributes:
        cluster: the one that it chose last.
        risk: the estimate of its cluster's model that is in force.
        threshold: the highest risk that it accepts.
        loss: of its training in this round, in nats: the mean over the batches of its last
            epoch. It is recorded nowhere, and not known of clients that are apart, of
            those that did not train now, and where their gradients are private.
    """

    cluster: int | None
    risk: float | None
    risk_standard_error: float | None
    threshold: float | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """One round that was just recorded; figures that are not known are None.

    Attributes:
        round: its number, from 0.
        participants: how many clients took part.
        loss: of training, in nats: the mean over the clients of whom it is known.
        clients: per cluster, how many clients chose it last.
        risks: per cluster, the risk in force with its standard error.
        moved: how many of the participants changed their cluster.
        over: how many clients are in a cluster whose risk is above what they accept.
        again: whether the round was played before, and rolled back as a client left.
        values: what is known of each client that has not left, by name.
    """

    round: int
    participants: int
    accuracy: float | None
    accuracy_by_group: Mapping[str, float]
    squared_error: float | None
    squared_error_by_group: Mapping[str, float]
    loss: float | None
    clients: tuple[int, ...]
    risks: tuple[Figure, ...]
    moved: int
    over: int | None
    again: bool
    values: Mapping[ClientName, ClientValues]


OnRound = Callable[[PlayedRound], None]
"""Called once with each round that is recorded, and never with one that was before.

What it raises stops the run, which can be resumed: the round is kept.
"""


def played_round(
    session: Session, history: History, losses: Mapping[Handle, float], *, again: bool
) -> PlayedRound:
    """Return the newest round of a story, with the losses of those who trained in it."""
    row = history.rounds[-1]
    return PlayedRound(
        round=row.round_index,
        participants=row.participants,
        accuracy=row.accuracy,
        accuracy_by_group=row.accuracy_by_group,
        squared_error=row.squared_error,
        squared_error_by_group=row.squared_error_by_group,
        loss=fmean(losses.values()) if losses else None,
        clients=row.clients,
        risks=row.risks,
        moved=row.moved,
        over=row.over,
        again=again,
        values={
            client.name: _values(client.handle, history, losses.get(client.handle))
            for client in session.run.population.clients
        },
    )


def _values(handle: Handle, history: History, loss: float | None) -> ClientValues:
    cluster = history.assignment.get(handle)
    found = None if cluster is None else history.figures.get(cluster)
    thresholds = history.started.risk_thresholds if history.started else {}
    return ClientValues(
        cluster=cluster,
        risk=found.risk if found else None,
        risk_standard_error=found.standard_error if found else None,
        threshold=thresholds.get(handle),
        loss=loss,
    )
