"""The source of a run's data: a component, a function, or what a program passes."""

from typing import Any

from covey.build.global_randomness import noticing_global_randomness
from covey.build.plugins import user_function
from covey.components.registry import is_built_in
from covey.components.slots import component_of
from covey.config import Config
from covey.data import ClientSource, DataSource, Population, PopulationRequest
from covey.errors import DataError

__all__ = ["population_from", "source_of"]


def source_of(config: Config, given: object = None) -> DataSource:
    """Return where the examples come from.

    Args:
        config: the settings.
        given: what a program passes as its clients; None: nothing.
    """
    if given is not None:
        return _holding(lambda: given)
    found: Any = component_of(config.data, "name", DataSource)
    if isinstance(found, DataSource):
        return found
    name = config.data.name
    part = f"data function {name}"
    noticed = noticing_global_randomness([part], found)
    return _holding(user_function(part, noticed, DataError))


def _holding(clients: Any) -> DataSource:  # noqa: ANN401 - a function
    class Held(ClientSource):
        def clients(self, request: PopulationRequest) -> Any:  # noqa: ANN401, ARG002
            return clients()

    return Held()


def population_from(
    source: DataSource, config: Config, request: PopulationRequest
) -> tuple[Population, tuple[str, ...]]:
    """Return what a source makes of the request; a user's own errors are told as such.

    Raises:
        CoveyError: the examples cannot be had.
    """
    name = config.data.name
    if is_built_in("data", name):
        return source.population(request)
    try:
        part = f"data source {name}"
        noticed = noticing_global_randomness([part], source.population)
        return user_function(part, noticed, DataError)(request)
    except DataError as error:
        raise DataError(f"data.name = {name!r}: {error}") from error
