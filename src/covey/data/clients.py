"""Clients that bring their own examples: what a program or a source passes, as a population."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxtyping import Shaped
from torch import Tensor

from covey.base.errors import DataError, blamed
from covey.base.names import ClientName, client_name
from covey.base.rng import Streams
from covey.data.arrays import (
    PARTS,
    check_alike,
    client_data_of,
    described,
    examples_of,
    form_of,
    in_order,
)
from covey.data.examples import Client, Examples, NoShift, Preference, ShiftRange, TrainTest
from covey.data.population import (
    Group,
    Population,
    PopulationSpec,
    example_order,
    handle_of,
    reserve,
)


@dataclass(frozen=True, slots=True, eq=False)
class PopulationRequest:
    """What the settings say of the clients, wherever their examples come from.

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
    """What a source has beside its clients' examples.

    All data may have the forms that `covey.run(clients=...)` takes.

    Attributes:
        clients: data by client.
        groups: the group of every client, by name; empty: groups are unknown.
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


def clients_of(clients: object, label: str = "") -> dict[ClientName, TrainTest]:
    """Return every client's examples, by name.

    Args:
        clients: a dict by name, a list (named client-00000 and so on), or a partitioner
            with `num_partitions` and `load_partition`, whose natural ids are the names.
        label: the column of labels; "": one of `covey.data.arrays.LABELS`.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    held = {name: client_data_of(name, data, label) for name, data in _named(clients)}
    if not held:
        raise DataError("clients must hold at least one client, found none: add some.")
    columns = next((own.train.columns for own in held.values() if own.train.columns), ())
    held = {
        name: TrainTest(
            in_order(name, own.train, columns),
            None if own.test is None else in_order(f"{name} (test)", own.test, columns),
        )
        for name, own in held.items()
    }
    parts = {name: own.train for name, own in held.items()}
    parts |= {f"{name} (test)": own.test for name, own in held.items() if own.test is not None}
    check_alike(parts)
    return held


def _named(clients: Any) -> Iterator[tuple[ClientName, object]]:  # noqa: ANN401 - anything
    if hasattr(clients, "load_partition") and hasattr(clients, "num_partitions"):
        # its natural ids are names where it has any
        subject = f"clients: your partitioner {type(clients).__name__}"
        with blamed(DataError, subject, "give it its data set before you pass it."):
            ids = getattr(clients, "partition_id_to_natural_id", None) or {}
            parts = [
                (str(ids.get(index, f"client-{index:05}")), clients.load_partition(index))
                for index in range(int(clients.num_partitions))
            ]
        yield from parts
    elif isinstance(clients, (list, tuple)) and form_of(clients) != "pair":
        for index, data in enumerate(clients):
            yield f"client-{index:05}", data
    elif isinstance(clients, Mapping) and not {"train", "test"} <= set(clients) <= PARTS:
        yield from _by_name(clients)
    else:
        raise DataError(
            f"clients must be a dict by name or a list, of data per client, found "
            f"{described(clients)}: give one client's data as [data]."
        )


def _by_name(clients: Mapping[Any, object]) -> Iterator[tuple[ClientName, object]]:
    seen: set[str] = set()
    for key, data in clients.items():
        name = client_name(key)
        if not name.strip() or name in seen:
            raise DataError(
                f"Clients' names must be different texts or numbers, found {key!r}: rename it."
            )
        seen.add(name)
        yield name, data


def population_of_clients(
    source: Any,  # noqa: ANN401 - `ClientData`, or what `clients_of` takes
    request: PopulationRequest,
) -> tuple[Population, tuple[str, ...]]:
    """Return the population of clients with their own examples, and its notes.

    What a client holds out is drawn at random, as its data may be sorted; but where it
    has its own test examples it holds out these.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    data = source if isinstance(source, ClientData) else ClientData(clients=source)
    held = clients_of(data.clients, request.label)
    outputs = [
        request.outputs(part.labels, name)
        for name, own in held.items()
        for part in own
        if part is not None
    ]
    clients = tuple(_client(name, held[name], request) for name in sorted(held))
    tested = sum(own.test is not None for own in held.values())
    note = (
        f"{tested} of {len(held)} clients have test examples of their own: these are their "
        f"holdout, whatever population.holdout says."
    )
    pool = clients[0].train.first(0)
    population = Population(clients=clients, num_classes=max(outputs), pool=pool)
    return _with_groups(population, data, request), (*((note,) if tested else ()), *data.notes)


def _client(name: ClientName, held: TrainTest, request: PopulationRequest) -> Client:
    train, test = held
    if test is None:
        if request.spec.holdout > 0:  # else they stay as they came, and where they are
            train = train.take(example_order(name, len(train), request.streams))
        train, test = reserve(name, train, request.spec.holdout)
    return Client(
        name,
        handle_of(name, request.streams),
        group=None,
        train=_features(train, request),
        holdout=_features(test, request),
        preference=request.preference(name),
    )


def _features(examples: Examples, request: PopulationRequest) -> Examples:
    """Return whole numbers as features, unless they are ids."""
    whole = not examples.inputs.is_floating_point() and examples.inputs.element_size() > 1
    if request.keeps_ids or not whole:
        return examples
    return replace(examples, inputs=examples.inputs.float())


def _with_groups(
    population: Population, data: ClientData, request: PopulationRequest
) -> Population:
    """Return the population with the groups and the examples that the source has."""

    def examples(what: str, form: object) -> Examples:
        columns = population.clients[0].train.columns
        features = in_order(what, examples_of(what, form, request.label), columns)
        features = _features(features, request)
        request.outputs(features.labels, what)
        check_alike({"the clients": population.clients[0].train, what: features})
        return features

    if data.pool is not None:
        population = replace(population, pool=examples("pool", data.pool))
    if not data.groups:
        return population
    names = sorted(set(data.groups.values()))
    for what, known, needed in (
        ("groups", data.groups, [client.name for client in population.clients]),
        ("test", data.test, names),
        ("non_members", data.non_members, names if data.non_members else []),
    ):
        if odd := set(known) ^ set(needed):
            found = f"{min(odd)!r} {'only there' if min(odd) in known else 'missing'}"
            raise DataError(f"ClientData.{what} must have {sorted(needed)}, found {found}: fix it.")
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
