"""Clients that bring their own examples, and what they make a population of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxtyping import Shaped
from torch import Tensor

from covey.base.errors import DataError
from covey.base.names import ClientName
from covey.base.rng import Streams
from covey.data.conversion import TrainTest, clients_of, examples_of
from covey.data.examples import Examples, Preference
from covey.data.population import Group, Population, PopulationSpec, population_of
from covey.data.shift import NoShift, ShiftRange


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
        return _prepared(examples_of(what, form, request.label), request)

    if data.pool is not None:
        population = replace(population, pool=examples("pool", data.pool))
    if not data.groups:
        return population
    names = sorted(set(data.groups.values()))
    _check_groups(population, data, names)
    return replace(
        population,
        groups=tuple(Group(name, ShiftRange(NoShift(), 0.0, 0.0)) for name in names),
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
