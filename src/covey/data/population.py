"""A population: who holds which examples, and what is kept aside to judge the models."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from covey.data.conversion import TrainTest
from covey.data.examples import Client, Examples, Preference
from covey.data.partition import apportion, divide
from covey.data.shift import ShiftRange
from covey.data.source import Source
from covey.data.spec import GroupSpec, PopulationSpec
from covey.data.splitting import deal
from covey.errors import DataError
from covey.rng import Streams
from covey.types import ClientName, Handle

__all__ = [
    "Group",
    "Population",
    "absent_population",
    "brought_order",
    "build_population",
    "draw_groups",
    "handle_of",
    "population_of",
    "reserve",
]


@dataclass(frozen=True, slots=True)
class Group:
    """A data distribution that some of the clients share."""

    name: str
    shift: ShiftRange


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """All clients, by name, and the server's own examples.

    All come from different images of the file, but where every group is dealt the whole
    file anew: there clients of two groups may hold one image, each in its own transform.
    Non-members, test images and pool are nobody's in any case.

    Attributes:
        num_classes: how many outputs a model has: the classes, several labels' number,
            or 1 where labels are numbers.
        groups: the known distributions; empty when nobody knows them.
        test: examples per group for accuracy, shifted like that group's.
        non_members: examples per group for the true audit, from the same file and
            split as the members, shifted like that group's.
        pool: examples that the server holds to train shadows with, not shifted.
        organisations: whose client each one is, as far as that is attested.
    """

    clients: tuple[Client, ...]
    num_classes: int
    groups: tuple[Group, ...]
    test: tuple[Examples, ...]
    non_members: tuple[Examples, ...]
    pool: Examples
    organisations: Mapping[ClientName, str] = field(
        default_factory=dict[ClientName, str]
    )

    def organisation_by_handle(self) -> dict[Handle, str]:
        """Return the attested organisations of those who take part."""
        known = self.organisations
        return {c.handle: known[c.name] for c in self.clients if c.name in known}


def build_population(
    source: Source,
    spec: PopulationSpec,
    streams: Streams,
    preference: Callable[[ClientName], Preference],
) -> Population:
    """Give a data set's training images to clients, non-members, test and pool.

    The test images are the publisher's file where there is one.

    Raises:
        DataError: there are too few images.
    """
    group_of = draw_groups(spec, streams.at("groups").generator())
    dealt = deal(source, spec, group_of, streams.at("partition"))

    def client(index: int) -> Client:
        name = f"client-{index:05}"
        shift = spec.groups[group_of[index]].shift
        examples = source.train.take(dealt.own[index])
        generator, alike = streams.at("shift", name).generator(), spec.shift_per
        inputs = shift.shifted(examples.inputs, generator, alike=alike == "client")
        parts = reserve(name, Examples(inputs, examples.labels), spec.holdout)
        handle = handle_of(name, streams)
        return Client(name, handle, group_of[index], *parts, preference(name))

    test_images = source.train.take(dealt.test) if source.test is None else source.test
    return Population(
        clients=tuple(client(index) for index in range(spec.clients)),
        num_classes=source.num_classes,
        groups=tuple(Group(group.name, group.shift) for group in spec.groups),
        test=_shifted_per_group(test_images, spec, streams.at("test")),
        non_members=_non_members(
            source.train.take(dealt.audit), spec, streams.at("non-members")
        ),
        pool=source.train.take(dealt.pool),
    )


def population_of(
    clients: Mapping[ClientName, Examples | TrainTest],
    holdout: float,
    streams: Streams,
    preference: Callable[[ClientName], Preference],
    num_classes: int,
) -> Population:
    """Make a population of users' own data: no groups, no test images, an empty pool.

    What a client holds out is drawn at random, as its file may be sorted; but where it
    brings its own test examples it holds out these.

    Raises:
        DataError: there is no client, or one has nothing left to train on.
    """
    if not clients:
        raise DataError("A population needs at least one client, found none. Add some.")

    def parted(name: ClientName) -> tuple[Examples, Examples]:
        examples = clients[name]
        if isinstance(examples, TrainTest):
            return examples
        order = brought_order(name, len(examples), streams)
        return reserve(name, examples.take(order), holdout)

    def client(name: ClientName) -> Client:
        parts = parted(name)
        return Client(name, handle_of(name, streams), None, *parts, preference(name))

    everybody = tuple(client(name) for name in sorted(clients))
    nothing = everybody[0].train.first(0)
    return Population(everybody, num_classes, (), (), (), nothing)


def brought_order(
    name: ClientName, count: int, streams: Streams
) -> Int[Tensor, " count"]:
    """Return in which order a client's own examples stand once some are held out."""
    generator = streams.at("partition", name).generator()
    (order,) = divide(count, [count], generator)
    return order


def absent_population(
    names: Collection[ClientName],
    nothing: Examples,
    streams: Streams,
    num_classes: int,
) -> Population:
    """Make a population of clients that keep their examples to themselves.

    Args:
        names: of the clients.
        nothing: no examples, of the shape that theirs have.
        streams: of the run.
        num_classes: how many classes there are.
    """
    unknown = Preference(
        risk_weight=0.0, risk_threshold=1.0
    )  # told to nobody, never used
    clients = tuple(
        Client(name, handle_of(name, streams), None, nothing, nothing, unknown)
        for name in sorted(names)
    )
    return Population(clients, num_classes, (), (), (), nothing)


def draw_groups(spec: PopulationSpec, generator: np.random.Generator) -> list[int]:
    """Return each client's group: as many of each as the shares say, in random order."""
    counts = apportion(spec.clients, [group.share for group in spec.groups])
    ordered = np.repeat(np.arange(len(counts)), counts)
    return generator.permutation(ordered).tolist()


def reserve(
    name: ClientName, examples: Examples, holdout: float
) -> tuple[Examples, Examples]:
    """Return what the client trains on, and the last examples, which it never does.

    Raises:
        DataError: nothing is left to train on.
    """
    held_out = round(holdout * len(examples))
    members = len(examples) - held_out
    if members < 1:
        raise DataError(
            f"{name} must have an example to train on, but a holdout of {holdout} "
            f"reserves {held_out} of its {len(examples)}. Lower population.holdout or "
            f"give it more examples."
        )
    reserved = Examples(examples.inputs[members:], examples.labels[members:])
    return examples.first(members), reserved


def handle_of(name: ClientName, streams: Streams) -> Handle:
    """Return a client's pseudonym in the run of these streams."""
    return "h-" + streams.at("handle", name).digest().hex()[:12]


def _non_members(
    base: Examples, spec: PopulationSpec, streams: Streams
) -> tuple[Examples, ...]:
    if spec.non_members == "untransformed":
        return (base,) * len(spec.groups)
    if spec.non_members == "pooled":
        return (_mixed(base, spec, streams.generator()),) * len(spec.groups)
    return _shifted_per_group(base, spec, streams)


def _shifted_per_group(
    base: Examples, spec: PopulationSpec, streams: Streams
) -> tuple[Examples, ...]:
    def shifted(group: GroupSpec) -> Examples:
        generator = streams.at(group.name).generator()
        return Examples(group.shift.shifted(base.inputs, generator), base.labels)

    return tuple(shifted(group) for group in spec.groups)


def _mixed(
    base: Examples, spec: PopulationSpec, generator: np.random.Generator
) -> Examples:
    shares = np.array([group.share for group in spec.groups])
    drawn = generator.choice(len(shares), size=len(base), p=shares / shares.sum())
    inputs = base.inputs.clone()
    for index, group in enumerate(spec.groups):
        here = torch.from_numpy(np.flatnonzero(drawn == index))
        inputs[here] = group.shift.shifted(base.inputs[here], generator)
    return Examples(inputs, base.labels)
