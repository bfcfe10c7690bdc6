"""What lies in a run's folder that somebody's data went into, as counts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from covey.checkpoints import checkpointed_rounds
from covey.runtime.copies import copies_of
from covey.runtime.folder import RunFolder
from covey.runtime.updates import stored_rounds

__all__ = ["lineage"]


def lineage(
    folder: RunFolder, models: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return what depends on how many clients, and how many of it there are.

    Counts alone: no client and no recipient is named.

    Args:
        folder: the run's, as it is now.
        models: as `dossier_facts` has them.
    """
    copies = copies_of(folder)
    kinds = Counter(each.what for each in copies if not each.deleted)
    recipients = {each.recipient for each in copies if each.recipient}
    return [
        *(
            {
                "what": f"model {each['cluster']}",
                "count": 1,
                "depends_on_clients": each["trained_by"]
                + each["reached_by_pooling"]
                + each["left_in_it"],
            }
            for each in models
        ),
        _counted("states", len(checkpointed_rounds(folder.checkpoints))),
        _counted("rounds of stored updates", len(stored_rounds(folder.updates))),
        *(_counted(f"{kind}s written out", n) for kind, n in sorted(kinds.items())),
        _counted("recipients on record, of deleted files too", len(recipients)),
        _counted("audits", int((folder.path / "audit" / "audit.json").exists())),
        _counted("signed proofs", len(list(folder.proofs.glob("*.json")))),
    ]


def _counted(what: str, count: int) -> dict[str, Any]:
    """Return a count of things that depend on everybody who took part before them."""
    return {"what": what, "count": count, "depends_on_clients": None}
