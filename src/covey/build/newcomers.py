"""One client's own examples, brought to a run that has begun already."""

from typing import Any

from covey.build.populations import request_of
from covey.build.run import BuiltRun
from covey.data import Client, Examples, brought_population, normalised_population
from covey.errors import DataError
from covey.types import ClientName

__all__ = ["brought_client"]


def brought_client(
    run: BuiltRun,
    name: ClientName,
    data: Any,  # noqa: ANN401 - as `covey.data.clients_of` takes one client's
) -> Client:
    """Return a client as it were, had it brought these examples when the run began.

    What it holds out is drawn as for any client that brings its own.

    Raises:
        DataError: they are malformed, or of another kind than those of the run's clients.
    """
    request = request_of(run.config, run.streams)
    found, _ = brought_population({name: data}, request)
    if run.config.data.normalise == "image":
        found = normalised_population(found)
    (client,) = found.clients
    expected, here = (_kind(c.train) for c in (run.population.clients[0], client))
    if here != expected:
        raise DataError(
            f"{name} must bring examples like those of the run's clients, {expected}, "
            f"found {here}. Bring them to that form."
        )
    if found.num_classes > run.population.num_classes:
        raise DataError(
            f"{name} must bring labels of the {run.population.num_classes} classes that "
            f"the run's models know, found {found.num_classes}. Start a new run for more."
        )
    return client


def _kind(examples: Examples) -> str:
    inputs, labels = examples.inputs, examples.labels
    each = (
        f"labels of shape {tuple(labels.shape[1:])}" if labels.dim() > 1 else "labels"
    )
    return (
        f"{inputs.dtype} of shape {tuple(inputs.shape[1:])} with {labels.dtype} {each}"
    )
