"""The search itself: every finder, and what no finder looks at."""

from covey.runtime.places.beyond import beyond_the_run
from covey.runtime.places.found import Place, Search, Sought
from covey.runtime.places.own import in_the_run

__all__ = ["places_of"]

NEVER = (
    "Backups and snapshots of all these places.",
    "Copies that were made without covey, models that a program wrote itself, and runs "
    "in other folders.",
    "Shell histories, process lists, logs of your own code, and the printed output of "
    "commands: arguments and --json hold the name.",
    "What a model has learnt: files of states and of examples are not understood, only "
    "searched for the name.",
)

POSTGRES = (
    "The write-ahead log, replicas, backups and logs of statements of the ledger's "
    "PostgreSQL server."
)


def places_of(sought: Sought) -> Search:
    """Search every place that a run's settings lead to; nothing is written.

    Nobody else is named in what is returned.
    """
    places: list[Place] = []
    open_ends: list[str] = []
    for finder in (in_the_run, beyond_the_run):
        for found in finder(sought):
            if isinstance(found, str):
                open_ends.append(found)
            elif found not in places:
                places.append(found)
    if sought.config.ledger.url:
        open_ends.append(POSTGRES)
    unique = tuple(dict.fromkeys((*open_ends, *NEVER)))
    return Search(tuple(places), tuple(map(sought.unnamed, unique)))
