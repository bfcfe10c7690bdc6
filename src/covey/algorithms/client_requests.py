"""What one message asks of a client, and what it answers.

A simulation holds everybody's examples and plays both sides. In a federation the server
holds none: it sends models, and each client measures, chooses and trains by itself. What a
client accepts, what it has found out and how it draws stay on its side; the server learns
the cluster, the update and, where the method needs them, counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from jaxtyping import Float64, Int
from numpy import ndarray
from torch import Tensor

from covey.aggregation.server import Models
from covey.algorithms.selection import UNASSIGNED
from covey.algorithms.state import Cohort
from covey.base.figure import RiskEstimate
from covey.base.names import ClientName, Handle, Params, SummedUp
from covey.engine.recipe import RecipeNumbers
from covey.ridge.sums import Sums
from covey.secure_sums.messages import ProtocolStep

RequestType = Literal[
    "hello", "choose", "train", "place", "reassign", "count", "compare", "mean", "sum", "masked"
]


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What one client receives about itself.

    Attributes:
        assigned: the cluster that it trains, or is a member of; None: it is free to choose.
        risks: the valid risk figure of each cluster that is sent to it, if there is one.
        current: the cluster that it chose last, or `UNASSIGNED`.
        memory_round: the round after which it kept what its objective goes on from; None:
            it begins anew.
        shares: of its records in the heads that it compares (`ClusterSums.shares`).
        digest: of the sums that it sent before, which it is to send again; "": of none.
        session: of the round of secure sums that it is in, in hexadecimal digits.
    """

    assigned: int | None = None
    risks: tuple[RiskEstimate | None, ...] = ()
    current: int = UNASSIGNED
    memory_round: int | None = None
    shares: tuple[float, ...] = ()
    digest: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class SumStep:
    """What clients in rounds of secure sums are to send next.

    Attributes:
        step: of the protocol.
        length: how many numbers are added up.
        of: what they are: "sums" over records from which heads are solved, "counts" of
            losses under the model that is sent, or "updates" that are trained from it.
    """

    step: ProtocolStep
    length: int
    of: SummedUp = "sums"


@dataclass(frozen=True, slots=True, eq=False)
class ClientRequest:
    """One question to some clients, in one message each.

    Attributes:
        task: "hello": say who you are; "choose" a cluster and train its model; "train" the
            model of the assigned one; "place": name the model with the lowest loss; "reassign":
            choose, and train nothing; "count" own losses under the model of the assigned
            cluster; "compare": choose during a round, and train nothing; "mean" and "sum":
            of its features; "masked": take the next step of a round of secure sums.
        models: by cluster; {}: one that is not sent. A client with an assigned cluster needs only
            that one.
        available: the clusters that may be chosen.
        path: of the streams under which clients draw, each from a seed of its own.
        contexts: one per client that gets the request.
        recipe: the numbers of how to train; a client has the rest from its settings.
        round_index: of the round, where clients measure risks of their own, or keep
            something for their objective; negative: they are to keep nothing.
        broadcast: what is sent along for their objective, by name.
        roots: of heads that are compared, where somebody is in them (`Head.root`).
        width: how many features a head has, and its bias, where the request is about them.
        features: fingerprint of the feature map; "": no features are fixed.
        frozen: hash of the model's parameters that do not train; "": all do.
        sums: which step of secure sums comes next; None: none.
        letters: what the protocol sends each client for it.
        paths: `path` of each cluster, where it depends on a client's assigned one.
    """

    __pydantic_config__: ClassVar[Any] = {"arbitrary_types_allowed": True}  # tensors

    task: RequestType
    models: Models = ()
    available: tuple[bool, ...] = ()
    path: tuple[str | int, ...] = ()
    contexts: Mapping[Handle | ClientName, ClientContext] = field(
        default_factory=dict[str, ClientContext]
    )
    recipe: RecipeNumbers = field(default_factory=RecipeNumbers)
    round_index: int = 0
    broadcast: Mapping[str, Params] = field(default_factory=dict[str, Params])
    roots: Mapping[int, Tensor] = field(default_factory=dict[int, Tensor])
    width: int = 0
    features: str = ""
    frozen: str = ""
    sums: SumStep | None = None
    letters: Mapping[Handle, bytes] = field(default_factory=dict[Handle, bytes])
    paths: tuple[tuple[str | int, ...], ...] = ()

    def for_client(self, handle: Handle, name: ClientName) -> "ClientRequest":
        """Return what of it one client is sent, which it reads under its name."""
        context = self.contexts[handle]
        assigned, shares = context.assigned, context.shares
        return replace(
            self,
            models=tuple(m if assigned in (None, j) else {} for j, m in enumerate(self.models)),
            path=self.paths[assigned or 0] if self.paths else self.path,
            contexts={name: context},
            roots={j: root for j, root in self.roots.items() if any(shares[j : j + 1])},
            letters={name: self.letters.get(handle, b"")},
            paths=(),
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClientResponse:
    """What one client sent back, found to be in order.

    Attributes:
        cluster: the one that it chose, or was assigned.
        update: local model minus the one that was sent; None where nothing was trained.
        weight: share in a weighted mean, any positive unit.
        members: counts of its losses on the examples it trains on (`loss_counts`).
        held_out: the same of its holdout.
        sums: over its records, each of weight 1.
        mean: of its features, in steps of the grid.
        letter: what it sends in a step of secure sums.
    """

    handle: Handle
    cluster: int
    update: Params | None = None
    weight: float = 1.0
    members: Int[ndarray, "folds bins"] | None = None
    held_out: Int[ndarray, "folds bins"] | None = None
    sums: Sums | None = None
    mean: Float64[Tensor, " d"] | None = None
    letter: bytes = b""


Send = Callable[[ClientRequest, Cohort], tuple[ClientResponse, ...]]
"""A way to ask clients: answers in the order of the cohort, without who gave none."""
