"""What clients keep for themselves from round to round, where their objective needs it.

It stays on the client's side; a simulation plays both, and keeps it with the state. Of
remote clients the server knows the round after which each keeps it: the latest of which it
took the client's update. A model of the client's own is kept as "personal".
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.algorithms.base import ServerState
from covey.algorithms.loss_traces import OWN_RECORDS
from covey.components.state import ComponentState
from covey.engine.batches import num_steps
from covey.engine.protocol import Engine, Recipe, TrainingJob
from covey.params import not_finite
from covey.types import Handle, Params

__all__ = [
    "NO_INPUTS",
    "PERSONAL",
    "ClientMemory",
    "ObjectiveInputs",
    "memory_after",
    "noting",
    "personal_models",
    "personal_training",
    "with_memory",
    "without_personal",
]

PERSONAL = "personal"
"""What a client calls the model of its own."""

SHARED = "shared"
"""What the training of the own model calls the one that was sent."""


class ClientMemory(ComponentState):
    """What each client kept when its update was last accepted.

    Attributes:
        rounds: of remote clients, the round that this was.
    """

    key = "client-memory"
    kept: Mapping[Handle, Mapping[str, Mapping[str, Tensor]]] = {}
    rounds: Mapping[Handle, int] = {}


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveInputs:
    """What clients' training is given beside the weights: above all, to its objective.

    Attributes:
        memory: what each client kept.
        broadcast: what the server sends along to all of them, by name.
        round_index: in which remote clients keep what comes of it; negative: they do not.
        wants_losses: whether somebody asks for the loss of their training.
    """

    memory: ClientMemory = field(default_factory=ClientMemory)
    broadcast: Mapping[str, Params] = field(default_factory=dict[str, Params])
    round_index: int = -1
    wants_losses: bool = False

    def of(self, handle: Handle) -> Mapping[str, Params]:
        """Return what one client's objective looks at."""
        return {**self.memory.kept.get(handle, {}), **self.broadcast}


NO_INPUTS = ObjectiveInputs()


def with_memory(
    state: ServerState,
    noted: Mapping[Handle, Mapping[str, Params] | None],
    accepted: Collection[Handle],
) -> ServerState:
    """Return the state after a round; a refused update leaves a memory as it was."""
    new = {h: each for h, each in noted.items() if h in accepted and each is not None}
    if not new:
        return state
    before, now = state.kept(ClientMemory), state.round_index
    here = {handle: each for handle, each in new.items() if each}
    there = {handle: now for handle, each in new.items() if not each}
    return state.keeping(
        ClientMemory(kept={**before.kept, **here}, rounds={**before.rounds, **there})
    )


def noting(
    updates: Iterable[ClientUpdate], noted: dict[Handle, Mapping[str, Params] | None]
) -> Iterator[ClientUpdate]:
    """Yield the updates, and put down what each client keeps."""
    for each in updates:
        noted[each.handle] = each.kept
        yield each
        del each  # before the next one comes


def personal_models(state: ServerState) -> Mapping[Handle, Params]:
    """Return the models that clients have of their own."""
    kept = state.kept(ClientMemory).kept
    return {handle: own[PERSONAL] for handle, own in kept.items() if PERSONAL in own}


def without_personal(job: TrainingJob) -> TrainingJob:
    """Return the job of a shared model: it never sees the client's own one.

    Nor what the client knows of its records, which is no objective's.
    """
    apart = (PERSONAL, OWN_RECORDS)
    seen = {key: kept for key, kept in job.memory.items() if key not in apart}
    return replace(job, memory=seen)


def personal_training(
    engine: Engine, recipe: Recipe, jobs: Sequence[TrainingJob]
) -> Iterator[Params | None]:
    """Yield each client's own model as its training leaves it; None: it has none.

    v_i <- v_i - eta (grad f(v_i, xi_i) + what `recipe.personal` adds), from the model that
    was sent where there is no v_i yet; batches are those of the shared model.
    """
    if recipe.personal is None:
        return repeat(None, len(jobs))
    own = replace(recipe, objective=recipe.personal, personal=None)

    def beside(job: TrainingJob) -> TrainingJob:
        memory = {**without_personal(job).memory, SHARED: job.start}
        start = job.memory.get(PERSONAL, job.start)
        return replace(job, start=start, recipe=own, memory=memory, on_losses=None)

    return engine.train(map(beside, jobs))


def memory_after(
    job: TrainingJob, trained: Params, personal: Params | None
) -> Mapping[str, Params] | None:
    """Return what a client keeps, which is nothing where its recipe asks for nothing.

    Its own model stays as it was where the new one diverged.
    """
    if not job.recipe.keeps_memory:
        return None
    steps = num_steps(len(job.examples), job.recipe)
    kept = job.recipe.objective.remember(
        without_personal(job).memory, job.start, trained, steps, job.recipe
    )
    diverged = personal is None or not_finite(personal)
    last = job.memory.get(PERSONAL) if diverged else personal
    return kept if last is None else {**kept, PERSONAL: last}
