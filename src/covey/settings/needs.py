"""How many clients settings need: with fewer nothing is trained, or a bound is none."""

from collections.abc import Iterator
from math import ceil
from typing import NamedTuple

from covey.aggregation.base import ClusterwiseAggregation
from covey.base.errors import ConfigError
from covey.settings.schema import Sections


class Need(NamedTuple):
    """A setting that needs so many clients."""

    key: str
    value: object
    clients: int


def cohort_needs(config: Sections) -> Iterator[Need]:
    """Yield what needs several clients in a round: with fewer no model moves."""
    privacy, aggregation = config.privacy, config.aggregation
    if privacy.secure_sums:
        yield Need("privacy.min_cohort", privacy.min_cohort, privacy.min_cohort)
    if terms := aggregation.anonymity():
        yield Need("aggregation.min_anonymity", terms.min_anonymity, terms.min_anonymity)
    if isinstance(aggregation, ClusterwiseAggregation):
        yield Need("aggregation.name", aggregation.name, aggregation.fewest)


def check_enough(config: Sections, clients: int, noun: str = "clients") -> None:
    """Refuse settings that need more clients than there are.

    Raises:
        ConfigError: naming the settings, how many they need, and how many there are.
    """
    newcomers = getattr(config.method, "max_newcomers", 0.0)
    needed = [*cohort_needs(config)]
    if fewest := config.population.min_clients:
        needed.append(Need("population.min_clients", fewest, fewest))
    if newcomers and config.method.num_models != 1:  # the founders for whom one may come, and it
        needed.append(Need("method.max_newcomers", newcomers, ceil(1 / newcomers - 1e-9) + 1))
    if lacking := [each for each in needed if each.clients > clients]:
        named = ", ".join(f"{key} = {value!r} needs {count}" for key, value, count in lacking)
        raise ConfigError(
            f"There must be as many {noun} as the settings need, found {clients}: {named}. Change "
            f"the settings, or add {noun}."
        )
