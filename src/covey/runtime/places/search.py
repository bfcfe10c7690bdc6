"""The search: every finder, and what no finder covers."""

from covey.runtime.places.found import Place, Search, SearchTarget
from covey.runtime.places.inside import inside_run
from covey.runtime.places.outside import outside_run

__all__ = ["search_places"]

NEVER_SEARCHED = (
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


def search_places(target: SearchTarget) -> Search:
    """Search every place that a run's settings lead to; nothing is written.

    Nobody else is named in what is returned.
    """
    places: list[Place] = []
    open_ends: list[str] = []
    for finder in (inside_run, outside_run):
        for found in finder(target):
            if isinstance(found, str):
                open_ends.append(found)
            elif found not in places:
                places.append(found)
    if target.config.ledger.url:
        open_ends.append(POSTGRES)
    unique = tuple(dict.fromkeys((*open_ends, *NEVER_SEARCHED)))
    return Search(tuple(places), tuple(map(target.without_other_names, unique)))
