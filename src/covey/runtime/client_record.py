"""What a ledger holds on one client, read while another process may write it."""

from collections.abc import Iterator
from dataclasses import dataclass

from covey.components.foreign_code import no_foreign_code
from covey.errors import CoveyError, RunError
from covey.events import ClientsAssigned, Event, RunEndedEarly
from covey.ledger import Ledger, Record
from covey.ledger.rollback import superseded_up_to
from covey.runtime.answer_cost import AnswerCost, answer_cost
from covey.runtime.folder import RunFolder
from covey.runtime.planning import answer_rules, next_round
from covey.runtime.recorded_events import StoryReader
from covey.types import Handle
from covey.unlearning.participation import Participation, participation_of
from covey.unlearning.plan import Option, cheapest, options

__all__ = ["ClientRecord", "read_client"]


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """One client, as a run's ledger tells of it.

    Attributes:
        participation: of this client; of others only what its answers depend on.
        options: every answer with what it costs.
        chosen: what it would be answered if it asked for no answer by name.
        unanswerable: why nobody can leave this run, or no answer would be true; "": one
            is.
    """

    participation: Participation
    options: tuple[tuple[Option, AnswerCost], ...]
    chosen: Option | None
    unanswerable: str


def read_client(folder: RunFolder, handle: Handle) -> ClientRecord:
    """Read what is held on a client, and what could be answered to it now.

    The right to write is not asked for, so the run goes on meanwhile.

    Raises:
        CoveyError: the ledger or the settings cannot be read.
    """
    with Ledger.read(folder.ledger) as ledger, no_foreign_code():
        about = list(_about(ledger, handle))
        held = participation_of(about)
        try:
            config = folder.config()
            ended = (e.rounds for _, e in about if isinstance(e, RunEndedEarly))
            coming = next_round(ledger.last_round(), next(ended, config.rounds))
            rules = answer_rules(config, folder, coming)
            found = options(held, handle, rules)
        except RunError as error:
            return ClientRecord(held, (), None, str(error))
        costs = tuple((each, answer_cost(folder, ledger, each)) for each in found)
    try:
        return ClientRecord(held, costs, cheapest(found, "auto"), "")
    except CoveyError as error:
        return ClientRecord(held, costs, None, str(error))


def _about(ledger: Ledger, handle: Handle) -> Iterator[tuple[int | None, Event]]:
    """Yield the events that count; of whom each round assigns only this client."""
    rewinds = ledger.tail.rewinds()
    last, is_last, story = None, False, StoryReader()
    while not is_last:
        piece = ledger.tail.after(last)
        for link in piece.links:
            t, event = link.round_index, _without_others(story, link.record(), handle)
            if t is not None and link.position <= superseded_up_to(rewinds, t):
                continue
            yield t, event
        is_last, last = piece.is_last, piece.links[-1] if piece.links else last


def _without_others(story: StoryReader, record: Record, handle: Handle) -> Event:
    event = story.read(record)
    if not isinstance(event, ClientsAssigned):
        return event
    own = {h: j for h, j in event.clusters.items() if h == handle}
    return ClientsAssigned(own, event.by)
