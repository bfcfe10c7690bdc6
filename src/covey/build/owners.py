"""Users' own data, as a program passes them or the settings name them."""

from collections.abc import Iterator, Mapping

from covey.build.plugins import imported, user_function
from covey.config import Config
from covey.data import Examples, TrainTest, clients_of, data_folder, read_clients
from covey.engine import Task
from covey.errors import DataError
from covey.models import NETWORKS
from covey.types import ClientName

__all__ = ["UserData", "notes_of", "outputs_of", "user_clients"]

UserData = Mapping[ClientName, Examples | TrainTest]


def user_clients(config: Config, given: object) -> UserData | None:
    """Return users' own data; None where a data set is to be simulated.

    Args:
        config: the settings.
        given: what a program passes; None: nothing.

    Raises:
        DataError: naming the client, what was found and what to do.
    """
    found = _found(config, given)
    if found is None or config.model.name not in NETWORKS:
        return found
    return {name: _featured(held) for name, held in found.items()}


def _found(config: Config, given: object) -> UserData | None:
    name, label = config.data.name, config.data.label
    if given is not None:
        return clients_of(given, label)
    if name == "python":
        raise DataError(
            "The data of this run were passed by a Python program, and only such a "
            "program can pass them again: call covey.resume(folder, model, clients), or "
            "covey.audit(folder, model=..., clients=...)."
        )
    if name == "npz":
        return read_clients(data_folder(config.data.dir))
    if ":" not in name:
        return None
    function = user_function(
        f"data function {name}", imported("data.name", name), DataError
    )
    try:
        return clients_of(function(), label)
    except DataError as error:
        raise DataError(f"data.name = {name!r}: {error}") from error


def _featured(held: Examples | TrainTest) -> Examples | TrainTest:
    """Return whole numbers as features: no shipped network has an embedding for ids."""
    if isinstance(held, TrainTest):
        return TrainTest(*(_as_features(each) for each in held))
    return _as_features(held)


def _as_features(found: Examples) -> Examples:
    whole = not found.inputs.is_floating_point() and found.inputs.element_size() > 1
    return Examples(found.inputs.float(), found.labels) if whole else found


def outputs_of(task: Task, clients: UserData) -> Iterator[int]:
    """Yield how many outputs each client's labels need."""
    for name, held in clients.items():
        for examples in held if isinstance(held, TrainTest) else (held,):
            try:
                yield task.outputs(examples.labels)
            except DataError as error:
                raise DataError(f"{name}: {error}") from None


def notes_of(clients: UserData) -> tuple[str, ...]:
    """Return what a reader must know of who holds out what."""
    own = sum(isinstance(held, TrainTest) for held in clients.values())
    if not own:
        return ()
    return (
        f"{own} of {len(clients)} clients brought test examples of their own: these are "
        f"their holdout, whatever population.holdout says.",
    )
