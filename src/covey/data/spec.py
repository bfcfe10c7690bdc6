"""How to make a population out of one data set."""

from dataclasses import dataclass
from typing import Literal

from covey.data.partition import Iid, Partition
from covey.data.shift import ShiftRange

__all__ = ["GroupSpec", "PopulationSpec"]


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group of a simulated population.

    Attributes:
        share: of the clients, relative to the other groups' shares.
        examples_per_client: the holdout included.
    """

    name: str
    share: float
    shift: ShiftRange
    examples_per_client: int


@dataclass(frozen=True, slots=True)
class PopulationSpec:
    """How to make a population out of one data set.

    Attributes:
        shift_per: whether each image of a client has its own amount, or all have one.
            Test images and non-members belong to no client: each has its own.
        holdout: share in [0, 1) of a client's examples that it never trains on.
        audit_examples: training images kept as non-members, the same for every group.
        pool: images that the server holds; 0: whatever is left, or half of it where
            test images must come out of the rest too; -1: none.
        non_members: how they are shifted: like their group's members ("matched"), by
            the mixture of all groups ("pooled"), or not at all. Only the first makes an
            audit that can be believed.
        images: "disjoint": no image is dealt twice. "per-group": every group is dealt
            all images but those kept aside, so that clients of two groups may hold one
            image, each in its own transform (Ghosh et al. 2020). Non-members, test
            images and pool are nobody's in both.
        partition: what a client's images have in common. If it is selective, half of
            what is left over stays for the clients to be dealt from, and only the other
            half goes to test images or a pool of 0.
    """

    clients: int
    groups: tuple[GroupSpec, ...]
    shift_per: Literal["image", "client"]
    holdout: float
    audit_examples: int
    pool: int
    non_members: Literal["matched", "pooled", "untransformed"]
    images: Literal["disjoint", "per-group"] = "disjoint"
    partition: Partition = Iid()  # noqa: RUF009 - frozen
