"""Whether parts of a user's own would carry a client that leaves over a replay."""

from collections.abc import Sequence

from covey.base.events import Event
from covey.base.names import Handle, round_number
from covey.base.params import model_hash
from covey.leaving.plan import Option, replay_kind
from covey.runs.session import Session
from covey.runs.states import kept_state
from covey.settings.ledger_terms import own_parts


def carried_over(session: Session, leavers: Sequence[Handle], answers: Sequence[Option]) -> str:
    """Say which parts of a user's own would carry a leaver over a replay; "": none is seen to.

    The first round that is to be played again is played twice: a part that keeps something
    outside of the run's state makes other models the second time. A part that does not show
    itself so is named in the proof.
    """
    replaying = [answer for answer in answers if answer.first_replayed_round is not None]
    own = own_parts(session.run.config)
    if not own or not replaying or replay_kind(replaying) not in ("anew", "recorded"):
        return ""
    first = min(option.first_replayed_round or 0 for option in replaying)
    stay = tuple(c for c in session.run.population.clients if c.handle not in leavers)
    run = session.run.with_clients(stay)
    if run.client_backend is not None or session.secrets.source != "seeded":
        return ""
    streams = session.secrets.at_round(first).at("round", first)

    def played() -> tuple[str, Sequence[Event]]:
        state = run.algorithm.init(run.streams)
        if first:
            earlier = kept_state(session.folder, session.ledger, after=first - 1)
            state = earlier.without(leavers)
        result = run.algorithm.round(state, run.clients(stay, first), streams)
        return model_hash(result.state.clusters), result.events

    if played() == played():
        return ""
    parts = ", ".join(f"{setting} = {name!r}" for setting, name in sorted(own.items()))
    return (
        f"A round that is played twice must come out the same, found another round "
        f"{round_number(first)}, as a part that is not covey's keeps something outside of the "
        f"run's state ({parts}): keep it in that state, or ask with --answer stop."
    )
