"""Who is judged in an audit: members, each with a non-member of its own group."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from covey.data.examples import Client, Examples
from covey.membership.estimates import MIN_RECORDS
from covey.membership.ground_truth import Reference
from covey.membership.intervals import Sides
from covey.rng import Streams

__all__ = ["Candidates", "Stratum", "strata_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Stratum:
    """One group's share of a cluster, as an audit sees it.

    Attributes:
        candidates: as many members as non-members, members first: who is judged.
        suspects: per candidate, the place of the client that holds it; of a non-member,
            the place of one that does not, as often as for members.
        background: the members that found no partner among the non-members: trained
            on by every reference, so that it is as large as the cluster.
        sizes: how many examples each client trains on.
    """

    group: int | None
    candidates: Examples
    suspects: Int[ndarray, " candidates"]
    background: Examples
    sizes: tuple[int, ...]

    @property
    def pairs(self) -> int:
        """How many members, and how many non-members, are judged."""
        return len(self.candidates) // 2


def strata_of(
    clients: Sequence[Client], reference: Reference, streams: Streams
) -> tuple[Stratum, ...]:
    """Pair the clients' members with non-members of their own group.

    Groups may share non-members that differ in their transform only: each image then
    serves one group, in proportion to the groups' members.
    """
    members = sum(len(client.train) for client in clients)
    groups = dict.fromkeys(client.group for client in clients)
    order = torch.from_numpy(
        streams.at("non-members").generator().permutation(_shared(reference))
    )
    strata: list[Stratum] = []
    used = 0
    for group in sorted(groups, key=lambda each: each or 0):
        places = [i for i, client in enumerate(clients) if client.group == group]
        matching = reference.matching(group, [clients[i] for i in places])
        others = Examples.joined(matching or [clients[places[0]].train.first(0)])
        if len(order) and group is not None:
            own = sum(len(clients[i].train) for i in places)
            share = len(order) * own // members
            others = others.take(order[used : used + share])
            used += share
        generator = streams.at("pairs", str(group)).generator()
        strata.append(_stratum(clients, places, others, generator))
    return tuple(strata)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of all strata, one stratum after the other.

    Attributes:
        stratum: the place of each candidate's group in `strata`.
    """

    strata: tuple[Stratum, ...]
    examples: Examples
    suspects: Int[ndarray, " records"]
    stratum: Int[ndarray, " records"]
    member: Bool[ndarray, " records"]

    @classmethod
    def of(cls, strata: Sequence[Stratum]) -> "Candidates | None":
        """Return the candidates; None if no group has enough on each side."""
        enough = tuple(each for each in strata if each.pairs >= MIN_RECORDS)
        if not enough:
            return None
        pairs = [each.pairs for each in enough]
        return cls(
            strata=enough,
            examples=Examples.joined([each.candidates for each in enough]),
            suspects=np.concatenate([each.suspects for each in enough]),
            stratum=np.repeat(np.arange(len(enough)), 2 * np.array(pairs)),
            member=np.concatenate([np.arange(2 * n) < n for n in pairs]),
        )

    @property
    def labels(self) -> Int[ndarray, " records"]:
        """The classes."""
        return self.examples.labels.numpy()

    def sides(
        self, scores: Float[ndarray, " records"], among: Bool[ndarray, " records"]
    ) -> list[Sides]:
        """Return, per stratum, the scores of members and of non-members among these."""
        chosen = [among & (self.stratum == s) for s in range(len(self.strata))]
        return [(scores[c & self.member], scores[c & ~self.member]) for c in chosen]


def _stratum(
    clients: Sequence[Client],
    places: Sequence[int],
    others: Examples,
    generator: np.random.Generator,
) -> Stratum:
    sizes = tuple(len(clients[i].train) for i in places)
    members = Examples.joined([clients[i].train for i in places])
    owners = np.repeat(places, sizes)
    order = generator.permutation(len(members))
    pairs = min(len(members), len(others))
    judged, rest = order[:pairs], order[pairs:]
    drawn = torch.from_numpy(generator.permutation(len(others))[:pairs])
    inside = members.take(torch.from_numpy(judged))
    return Stratum(
        group=clients[places[0]].group,
        candidates=Examples.joined([inside, others.take(drawn)]),
        suspects=np.tile(owners[judged], 2),
        background=members.take(torch.from_numpy(rest)),
        sizes=sizes,
    )


def _shared(reference: Reference) -> int:
    """Return how many non-members the groups share, one image under each transform."""
    return len(reference.by_group[0]) if reference.by_group else 0
