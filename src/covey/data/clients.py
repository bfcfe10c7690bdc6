"""What a program passes as its clients' data, made into examples and a population.

One client's data are (inputs, labels) as arrays, a table with a column of labels, a dict of
columns, a map-style data set (`__len__` and `__getitem__`, with items (input, label) or
dicts), or `Examples`; where a model takes several inputs they are a dict of arrays, by
keyword, or a tuple of them. Or a pair (train, test) of two of these, of which the second is what
the client holds out. A pair is (inputs, labels) where its second half is an array or a list
of numbers, and (train, test) where both halves are such data by themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxtyping import Shaped
from torch import Tensor
from torch.utils.data import DataLoader

from covey.base.errors import DataError, blamed
from covey.base.names import ClientName
from covey.base.rng import Streams
from covey.data.arrays import (
    described,
    from_columns,
    from_items,
    from_pair,
    is_array,
    is_frame,
    kind_of,
)
from covey.data.examples import Examples, NoShift, Preference, ShiftRange, TrainTest
from covey.data.population import Group, Population, PopulationSpec, population_of

KINDS = (
    "(inputs, labels) as arrays, a table or a dict with a column of labels, a data set "
    "with __len__ and __getitem__, or a pair (train, test) of these"
)
PARTS = {"train", "test", "validation", "valid"}
SCALARS = (bool, int, float)


def clients_of(clients: object, label: str = "") -> dict[ClientName, Examples | TrainTest]:
    """Return every client's data, by name.

    Args:
        clients: a dict by name, a list (named client-00000 and so on), or a partitioner
            with `num_partitions` and `load_partition`, whose natural ids are the names.
        label: the column of labels; "": one of `covey.data.arrays.LABELS`.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    found = {name: held_by(name, each, label) for name, each in _named(clients)}
    if not found:
        raise DataError("clients must hold at least one client, found none. Add some.")
    kinds = {
        name: kind_of(held.train if isinstance(held, TrainTest) else held)
        for name, held in found.items()
    }
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise DataError(
                f"All clients' inputs must be of one kind, but those of {first} are "
                f"{kinds[first]} and those of {name} {kind}. Make all clients' alike."
            )
    return found


def held_by(name: ClientName, found: Any, label: str = "") -> Examples | TrainTest:  # noqa: ANN401
    """Return one client's data, with what it holds out where it says so."""
    if isinstance(found, Mapping) and "train" in found and PARTS.issuperset(found):
        if set(found) != {"train", "test"}:
            raise DataError(
                f"{name} must bring 'train' and 'test', found {', '.join(found)}. Join "
                f"or leave out the others."
            )
        found = (found["train"], found["test"])
    parted = isinstance(found, (tuple, list)) and len(found) == 2 and not _is_pair(found)
    if not (parted and all(map(_is_set, found))):
        return examples_of(name, found, label)
    train, test = found
    halves = TrainTest(
        examples_of(f"{name} (train)", train, label), examples_of(f"{name} (test)", test, label)
    )
    ours, theirs = (f"{kind_of(half)}, labels {tuple(half.labels.shape[1:])}" for half in halves)
    if ours != theirs:
        raise DataError(
            f"{name}: train and test must hold examples of one kind, found {ours} and {theirs}. "
            f"Make them alike."
        )
    return halves


def examples_of(name: ClientName, found: Any, label: str = "") -> Examples:  # noqa: ANN401
    """Return one client's data as examples, without a part that it holds out.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    if isinstance(found, DataLoader):
        raise DataError(
            f"{name} must bring its examples, found a DataLoader, which has drawn its "
            f"batches already. Pass its .dataset."
        )
    if isinstance(found, Examples):
        if found.layout is not None:
            return found
        return from_pair(name, found.inputs, found.labels)
    if is_frame(found) or isinstance(found, Mapping):
        return from_columns(name, found, label)
    if _is_pair(found):
        inputs, labels = found
        return from_pair(name, inputs, labels)
    if _is_items(found):
        return from_items(name, found, label)
    raise DataError(f"{name} must bring {KINDS}, found {described(found)}. Convert it.")


def _named(clients: Any) -> Iterator[tuple[ClientName, object]]:  # noqa: ANN401 - anything
    if isinstance(clients, Mapping):
        yield from _by_name(clients)
    elif hasattr(clients, "load_partition") and hasattr(clients, "num_partitions"):
        # its natural ids are names where it has any
        subject = f"clients: your partitioner {type(clients).__name__}"
        with blamed(DataError, subject, "Give it its data set before you pass it."):
            ids = getattr(clients, "partition_id_to_natural_id", None) or {}
            parts = [
                (str(ids.get(index, f"client-{index:05}")), clients.load_partition(index))
                for index in range(int(clients.num_partitions))
            ]
        yield from parts
    elif isinstance(clients, (list, tuple)) and not _is_pair(clients):
        for index, each in enumerate(clients):
            yield f"client-{index:05}", each
    else:
        raise DataError(
            f"clients must be a dict by name or a list, of data per client, found "
            f"{described(clients)}. One client's data alone are a list of one: [data]."
        )


def _by_name(clients: Mapping[Any, object]) -> Iterator[tuple[ClientName, object]]:
    if {"train", "test"} <= set(clients) <= PARTS:
        raise DataError(
            "clients must be a dict by client, found one by part: train and test. One "
            "client's parts are a list of one: [data]."
        )
    seen: set[str] = set()
    for key, each in clients.items():
        whole = isinstance(key, int) and not isinstance(key, bool)
        name = str(key) if whole or isinstance(key, str) else ""
        if not name.strip() or name in seen:
            raise DataError(
                f"Clients must have different names that are texts or whole numbers, "
                f"found {key!r}. Rename it."
            )
        seen.add(name)
        yield name, each


def _is_set(found: object) -> bool:
    """Say whether this is a whole set of examples, and not one of them."""
    if isinstance(found, Mapping):
        return all(
            isinstance(each, (list, tuple)) or getattr(each, "ndim", 0) > 0
            for each in found.values()
        )
    if isinstance(found, list) and not _is_pair(found):
        return all(isinstance(each, (tuple, list, Mapping)) for each in found)
    whole = isinstance(found, (Examples, DataLoader))
    return whole or is_frame(found) or _is_pair(found) or _is_items(found)


def _is_pair(found: Any) -> bool:  # noqa: ANN401 - anything
    """Say whether this is (inputs, labels)."""
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        return False
    inputs, labels = found
    if not (is_array(inputs) or is_frame(inputs) or isinstance(inputs, (Sequence, Mapping))):
        return False
    if is_array(labels) and not is_frame(labels):
        return getattr(labels, "ndim", 1) > 0
    listed = isinstance(labels, list) or (
        isinstance(labels, tuple) and not isinstance(inputs, tuple)
    )
    return listed and all(isinstance(each, SCALARS) for each in labels)


def _is_items(found: object) -> bool:
    if isinstance(found, (str, bytes, tuple, Mapping)) or is_array(found):
        return False
    return hasattr(found, "__getitem__") and hasattr(found, "__len__")


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
    outputs: Callable[[Shaped[Tensor, "examples *label"], str], int]
    keeps_ids: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClientData:
    """What a source knows beside its clients' examples.

    All data may have the forms that `covey.run(clients=...)` takes.

    Attributes:
        clients: data by client.
        groups: the group of every client, by name; empty: nobody knows groups.
        test: unseen examples of every group, for accuracy; needed where there are groups.
        non_members: examples of every group that no client holds, like those of its
            clients, for the true audit; empty: there are none.
        pool: the server's own examples, for shadows; None: it has none.
        notes: what a reader of results must know.
    """

    clients: Any
    groups: Mapping[ClientName, str] = field(default_factory=dict[ClientName, str])
    test: Mapping[str, Any] = field(default_factory=dict[str, Any])
    non_members: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pool: Any = None
    notes: tuple[str, ...] = ()


def brought_population(
    found: Any,  # noqa: ANN401 - `ClientData`, or what `clients_of` takes
    request: PopulationRequest,
) -> tuple[Population, tuple[str, ...]]:
    """Return the population of clients that bring their own examples, and its notes.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    data = found if isinstance(found, ClientData) else ClientData(clients=found)
    clients = {
        name: TrainTest(*(_prepared(part, request) for part in held))
        if isinstance(held, TrainTest)
        else _prepared(held, request)
        for name, held in clients_of(data.clients, request.label).items()
    }
    outputs = [
        request.outputs(part.labels, name)
        for name, held in clients.items()
        for part in (held if isinstance(held, TrainTest) else (held,))
    ]
    population = population_of(
        clients, request.spec.holdout, request.streams, request.preference, num_classes=max(outputs)
    )
    own = sum(isinstance(held, TrainTest) for held in clients.values())
    note = (
        f"{own} of {len(clients)} clients brought test examples of their own: these are their "
        f"holdout, whatever population.holdout says."
    )
    first = next(iter(clients.values()))
    layout = (first.train if isinstance(first, TrainTest) else first).layout
    population = replace(population, layout=layout)
    notes = (*((note,) if own else ()), *data.notes)
    return _with_groups(population, data, request), notes


def _prepared(examples: Examples, request: PopulationRequest) -> Examples:
    """Return whole numbers as features, unless they are ids."""
    whole = not examples.inputs.is_floating_point() and examples.inputs.element_size() > 1
    if request.keeps_ids or not whole:
        return examples
    return Examples(examples.inputs.float(), examples.labels)


def _with_groups(
    population: Population, data: ClientData, request: PopulationRequest
) -> Population:
    """Return the population with the groups and the examples that the source knows."""

    def examples(what: str, form: object) -> Examples:
        found = _prepared(examples_of(what, form, request.label), request)
        request.outputs(found.labels, what)
        if found.layout != population.layout:
            raise DataError(
                f"{what} must have inputs like the clients', {population.layout or 'one tensor'}, "
                f"found {found.layout or 'one tensor'}. Make them alike."
            )
        return found

    if data.pool is not None:
        population = replace(population, pool=examples("pool", data.pool))
    if not data.groups:
        return population
    names = sorted(set(data.groups.values()))
    _check_groups(population, data, names)
    return replace(
        population,
        groups=tuple(Group(name, 1.0, ShiftRange(NoShift(), 0.0, 0.0), 0) for name in names),
        clients=tuple(
            replace(client, group=names.index(data.groups[client.name]))
            for client in population.clients
        ),
        test=tuple(examples(f"test of {n}", data.test[n]) for n in names),
        non_members=tuple(
            examples(f"non_members of {n}", data.non_members[n])
            for n in (names if data.non_members else ())
        ),
    )


def _check_groups(population: Population, data: ClientData, names: list[str]) -> None:
    """Refuse groups of which not everything is known."""
    clients = {client.name for client in population.clients}
    expected, known = set(names), data.non_members
    for what, found, needed in (
        ("groups", set(data.groups), clients),
        ("test", set(data.test), expected),
        ("non_members", set(known), expected if known else set[str]()),
    ):
        if found != needed:
            odd = min(found ^ needed)
            raise DataError(
                f"ClientData.{what} must have an entry for each of {sorted(needed)}, "
                f"found {odd!r} {'only there' if odd in found else 'missing'}. Correct it."
            )
