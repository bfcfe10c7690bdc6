"""Whose client each one is, where anonymity sets need members of several organisations."""

from dataclasses import replace
from pathlib import Path

from covey.build.aggregators import anonymity_of
from covey.config import Config
from covey.data import Population, read_organisations
from covey.errors import ConfigError
from covey.types import ClientName

__all__ = ["attested_organisations", "with_organisations"]


def attested_organisations(config: Config) -> dict[ClientName, str]:
    """Return what the settings' file says of each client; empty without one.

    Raises:
        ConfigError: the file is wrong, or sets need organisations and there is none.
    """
    path = config.population.organisations
    if path:
        return read_organisations(Path(path))
    if (least := least_organisations(config)) > 1:
        raise ConfigError(
            f"merge.min_organisations = {least} counts the organisations whose clients are "
            f"in a set, found no population.organisations. Name a file that says whose "
            f"client each one is, or set merge.min_organisations = 1."
        )
    return {}


def least_organisations(config: Config) -> int:
    """Return of how many organisations the members of a set must be."""
    terms = anonymity_of(config)
    return terms.min_organisations if terms else 1


def with_organisations(
    config: Config, population: Population, *, complete: bool
) -> Population:
    """Return a population whose clients' organisations are known.

    Args:
        config: the settings.
        population: the clients.
        complete: whether nobody else will come.

    Raises:
        ConfigError: sets need organisations, and one is unknown or there are too few.
    """
    known = attested_organisations(config)
    population = replace(population, organisations=known)
    least = least_organisations(config)
    if least == 1 or not complete:
        return population
    path, names = config.population.organisations, [c.name for c in population.clients]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"merge.min_organisations = {least} needs to know whose client each one is, "
            f"and {path} says nothing of {unknown[0]!r}. Add it there, or leave it out "
            f"(population.exclude)."
        )
    if (found := len({known[name] for name in names})) < least:
        raise ConfigError(
            f"merge.min_organisations must be at most as many organisations as there are, "
            f"{found} in {path}, found {least}. Lower it."
        )
    return population
