"""Which of a state's models are none, by what the state alone shows."""

from collections.abc import Mapping

from covey.algorithms.base import ServerState
from covey.algorithms.round_steps import Stalled
from covey.membership import STALLED, has_non_finite_values

__all__ = ["divergences"]


def divergences(state: ServerState) -> Mapping[int, str]:
    """Return why these cluster models diverged; nothing of those that did not.

    Numbers that are not finite, or a training of which nothing is accepted: such a model
    stays what it was, and what it shows says nothing of the clients who train it.
    """
    stalled = state.kept(Stalled).clusters
    found = {
        j: has_non_finite_values(model) or (STALLED if j in stalled else "")
        for j, model in enumerate(state.clusters)
    }
    return {j: reason for j, reason in found.items() if reason}
