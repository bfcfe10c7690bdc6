"""One data set, as it is read: what clients are simulated over."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from covey.data.examples import Examples

__all__ = ["Source"]


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A data set as its publisher made it.

    Attributes:
        name: what messages call it.
        test: the publisher's test file; None where there is only one file.
        num_classes: or, where an image has several labels, how many.
        notes: what a reader of results must know: parts that were not there.
        writers: a number for whoever wrote each training image; None if unknown.
    """

    name: str
    train: Examples
    test: Examples | None
    num_classes: int
    notes: tuple[str, ...] = ()
    writers: Int[Tensor, " images"] | None = None

    @property
    def classes(self) -> Int[Tensor, " images"]:
        """Each image's class: of several labels, the one nearest to half and half."""
        labels = self.train.labels
        if labels.ndim == 1:
            return labels
        return labels[:, (labels.float().mean(dim=0) - 0.5).abs().argmin()]
