"""A population: who holds which examples, what each accepts, what is kept aside, and its hash."""

import csv
import hashlib
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from covey.base.errors import ConfigError, DataError
from covey.base.files import read_text
from covey.base.names import ClientName, Handle, unknown
from covey.base.rng import Streams
from covey.data.arrays import kind_of
from covey.data.examples import (
    CHUNK,
    Client,
    Examples,
    Layout,
    Preference,
    PublishedData,
    ShiftRange,
    normalised,
    standardised,
)
from covey.data.partition import Iid, Partition, Positions, apportion
from covey.data.spreadsheet import cells_of

if TYPE_CHECKING:
    from hashlib import _Hash

_COLUMNS = ("risk_threshold", "risk_weight")
"""Of a file of preferences, beside each client's name."""

MARKED_EVERY = 64
"""Clients between two places from which a hash can be carried on."""


@dataclass(frozen=True, slots=True)
class Group:
    """A data distribution that some of the clients share.

    Attributes:
        share: of the clients, relative to the other groups' shares.
        examples_per_client: the holdout included. Of clients that bring their own examples
            neither says anything.
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
            images and pool are no client's in both.
        partition: what a client's images have in common. If it is selective, half of
            what is left over stays for the clients to be dealt from, and only the other
            half goes to test images or a pool of 0.
    """

    clients: int
    groups: tuple[Group, ...]
    shift_per: Literal["image", "client"]
    holdout: float
    audit_examples: int
    pool: int
    non_members: Literal["matched", "pooled", "untransformed"]
    images: Literal["disjoint", "per-group"] = "disjoint"
    partition: Partition = Iid()  # noqa: RUF009 - frozen


def weight_from_threshold(risk_threshold: float) -> float:
    """Return beta = clip((0.8 - tau) / 0.3, 0, 1): a low threshold means a high weight."""
    return min(1.0, max(0.0, (0.8 - risk_threshold) / 0.3))


def read_preferences(path: Path) -> dict[ClientName, Preference]:
    """Read `name, risk_threshold` and optionally `risk_weight` per client.

    A .csv file has these columns; a .toml file a table per client. A missing weight
    follows from the threshold.

    Raises:
        ConfigError: naming the file, the client and what is wrong.
    """
    forms = (
        "population.preferences must name a CSV file with columns name, risk_threshold, "
        "risk_weight, or a TOML file with a table per client, found"
    )
    preferences: dict[ClientName, Preference] = {}
    for name, entry in _entries(path, forms).items():
        row = entry if isinstance(entry, Mapping) else {}
        try:
            threshold = _share(row["risk_threshold"])
            weight = _share(row.get("risk_weight", weight_from_threshold(threshold)))
        except (KeyError, ValueError) as error:
            raise ConfigError(
                f"{path} must give {name} a risk_threshold and at will a risk_weight, in [0, 1], "
                f"found {entry!r} ({error}): correct it."
            ) from None
        preferences[name] = Preference(weight, threshold)
    if not preferences:
        raise ConfigError(f"{forms} no client in {path}: name one, or leave it out.")
    return preferences


def _share(value: object) -> float:
    if not 0 <= (share := float(str(value))) <= 1:
        raise ValueError(f"{share:g} is not in [0, 1]")
    return share


def _entries(path: Path, forms: str) -> dict[ClientName, Any]:
    """Return what a file says of each client: in CSV a row, in TOML a value or table."""
    try:
        text = read_text(path)
        entries = (
            _rows(text) if path.suffix.lower() == ".csv" else list(tomllib.loads(text).items())
        )
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise ConfigError(f"{forms} {path} ({error}): correct the file or the setting.") from None
    if len(dict(entries)) < len(entries):
        raise ConfigError(f"{path} must name each client once, found one twice: correct it.")
    for name, entry in entries:
        for key in sorted(set(entry if isinstance(entry, Mapping) else ()).difference(_COLUMNS)):
            raise ConfigError(unknown(f"{path}: what {name} has", key, _COLUMNS))
    return dict(entries)


def _rows(text: str) -> list[tuple[ClientName, dict[str, str]]]:
    """Return the rows of a table as spreadsheets write it.

    Raises:
        ValueError: no column is called name.
    """
    separated, decimal, names, rows = cells_of(text)
    header = [word.lower() for word in names]
    if "name" not in header:
        raise ValueError(f"no column is name, of {header} between {separated}")
    entries: list[tuple[ClientName, dict[str, str]]] = []
    for row in rows:
        entry = dict(zip(header, row, strict=False))
        entry = {k: v if k == "name" else v.replace(decimal, ".") for k, v in entry.items()}
        if name := entry.pop("name", ""):
            entries.append((name, {key: value for key, value in entry.items() if value}))
    return entries


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Population:
    """All clients, by name, and the server's own examples.

    All come from different images of the file, but where every group is dealt the whole
    file anew: there clients of two groups may hold one image, each in its own transform.
    Non-members, test images and pool belong to no client in any case.

    Attributes:
        num_classes: how many outputs a model has: the classes, several labels' number,
            or 1 where labels are numbers.
        groups: the known distributions; empty where groups are unknown.
        test: examples per group for accuracy, shifted like that group's.
        non_members: examples per group for the true audit, from the same file and
            split as the members, shifted like that group's.
        unshifted: the same in one, as they are in the file; there is nothing where clients
            bring their own data.
        pool: examples that the server holds to train shadows with, not shifted.
    """

    clients: tuple[Client, ...]
    num_classes: int
    pool: Examples
    groups: tuple[Group, ...] = ()
    test: tuple[Examples, ...] = ()
    non_members: tuple[Examples, ...] = ()
    unshifted: Examples | None = None

    @property
    def layout(self) -> Layout | None:
        """How several inputs of a model lie in examples' `inputs`; None: there is one."""
        return self.pool.layout


def build_population(
    source: PublishedData,
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
    sizes = [spec.groups[group].examples_per_client for group in group_of]
    # which clients share a deck, in which each image is once, by a name for it
    tables = {"everybody": list(range(len(group_of)))}
    if spec.images == "per-group":
        tables = {
            spec.groups[here].name: [c for c, group in enumerate(group_of) if group == here]
            for here in sorted(set(group_of))
        }
    need = max(sum(sizes[client] for client in table) for table in tables.values())
    aside = _aside(source, spec, need)
    dealing, count = streams.at("partition"), len(source.train)
    order = torch.from_numpy(dealing.generator().permutation(count))
    dealt, audit, test, pool, rest = order.split([need, *aside, count - need - sum(aside)])
    cards = torch.cat([dealt, rest])
    own: dict[int, Positions] = {}
    for name, table in tables.items():
        if spec.images == "per-group":
            cards = cards[dealing.at(name).generator().permutation(len(cards))]
        hands = _hands(source, spec, cards, [sizes[c] for c in table], dealing.at(name, "hands"))
        own |= dict(zip(table, hands, strict=True))

    def client(index: int) -> Client:
        name = f"client-{index:05}"
        shift = spec.groups[group_of[index]].shift
        examples = source.train.take(own[index])
        generator, alike = streams.at("shift", name).generator(), spec.shift_per
        inputs = shift.shifted(examples.inputs, generator, alike=alike == "client")
        parts = reserve(name, Examples(inputs, examples.labels), spec.holdout)
        handle = handle_of(name, streams)
        return Client(name, handle, group_of[index], *parts, preference(name))

    test_images = source.train.take(test) if source.test is None else source.test
    reserved = source.train.take(audit)
    return Population(
        clients=tuple(client(index) for index in range(spec.clients)),
        num_classes=source.num_classes,
        groups=spec.groups,
        test=_shifted_per_group(test_images, spec, streams.at("test")),
        non_members=_non_members(reserved, spec, streams.at("non-members")),
        unshifted=reserved,
        pool=source.train.take(pool),
    )


def _hands(
    source: PublishedData,
    spec: PopulationSpec,
    cards: Positions,
    sizes: list[int],
    streams: Streams,
) -> Sequence[Positions]:
    """Return each client's hand of the cards, as the partition deals them."""
    hands = spec.partition.deal(source, cards, sizes, streams.generator())
    counts, everything = [len(hand) for hand in hands], torch.cat(list(hands))
    apart = len(everything.unique()) == len(everything)
    if counts != sizes or not apart or not torch.isin(everything, cards).all():
        raise DataError(
            f"{type(spec.partition).__name__} must deal {sizes} of the cards, none twice, found "
            f"hands of {counts}: return indices out of `cards`."
        )
    return hands


def _aside(source: PublishedData, spec: PopulationSpec, need: int) -> list[int]:
    """Return how many images are kept for audit, test and pool."""
    left = len(source.train) - need - spec.audit_examples
    has_test = source.test is not None
    least_test = 0 if has_test else 1
    if left < max(spec.pool, 0) + least_test:
        recipients = (
            "its largest group" if spec.images == "per-group" else f"{spec.clients:,} clients"
        )
        raise DataError(
            f"The population needs {need:,} images for {recipients}, {spec.audit_examples:,} to "
            f"audit, {max(spec.pool, 0):,} for the pool and {least_test} or more to test, found "
            f"{len(source.train):,} in {source.name}: lower population.clients, "
            f".examples_per_client, .audit_examples or .pool."
        )
    if spec.partition.is_selective:
        # Half of what could be spared stays in the deck: who can only take the last
        # images there are has no class mix of its own, and no writer.
        left -= (left - max(spec.pool, 0) - least_test) // 2
    rest = left if has_test else left // 2
    pool = {-1: 0, 0: rest}.get(spec.pool, spec.pool)
    return [spec.audit_examples, 0 if has_test else left - pool, pool]


def example_order(name: ClientName, count: int, streams: Streams) -> Int[Tensor, " count"]:
    """Return in which order a client's own examples stand once some are held out."""
    generator = streams.at("partition", name).generator()
    return torch.from_numpy(generator.permutation(count))


def absent_population(
    names: Collection[ClientName], nothing: Examples, streams: Streams, num_classes: int
) -> Population:
    """Make a population of clients that keep their examples to themselves.

    Args:
        names: of the clients.
        nothing: no examples, of the shape that theirs have.
        streams: of the run.
        num_classes: how many classes there are.
    """
    unknown = Preference(risk_weight=0.0, risk_threshold=1.0)  # never used
    clients = tuple(
        Client(name, handle_of(name, streams), None, nothing, nothing, unknown)
        for name in sorted(names)
    )
    return Population(clients=clients, num_classes=num_classes, pool=nothing)


def draw_groups(spec: PopulationSpec, generator: np.random.Generator) -> list[int]:
    """Return each client's group: as many of each as the shares say, in random order."""
    counts = apportion(spec.clients, [group.share for group in spec.groups])
    ordered = np.repeat(np.arange(len(counts)), counts)
    return generator.permutation(ordered).tolist()


def reserve(name: ClientName, examples: Examples, holdout: float) -> tuple[Examples, Examples]:
    """Return what the client trains on, and the last examples, which it never does.

    Raises:
        DataError: nothing is left to train on.
    """
    held_out = round(holdout * len(examples))
    members = len(examples) - held_out
    if members < 1:
        raise DataError(
            f"{name} must have an example to train on, found all {len(examples)} held out by "
            f"population.holdout = {holdout}: lower it, or give it more examples."
        )
    reserved = examples.inputs[members:], examples.labels[members:]
    return examples.first(members), Examples(*reserved, examples.layout, examples.columns)


def handle_of(name: ClientName, streams: Streams) -> Handle:
    """Return a client's pseudonym in the run of these streams."""
    return "h-" + streams.at("handle", name).digest().hex()[:12]


def _non_members(base: Examples, spec: PopulationSpec, streams: Streams) -> tuple[Examples, ...]:
    if spec.non_members == "matched":
        return _shifted_per_group(base, spec, streams)
    if spec.non_members == "untransformed":
        return (base,) * len(spec.groups)
    generator, inputs = streams.generator(), base.inputs.clone()
    shares = np.array([group.share for group in spec.groups])
    drawn = generator.choice(len(shares), size=len(base), p=shares / shares.sum())
    for index, group in enumerate(spec.groups):
        here = torch.from_numpy(np.flatnonzero(drawn == index))
        inputs[here] = group.shift.shifted(base.inputs[here], generator)
    return (Examples(inputs, base.labels),) * len(spec.groups)


def _shifted_per_group(
    base: Examples, spec: PopulationSpec, streams: Streams
) -> tuple[Examples, ...]:
    shifted = (
        group.shift.shifted(base.inputs, streams.at(group.name).generator())
        for group in spec.groups
    )
    return tuple(Examples(inputs, base.labels) for inputs in shifted)


def _cannot_be_normalised(found: str) -> DataError:
    return DataError(
        f"data.normalise = 'image' needs a tensor of images or features, found {found}: set it to "
        f"'none', or make features float32."
    )


def _check_tables(setting: str, population: Population) -> None:
    own, others = population.clients[0].train, population.groups or len(population.pool)
    is_table = own.inputs.is_floating_point() and own.inputs.dim() == 2
    if others or own.layout is not None or not is_table:
        beside = ", and examples that are no client's" if others else ""
        raise DataError(
            f"{setting} needs clients that bring tables of numbers, found {kind_of(own)}{beside}: "
            f"leave it out, or pass float32 columns."
        )


def standardised_population(population: Population) -> Population:
    """Return the clients' tables scaled by the figures of their own training rows.

    Raises:
        DataError: clients bring something else, or some examples are no client's.
    """
    _check_tables("data.standardise = 'client'", population)

    def scaled(client: Client) -> Client:
        def seen(part: Examples) -> Examples:
            return replace(part, inputs=standardised(part.inputs, client.train.inputs))

        return replace(client, train=seen(client.train), holdout=seen(client.holdout))

    return replace(population, clients=tuple(map(scaled, population.clients)))


def with_client_columns(population: Population) -> Population:
    """Return the clients' tables with a column per client more: 1 in its own rows.

    Raises:
        DataError: clients bring something else, or some examples are no client's.
    """
    _check_tables("data.client_columns", population)
    count = len(population.clients)
    names = tuple(f"client {place}" for place in range(count))

    def marked(part: Examples, place: int) -> Examples:
        inputs = functional.pad(part.inputs, (0, count))
        inputs[:, place - count] = 1.0
        return replace(part, inputs=inputs, columns=part.columns and part.columns + names)

    clients = tuple(
        replace(client, train=marked(client.train, place), holdout=marked(client.holdout, place))
        for place, client in enumerate(population.clients)
    )
    return replace(population, clients=clients, pool=clients[0].train.first(0))


def normalised_population(population: Population) -> Population:
    """Return the population as models see it when every example is normalised.

    What is not shifted yet stays as it is, and is normalised when it is shifted.

    Raises:
        DataError: examples are ids, or several inputs of a model.
    """
    if population.layout is not None:
        raise _cannot_be_normalised(f"several, {population.layout}")

    def seen(examples: Examples, owner: str) -> Examples:
        if examples.inputs.dtype == torch.int64:
            raise _cannot_be_normalised(f"whole numbers (ids) of {owner}")
        parts = [normalised(part) for part in examples.inputs.split(CHUNK)]
        return Examples(torch.cat(parts), examples.labels)

    return replace(
        population,
        clients=tuple(
            replace(c, train=seen(c.train, c.name), holdout=seen(c.holdout, c.name))
            for c in population.clients
        ),
        groups=tuple(
            replace(group, shift=replace(group.shift, normalise=normalised))
            for group in population.groups
        ),
        test=tuple(seen(examples, "test") for examples in population.test),
        non_members=tuple(seen(member, "non-members") for member in population.non_members),
        pool=population.pool if len(population.pool) else seen(population.pool, "pool"),
    )


def data_hash(population: Population) -> str:
    """Return SHA-256 over all clients' handles and examples, as hex.

    Empty where the clients keep their examples to themselves. It is recorded under a run's
    secret, if it has one (`Secrets.keyed`): all records but one, and this, give that one away.
    """
    return DataHashes().of(population)


class DataHashes:
    """Hashes populations of one run, which differ by few clients.

    A hash is carried on from where the clients are others than in the one before: somebody
    left, or came. Examples are frozen, so the same ones have the same bytes.
    """

    def __init__(self) -> None:
        self._clients: tuple[Client, ...] = ()
        self._marks: tuple[_Hash, ...] = ()

    def of(self, population: Population) -> str:
        """Return what `data_hash` does."""
        clients = population.clients
        if not any(len(client.train) for client in clients):
            return ""
        both = zip(self._clients, clients, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: _have_same(*pair), both))
        marks = [*self._marks[: alike // MARKED_EVERY]]
        layout = population.layout or ""
        digest = marks[-1].copy() if marks else hashlib.sha256(str(layout).encode())
        for count, client in enumerate(clients[len(marks) * MARKED_EVERY :], 1):
            _add(digest, client)
            if count % MARKED_EVERY == 0:
                marks.append(digest.copy())
        self._clients, self._marks = clients, tuple(marks)
        return digest.hexdigest()


def _have_same(one: Client, other: Client) -> bool:
    return one is other or (
        one.handle == other.handle and one.train is other.train and one.holdout is other.holdout
    )


def _add(digest: "_Hash", client: Client) -> None:
    digest.update(client.handle.encode())
    for examples in (client.train, client.holdout):
        if len(examples):  # of thousands of clients many hold out none
            digest.update(np.ascontiguousarray(examples.inputs.numpy()).data)
            digest.update(np.ascontiguousarray(examples.labels.numpy()).data)
