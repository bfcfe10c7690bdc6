"""What a data source is asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Shaped
from torch import Tensor

from covey.data.examples import Preference
from covey.data.spec import PopulationSpec
from covey.rng import Streams
from covey.types import ClientName

__all__ = ["PopulationRequest"]


CountOutputs = Callable[[Shaped[Tensor, "examples *label"], str], int]


@dataclass(frozen=True, slots=True, eq=False)
class PopulationRequest:
    """What the settings say of the clients, whoever brings their examples.

    Attributes:
        folder: where data files lie.
        label: the column of labels; an empty one: what is usually called so.
        spec: how clients are made of a data set, and what they hold out.
        streams: of the run.
        preference: what each client accepts.
        outputs: how many outputs a model needs for such labels of what is named; it
            refuses those of another task.
        keeps_ids: whether whole numbers stay whole, as ids for an embedding.
    """

    folder: Path
    label: str
    spec: PopulationSpec
    streams: Streams
    preference: Callable[[ClientName], Preference]
    outputs: CountOutputs
    keeps_ids: bool
