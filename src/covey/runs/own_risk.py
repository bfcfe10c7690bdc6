"""What a client's page tells of its risk, where its run solves heads."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from covey.build import Overrides
from covey.components.foreign_code import no_foreign_code
from covey.errors import CoveyError, RunError
from covey.heads import WEIGHT_STEPS, ClusterSums
from covey.membership import risk_curve
from covey.runs.parts import playable
from covey.runtime import RunFolder, Session
from covey.runtime.session import reading_session
from covey.runtime.state_checks import checked_state
from covey.types import Handle

__all__ = ["risk_by_weight"]


def risk_by_weight(
    folder: RunFolder, overrides: Overrides, handle: Handle
) -> Mapping[str, Any]:
    """Return a client's risk at several weights, its own weight, and what it accepts.

    All clients' data are needed for it. Where they cannot be had without running code
    that is not covey's, `unknown` says so and there are no `points`.
    """
    told: dict[str, Any] = {"weight": None, "cluster": None, "points": []}
    try:
        with no_foreign_code():
            run = playable(folder, overrides, "explain(...)")
            with reading_session(run, folder) as session:
                found = _measured(session, handle)
    except CoveyError as error:
        return {**told, "unknown": f"The clients' data are needed for it. {error}"}
    return {**told, **found, "unknown": ""}


def _measured(session: Session, handle: Handle) -> Mapping[str, Any]:
    state, records = checked_state(session.folder, session.ledger), session.run.records
    known = ClusterSums() if state is None else state.kept(ClusterSums)
    there = {client.handle: client for client in session.run.population.clients}
    if records is None or handle not in known.counted:
        raise RunError("Its records are in no head yet. Resume the run first.")
    if not known.is_whole or not known.counted.keys() <= there.keys():
        raise RunError(
            "Heads are solved from the records of clients that are not there. Resume the "
            "run, so that they are solved without them."
        )
    streams = session.run.streams.at("own risk", handle)
    cluster, weight = known.counted[handle]
    return {
        "weight": weight / WEIGHT_STEPS,
        "cluster": cluster,
        "points": [
            asdict(each) for each in risk_curve(known, records, there, handle, streams)
        ],
    }
