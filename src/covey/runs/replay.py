"""Rounds that are played again: which they are, and what of them is known already."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from covey.algorithms.run_algorithm import with_hash
from covey.algorithms.state import RoundResult, ServerState
from covey.base.events import ClientsAssigned, RunRolledBack
from covey.base.names import Handle, Params
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, checkpoint_path
from covey.runs.ledger_record import LedgerRecord
from covey.runs.states import load_state, state_problem
from covey.settings.run import BuiltRun


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Rounds that were taken back, and are not all played again.

    Attributes:
        event: the roll back.
        choices: by round, which clusters clients had taken before.
        changed: the only clusters that ever met who left; None: any may have.
    """

    event: RunRolledBack
    choices: Mapping[int, ClientsAssigned]
    changed: Collection[int] | None = None

    @property
    def calibrates(self) -> bool:
        """Whether clients calibrate stored updates instead of training."""
        return self.event.how == "calibrated"

    @property
    def recorded(self) -> Mapping[int, Mapping[Handle, int]]:
        """The choices by round, if they are kept."""
        choices = self.choices if self.event.how == "recorded" else {}
        return {t: snapshot.clusters for t, snapshot in choices.items()}

    def solved_by(self, t: int) -> ClientsAssigned | None:
        """Return the choices by which this round is solved again; None: it is played.

        Where sums were subtracted, the last round alone is played again, and no client gets a
        request.
        """
        if self.event.how != "subtracted" or t != self.event.until - 1:
            return None
        none = ClientsAssigned({}, "clients")  # no client was there
        return self.choices.get(self.event.round_index, none)


def replay_of(record: LedgerRecord, round_index: int) -> Replay | None:
    """Return what of the newest roll back is still to be played, from a round on."""
    for at in reversed(range(len(record.facts))):
        event = record.facts[at][1]
        if isinstance(event, RunRolledBack):
            if event.until <= round_index:
                return None
            before = record.until(at).events
            chosen = ((t, e) for t, e in before if isinstance(e, ClientsAssigned))
            return Replay(
                event, {t: e for t, e in chosen if t is not None and t >= event.round_index}
            )
    return None


def unchanged_models(
    folder: RunFolder, ledger: Ledger, replay: Replay, t: int
) -> Mapping[int, Params]:
    """Return the models after the original round t of clusters that met nobody who left.

    They are what they would be again, so only the other clusters have to be trained.
    Empty where that does not hold of this run, or its state was not kept.
    """
    path = checkpoint_path(folder.superseded, t)
    if replay.changed is None or state_problem(path, ledger):
        return {}
    clusters = load_state(path)[0].clusters
    return {j: model for j, model in enumerate(clusters) if j not in replay.changed}


def with_models(played: RoundResult, known: Mapping[int, Params]) -> RoundResult:
    """Return a round that ends in these models of the clusters that nothing changed."""
    models = tuple(known.get(j, model) for j, model in enumerate(played.state.clusters))
    return with_hash(played._replace(state=replace(played.state, clusters=models)))


def solved_again(run: BuiltRun, state: ServerState, chosen: ClientsAssigned) -> RoundResult:
    """Solve the models of a round from sums, with the choices that were recorded."""
    counted = chosen.clusters.keys()
    if run.client_backend is not None:  # who was missing when sums were counted anew
        counted &= state.assignment.keys()
    cohort = tuple(client for client in run.population.clients if client.handle in counted)
    stay = {client.handle: chosen.clusters[client.handle] for client in cohort}
    present = run.clients(cohort, state.round_index)
    return run.algorithm.solve(state, replace(chosen, clusters=stay), present)
