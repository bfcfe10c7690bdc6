"""A run on disk, and everything that can be read of it or done with it."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

from covey.api.pages import Plots, baseline_of, page_of
from covey.api.parts import (
    Names,
    Several,
    available_parts,
    built_for,
    check_answerable,
    is_one,
    listed,
    playable,
    wanted_answer,
)
from covey.api.tracking import tracked
from covey.base.arguments import place, usable
from covey.base.errors import ConfigError, CoveyError
from covey.base.history import History
from covey.base.names import ClientName, Handle, Params, client_name
from covey.base.own_code import no_foreign_code
from covey.dp.status import GuaranteeStatus, guarantee_status
from covey.leaving.case import OnAnswer, play
from covey.leaving.copies import Copy
from covey.leaving.exports import best_kept_round, delete_unfinished, export_model, latest_model
from covey.leaving.forgetting import ForgetResult, forget
from covey.leaving.handover import Handover, acknowledge, unacknowledged
from covey.leaving.places import Explanation, explain_client
from covey.leaving.planning import ClientPlan, ReturningClient, client_plans
from covey.leaving.requests import OnReceipt
from covey.leaving.signing import AnsweredRequest
from covey.leaving.verification import Verification, verify
from covey.ledger.store import Ledger
from covey.membership.attacks import Scorer
from covey.report.clients import diverged_sentences
from covey.report.comparison import client_rows, frame_of
from covey.report.page import rendered, write_audit
from covey.report.queries import round_rows
from covey.report.summary import Summary, summary
from covey.runs.auditing import DEFAULT_ATTACKS, Audit, audit_run, finished_session, record_attacks
from covey.runs.evaluation import BestRound, OnRound
from covey.runs.folder import RunFolder
from covey.runs.ledger_record import LedgerRecord
from covey.runs.reading import read_record, unknown_client
from covey.runs.receipts import key_of
from covey.runs.session import Observer, Session, no_op, open_session, prepare_features
from covey.settings.clients import Overrides
from covey.settings.load import Config
from covey.settings.run import BuiltRun


class Run:
    """A run on disk: what its events say, and what can be done with it.

    It is a reader of its folder; `open` is how it is played. Explaining, planning,
    denying, verifying, reporting and exporting read the folder alone. What plays rounds or
    measures models needs the model and the data too: from the settings, or as they were
    passed when the run was started or loaded.

    Attributes:
        folder: where it is.
        answered: requests to leave that were answered while this object played the run.
            Hand their salts to the requesters, then `acknowledge` them.
    """

    def __init__(
        self, folder: Path, overrides: Overrides | None = None, parts: BuiltRun | None = None
    ) -> None:
        """Find a run that was started, and read what its ledger says now.

        Args:
            folder: the run's.
            overrides: the model and the clients, if a program has them.
            parts: all that the run is made of, if it was built already.

        Raises:
            RunError: there is none.
        """
        self._folder = RunFolder.existing(folder)
        self._overrides = overrides or Overrides()
        self._parts = parts
        begun = Ledger.exists(self._folder.ledger)
        self._seen = read_record(self._folder) if begun else None
        self.folder = folder
        self.answered: tuple[AnsweredRequest, ...] = ()

    @classmethod
    def begin(cls, folder: Path, parts: BuiltRun, overrides: Overrides | None = None) -> "Run":
        """Make the folder of a new run, of which nothing is played yet.

        Raises:
            RunError: something is there already.
        """
        made = RunFolder.create(folder, parts.config)
        try:
            run = cls(folder, overrides, parts)
        except CoveyError:
            made.discard()
            raise
        run._folder = made
        return run

    @classmethod
    def of(cls, folder: Path, config: Config) -> "Run":
        """Return the run of a folder, or a new one in it, with nothing played.

        Raises:
            CoveyError: some part does not fit; data that are missing leave no folder.
        """
        if (folder / "config.toml").is_file():
            return cls(folder)
        return cls.begin(folder, built_for(RunFolder(folder), config))

    def __repr__(self) -> str:
        seen = diverged_sentences(self._seen[0].history) if self._seen else ()
        return f"Run({', '.join([repr(str(self.folder)), *seen])})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the run in a few lines, with its clusters."""
        failed = diverged_sentences(self.history)
        view = {"name": self.folder.name, "summary": self.summary, "failed": failed}
        return rendered("notebook.html", {}, view).decode()

    def rounds_frame(self) -> Any:  # noqa: ANN401 - pandas has no types
        """Return a pandas DataFrame with one row per round, as `metrics.csv` has them.

        Raises:
            ConfigError: pandas is not installed.
        """
        return frame_of(round_rows(self.history))

    def clients_frame(self) -> Any:  # noqa: ANN401 - pandas has no types
        """Return a pandas DataFrame with one row per client that has not left.

        name, group, cluster, threshold, risk, accuracy, true_risk, exposure; each
        risk with its standard error. Names are in it: keep it where the run is.

        Raises:
            ConfigError: pandas is not installed.
        """
        return frame_of(client_rows(self.history, self.names))

    @property
    def plot(self) -> Plots:
        """The pictures of the report: `run.plot.accuracy()`, `risk()`, `sizes()`, ..."""
        return Plots(lambda: self.history, lambda: baseline_of(self._folder.path))

    @property
    def history(self) -> History:
        """The run's history, as it was when this object last read or wrote the run."""
        return self._as_seen()[0].history

    @property
    def ledger_head(self) -> str:
        """The hash that seals the whole ledger."""
        return self._as_seen()[0].head

    @property
    def names(self) -> Mapping[ClientName, Handle]:
        """The handle of every client that has not left."""
        return self._as_seen()[1]

    @property
    def summary(self) -> Summary:
        """What is known of the run: the figures that `covey run --json` prints."""
        return summary(self.history)

    @property
    def guarantee(self) -> GuaranteeStatus:
        """What noise guarantees over all rounds ever played, or why nothing is."""
        return guarantee_status(self.history)

    def cluster_of(self, client: ClientName) -> int:
        """Return the cluster that this client chose last.

        Raises:
            RunError: there is no such client, or it never chose.
        """
        name, more = client_name(client), ", or resume the run, so that it chooses one"
        j = self.history.assignment.get(self.names.get(name, ""))
        if j is None:
            raise unknown_client(self._folder, name, self.names, more)
        return j

    def params(self, cluster: int) -> Params:
        """Return a cluster's model, as `Module.load_state_dict` takes it.

        Raises:
            RunError: there is no such cluster, or no checkpoint yet.
        """
        return latest_model(self._folder, cluster)[1]

    def best(self, figure: str = "accuracy") -> BestRound:
        """Return the best of the rounds whose states are there, for `export(after=...)`.

        `checkpoints.best` in the settings keeps the state of the best of all. When a client
        leaves, states that depend on it are deleted with the rounds that are played anew,
        the best one too; the best of those that are left or follow takes its place.

        Args:
            figure: as of `stopping.figure` in the settings, or a metric's name.

        Raises:
            CoveyError: there is no such figure, or it is not known of any of them.
        """
        return best_kept_round(self._folder, self.history, figure)

    @overload
    def plan(
        self, names: str | ReturningClient, answer: str = "auto", basis: str = "none"
    ) -> ClientPlan: ...

    @overload
    def plan(
        self, names: Several, answer: str = "auto", basis: str = "none"
    ) -> tuple[ClientPlan, ...]: ...

    def plan(
        self, names: Names, answer: str = "auto", basis: str = "none"
    ) -> ClientPlan | tuple[ClientPlan, ...]:
        """Return every possible answer to a client, with its cost; do nothing.

        Of a list of names, what each is answered if all of them leave together.

        Raises:
            RunError: a client is not known to the run, or they cannot all leave.
        """
        plans = client_plans(self._folder, listed(names), *wanted_answer(answer, basis))
        return plans[0] if is_one(names) else plans

    def explain(self, name: ClientName) -> Explanation:
        """Return what is held on a client, before anything is erased.

        Raises:
            RunError: the client is not known to the run.
        """
        return explain_client(self._folder, client_name(name))

    def forget(
        self,
        names: Names,
        answer: str | None = None,
        basis: str | None = None,
        observe: Observer = no_op,
        on_answer: OnAnswer = no_op,
        on_receipt: OnReceipt = no_op,
    ) -> tuple[ForgetResult, ...]:
        """Let clients leave, play again what has to be, and prove what was answered.

        Args:
            names: one client, or several, who share one replay; who has left already, as
                `covey.ReturningClient` with the salt of its last answer.
            answer: "auto", "deny", "subtract", "roll_back", "retrain", "calibrate" or "stop".
            basis: what the request rests on: "erasure", "withdrawal", "objection",
                "restriction" or "none".
            observe: called after every round that is played again.
            on_answer: called with each answer as it is signed: the replays of others may
                be interrupted.
            on_receipt: called with each client's name and receipt, before anything is
                answered; see `unacknowledged` for its salt.

        Raises:
            CoveyError: neither answer nor basis is named, a client is not known, or the
                answer is not possible; nothing was done.
        """
        wanted, clients = wanted_answer(answer, basis), listed(names)
        with self.open(observe, "forget(...)", plays=False) as session:
            check = partial(check_answerable, session)
            callbacks = {"on_answer": on_answer, "on_receipt": on_receipt, "check": check}
            return forget(session, clients, *wanted, **callbacks)

    @contextmanager
    def open(
        self, observe: Observer = no_op, call: str = "resume()", *, plays: bool = True
    ) -> Generator[Session]:
        """Open the run to be written: its lock is held.

        Args:
            observe: called with the history before the first round and after each.
            call: what the run is to do, as an error repeats it.
            plays: whether it needs the model and the data; without them a run can still
                record requests, and answers that play no round.

        Raises:
            CoveyError: these are missing or are others, or another process plays the run.
        """
        run, folder = self._playable(call) if plays else self._available(call), self._folder
        folder.check_servers(run.config)
        self._seen, self._folder = None, replace(folder, created=None)  # it is kept from now on
        with open_session(run, folder) as session:
            session = replace(session, observe=observe)
            if plays:
                prepare_features(session)
            yield session
        self._seen = read_record(self._folder)

    @contextmanager
    def open_finished(self, call: str, purpose: str) -> Generator[Session]:
        """Open the finished run to be read, with its model and its data.

        Args:
            call: what the run is to do, as an error repeats it.
            purpose: who asks, as an error's sentence begins: "An audit".

        Raises:
            CoveyError: these are missing or are others, or the run is not finished.
        """
        with finished_session(self._playable(call), self._folder, purpose) as session:
            yield session

    def _playable(self, call: str) -> BuiltRun:
        if self._parts is None:
            self._parts = playable(self._folder, self._overrides, call)
        return self._parts

    def _available(self, call: str) -> BuiltRun:
        return self._parts or available_parts(self._folder, self._overrides, call)

    @property
    def unacknowledged(self) -> tuple[Handover, ...]:
        """The salts of requests whose arrival no one has acknowledged yet."""
        config = self._folder.config()
        self._folder.check_servers(config)  # its key, above all
        return unacknowledged(self._folder, key_of(config))

    def acknowledge(self, request: str) -> None:
        """Delete a salt that the requester has.

        Raises:
            RunError: none is kept of this request.
        """
        acknowledge(self._folder, request)

    def verify(
        self,
        proof: str | Path,
        key: str | Path | None = None,
        name_and_salt: tuple[ClientName, str] | None = None,
        receipt: str | Path | None = None,
    ) -> Verification:
        """Check a proof against this run's ledger; arguments as of `covey.verify`."""
        return verify(proof, self.folder, key, name_and_salt, receipt)

    def export(
        self,
        cluster: int | None = None,
        client: ClientName | None = None,
        out: str | Path | None = None,
        recipient: str = "",
        after: int | None = None,
    ) -> Copy:
        """Write one cluster's model as safetensors, and put on record where and for whom.

        The record comes up when a client leaves. A model that a program takes with
        `params` and writes itself is on no record.

        Args:
            cluster: this cluster's; or
            client: the model that this client uses.
            out: the file; None: one in `exports/` of the run's folder.
            recipient: for whom; it is named to who answers a request, and in proofs.
            after: the model as it was after this round, as of `best`; None: the newest.

        Raises:
            CoveyError: not exactly one of cluster and client, there is none such, or the
                file or its record cannot be written.
        """
        if (client is None) == (cluster is None):
            raise ConfigError(
                f"client or cluster must be set, found {client!r} and {cluster!r}: set one of them."
            )
        j = self.cluster_of(client) if client is not None else cluster or 0
        path = None if out is None else place("out", out)
        with no_foreign_code(), usable(path or self.folder):
            return export_model(self._folder, j, path, recipient, after)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the run's page anew: report.html in its folder, with figures/ and metrics.csv.

        Args:
            out: another place, for the page alone.

        Raises:
            CoveyError: there is no ledger, or it is broken.
        """
        page = None if out is None else place("out", out)
        self._seen = read_record(self._folder)
        population = self._parts.population if self._parts else None
        with usable(page or self.folder):
            return page_of(self._folder, population, page, self._seen[0])

    def audit(
        self,
        attacks: Sequence[str | Scorer] = DEFAULT_ATTACKS,
        references: int = 4,
        observe: Callable[[int, int], None] = no_op,
    ) -> Audit:
        """Attack every final cluster model of a finished run; `audit/` in it is written anew.

        Args:
            attacks: names as `covey audit --attack` takes them, or attacks with options.
                Your own is `package.module:name`, a function that takes `Signals` and returns
                a score per record, or a `covey.Attack`.
            references: federations of the run's own recipe, played again per cluster.
            observe: called with a cluster and how many of its references have been played.

        Returns:
            What audit.json holds. Figures are over records, with 95% intervals.

        Raises:
            CoveyError: something does not fit.
        """
        with self.open_finished("audit(...)", "An audit") as session:
            audited = audit_run(session, attacks, references, observe)
        record_attacks(self._folder, self.history, audited)
        self._seen = None
        write_audit(audited, self.folder)
        return audited

    def resume(
        self,
        observe: Observer = no_op,
        on_answer: OnAnswer = no_op,
        on_round: OnRound | None = None,
    ) -> "Run":
        """Carry the run on to its end, answer requests to leave, and return it.

        The callbacks are those of `covey.resume` and `Run.forget`.

        Raises:
            CoveyError: the run cannot be played here, or is not the one that began.
        """
        delete_unfinished(self._folder)
        with (
            self.open(observe) as session,
            tracked(session.run.config, self._folder, on_round) as followed,
        ):
            self.answered += play(session, on_answer=on_answer, on_round=followed)
        return self

    def _as_seen(self) -> tuple[LedgerRecord, Mapping[ClientName, Handle]]:
        if self._seen is None:
            self._seen = read_record(self._folder)
        return self._seen
