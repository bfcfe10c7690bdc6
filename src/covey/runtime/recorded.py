"""A run as its folder records it, without its model and its clients' data.

Explaining, planning, denying and verifying need settings, ledger, states, secrets and the
names that the ledger knows. Playing rounds and measuring need a model and data as well;
here they are refused.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Never

import torch

from covey.algorithms import Clients, LocalClients, Steps, Strategy
from covey.build import BuiltRun, ReplayOptions
from covey.data import Client, Examples, Population, Preference, absent_population
from covey.engine import Recipe, Scored, ScoringJob, TrainingJob
from covey.errors import RunError
from covey.events import RunStarted
from covey.ledger import Ledger
from covey.membership import Reference, RetrainRecipe
from covey.rng import Streams
from covey.runtime.federation_metadata import FederationMetadata, Unreachable
from covey.runtime.folder import RunFolder
from covey.runtime.session import rounds_of
from covey.runtime.state_checks import newest_whole_state
from covey.runtime.state_io import load_state
from covey.types import Handle, Params

__all__ = ["RecordedRun", "recorded_run", "unplayed_reason"]

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
    config = folder.config()
    began, names = _recorded(folder)
    streams = Streams(config.seed)
    if began is None or not names:
        raise RunError(
            f"{folder.path} must know its clients before anything can be told of them, and "
            f"none has taken part yet. Play the run first: covey resume {folder.path}"
        )
    absent = _MissingModel(reason)
    roster = FederationMetadata.of(folder)
    profile = roster.profile if roster else None
    return RecordedRun(
        config=config,
        streams=streams,
        population=_population(names, began.risk_thresholds, streams),
        engine=absent,
        init=absent.refuse,
        strategy=Strategy(absent.refuse, absent.refuse, absent.refuse),
        num_clusters=began.num_clusters,
        nobody=Clients(
            (), Steps(LocalClients(absent.refuse), absent.refuse, absent.refuse)
        ),
        reference=Reference(()),
        retrain_recipe=RetrainRecipe(
            absent.refuse, absent.refuse, Recipe(), config.rounds
        ),
        notes=began.notes,
        data_hash=None if began.data_hash else "",
        client_backend=Unreachable(profile, names.values()) if profile else None,
        missing_reason=reason,
    )


def unplayed_reason(folder: RunFolder) -> str:
    """Say what has to be played before this run can answer anybody; "": nothing.

    An answer is given between rounds, in the state after the last one that is recorded.
    """
    with Ledger.read(folder.ledger) as ledger:
        last, requests = ledger.last_round(), ledger.requests()
        newest = newest_whole_state(folder.checkpoints, ledger)
        rounds = rounds_of(folder.config(), folder.reader.read(ledger).history)
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


def _population(
    names: Mapping[Handle, str], thresholds: Mapping[Handle, float], streams: Streams
) -> Population:
    population = absent_population(names.values(), NOTHING, streams, 0)
    handles = {name: handle for handle, name in names.items()}

    def known(client: Client) -> Client:
        handle = handles[client.name]
        accepted = Preference(0.0, thresholds.get(handle, 1.0))
        return replace(client, handle=handle, preference=accepted)

    return replace(population, clients=tuple(map(known, population.clients)))


def _recorded(
    folder: RunFolder,
) -> tuple[RunStarted | None, Mapping[Handle, str]]:
    """Return how the run began, and its clients' names, as far as anything is recorded."""
    if not Ledger.exists(folder.ledger):
        return None, {}
    with Ledger.read(folder.ledger) as ledger:
        return folder.reader.read(ledger).history.started, ledger.names()
