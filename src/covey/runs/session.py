"""An open run that can be continued: its parts, folder, ledger and secrets."""

import gc
import hashlib
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from covey.base.errors import LedgerError, RunError
from covey.base.events import Event, ThresholdChanged
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.base.own_code import ForeignCodeError
from covey.data.examples import Client
from covey.ledger.chain import Link, Record
from covey.ledger.requests import ClientRoster, LeaveRequest
from covey.ledger.store import Ledger
from covey.models.build import held_params
from covey.runs.folder import RunFolder, check_settings, now
from covey.runs.inputs import check_inputs
from covey.runs.ledger_record import LedgerRecord
from covey.runs.ledger_terms import terms_of
from covey.runs.receipts import check_anchors
from covey.runs.secrets import Secrets, check_secret, note_secret, secrets_of
from covey.runs.states import keep_frozen
from covey.settings.aggregation import anonymity_of
from covey.settings.load import Config
from covey.settings.run import BuiltRun

Observer = Callable[[History], None]
"""Called with the history so far: before the first round, after every one, and at the end.

After rounds that are only read again or replayed, too; see `OnRound` for one that is not.
"""


TRACES = (
    "checkpoints",
    "copies",
    "exports",
    "frozen.safetensors",
    "metrics.csv",
    "proofs",
    "report.html",
    "secret",
    "superseded",
    "updates",
)
"""What a run's folder holds once its ledger was begun."""


def no_op(*_: object) -> None:
    """Watch nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """One run whose ledger is open, to be written (its lock is then held) or to be read.

    Attributes:
        whole: the run as its settings or a program bring it, with those who have left.
        run: the same with those who have not, under their handles.
        observe: who watches the rounds.
        roster: its clients, as the ledger's tables have them.
        began: when it began to be opened, by `time.monotonic`.
        returned: clients that left and ask for a stronger answer, and those that were answered
            with a stop, as far as their data are still there; they take part in nothing.
    """

    whole: BuiltRun
    run: BuiltRun
    folder: RunFolder
    ledger: Ledger
    secrets: Secrets
    roster: ClientRoster
    observe: Observer = no_op
    began: float = 0.0
    returned: Mapping[Handle, Client] = field(default_factory=dict[Handle, Client])

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""
        return rounds_of(self.run.config, self.record.history)

    @property
    def record(self) -> LedgerRecord:
        """What the ledger holds: it was read once, and what is written is added."""
        return self.folder.reader.record

    def append(self, facts: Iterable[Event], round_index: int | None = None) -> None:
        """Record what happened in a round or, None, between two.

        Raises:
            LedgerError: the ledger's grammar refuses it.
        """
        records = self.following(facts, round_index)
        if round_index is None:
            links = self.ledger.append_between(records)
        else:
            links = self.ledger.append(round_index, records)
        self.folder.reader.add_written(links)

    def following(self, facts: Iterable[Event], round_index: int | None = None) -> list[Record]:
        """Return events as they may be recorded next, of a round or, None, between two.

        Raises:
            LedgerError: the ledger's grammar refuses them.
        """
        return self.folder.reader.following(facts, round_index)

    def with_written(self, links: Sequence[Link]) -> "Session":
        """Return the same run, whose ledger was written: its chain by these links, its tables."""
        self.folder.reader.add_written(links)
        return self.with_roster()

    def with_roster(self) -> "Session":
        """Return the same run with its clients as the ledger's tables have them now."""
        return replace(self, roster=self.ledger.roster())

    def client(self, handle: Handle) -> Client | None:
        """Return a client that takes part or has returned, if its data are there."""
        present = (c for c in self.run.population.clients if c.handle == handle)
        return next(present, self.returned.get(handle))

    def with_data_of(self, wanted: Iterable[LeaveRequest]) -> "Session":
        """Return the same run, in which the data are at hand of those who ask, if any are there."""
        handles = {leaver.client: leaver.handle for leaver in wanted}
        returned = {
            handles[client.name]: replace(client, handle=handles[client.name])
            for client in self.whole.population.clients
            if client.name in handles
        }
        return replace(self, returned={**self.returned, **returned})

    def members(self, names: Collection[ClientName]) -> frozenset[ClientName]:
        """Return which of these clients have not left."""
        run = self.run.with_clients_named(names)
        run = _with_recorded_handles(run, self.roster, self.secrets)
        return frozenset(c.name for c in run.population.clients).intersection(names)

    def with_newcomers(self, names: Collection[ClientName]) -> "Session":
        """Return the same run with these clients in it, unless they have left."""
        run = _with_recorded_handles(self.run.with_clients_named(names), self.roster, self.secrets)
        backend = run.client_backend
        self.ledger.enrol(
            {c.handle: c.name for c in run.population.clients},
            None if backend is None else backend.keys(),
        )
        return replace(self, run=run).with_roster()


@contextmanager
def open_session(run: BuiltRun, folder: RunFolder) -> Generator[Session]:
    """Open a run to be written, with the clients that have not left, under their handles.

    A start that fails before anything was recorded leaves no folder behind.

    Raises:
        RunError: the settings or the data are not those that began the run.
        LedgerLocked: another process is playing this run.
    """
    is_open, began = False, time.monotonic()
    try:
        with _data_set_aside(), _ledger(folder) as ledger:
            session = replace(_session(run, folder, ledger), began=began)
            is_open = True
            yield session
    except Exception:
        # Names that a ledger elsewhere holds must stay within this folder's reach.
        elsewhere = is_open and bool(run.config.ledger.url)
        if not elsewhere and (not is_open or _is_unrecorded(folder)):
            folder.discard()
        raise


def prepare_features(session: Session) -> None:
    """Compute the features of a user's network before the rounds, and store them, with a bar."""
    records, population = session.run.records, session.run.population
    if records is None or records.store is None or session.record.history.finished:
        return
    held = {client.handle: [client.train, client.holdout] for client in population.clients}
    of_server = [*population.test, *population.non_members]
    for done in records.prepare({**held, "the server": of_server}):
        session.observe(replace(session.record.history, preparing=done))
    session.observe(session.record.history)


@contextmanager
def reading_session(run: BuiltRun, folder: RunFolder) -> Generator[Session]:
    """Open a run to look at it, even while another process plays it; nothing is written.

    Raises:
        RunError: the settings or the data are not those that began the run.
    """
    with Ledger.read(folder.ledger) as ledger:
        yield _checked(run, folder, ledger)[0]


@contextmanager
def _data_set_aside() -> Generator[None]:
    """Look for garbage among what is made meanwhile, not among all clients' data too."""
    if gc.get_freeze_count():  # a program did it by itself
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _session(run: BuiltRun, folder: RunFolder, ledger: Ledger) -> Session:
    """Check that the run is the recorded one, and enrol its clients."""
    session, inputs = _checked(run, folder, ledger)
    active, history = session.run, session.record.history
    note_secret(folder.secret_marker, ledger)
    settings = hashlib.sha256(active.config.toml().encode()).hexdigest()
    ledger.files.note({**inputs, folder.config_path.name: settings})
    ledger.files.keep_only(folder.config_path.name, settings)
    if active.module is not None:
        keep_frozen(folder, held_params(active.module, active.config.model.personal))
    ledger.enrol({c.handle: c.name for c in active.population.clients})
    x = history.started.deniability_threshold if history.started else None
    with suppress(ForeignCodeError):  # who only reads the run judges no request
        terms = anonymity_of(active.config)
        if x is not None and terms and terms.deniability_threshold != x:
            # it judges requests, not training
            if terms.deniability_threshold < x and any(r.is_open for r in session.roster.requests):
                raise RunError(
                    f"aggregation.deniability_threshold must not be lowered while a request waits, "
                    f"found {terms.deniability_threshold} after {x}: set it to {x}, answer with "
                    f"`covey resume`, and lower it then."
                )
            session.append([ThresholdChanged(terms.deniability_threshold)])
    return session.with_roster()


def _checked(run: BuiltRun, folder: RunFolder, ledger: Ledger) -> tuple[Session, Mapping[str, str]]:
    """Return the recorded run, and the hashes of its inputs; nothing is written."""
    check_anchors(folder, ledger)
    check_settings(run.config, folder.reader.read(ledger).history, folder)
    folder.reader.compare_with(terms_of(run.config))
    whole, roster = run, ledger.roster()
    if run.client_backend is not None:  # who is not here now may come back
        run = run.with_clients_named(roster.names.values())
    source = run.config.secrets.source
    if source == "os":
        check_secret(folder.secret_marker, ledger)
    secrets = secrets_of(run.streams, source, folder.secret_marker)
    active = _with_recorded_handles(run, roster, secrets)
    history, stopped = folder.reader.record.history, roster.stopped
    inputs = check_inputs(run, active, history, ledger, roster, secrets)
    returned = {
        stopped[client.name]: replace(client, handle=stopped[client.name])
        for client in run.population.clients
        if client.name in stopped
    }
    return Session(whole, active, folder, ledger, secrets, roster, returned=returned), inputs


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


def _with_recorded_handles(run: BuiltRun, roster: ClientRoster, secrets: Secrets) -> BuiltRun:
    """Return the run with the clients that have not left, under their handles."""
    all_clients, tombstones, handles = run.population.clients, roster.tombstones, roster.handles

    def recorded(client: Client) -> Client:
        handle = handles.get(client.name) or secrets.handle(client.handle)
        return client if handle == client.handle else replace(client, handle=handle)

    names = (client.name for client in all_clients)
    marks = secrets.tombstones(names) if tombstones else {}
    left = {name for name, mark in marks.items() if mark in tombstones} | roster.stopped.keys()
    clients = tuple(recorded(client) for client in all_clients if client.name not in left)
    same = [c.handle for c in clients] == [c.handle for c in all_clients]
    return run if same else run.with_clients(clients)


def _ledger(folder: RunFolder) -> Ledger:
    where = folder.ledger
    if Ledger.exists(where):
        return Ledger.open(where, now, folder.reader.last)
    if left := [trace for trace in TRACES if (folder.path / trace).exists()]:
        raise RunError(
            f"The ledger of {folder.path} must be there, found {left[0]} alone: restore "
            f"{where if where == folder.ledger_path else 'it'}, or start a run with another --out."
        )
    return Ledger.create(where, now)
