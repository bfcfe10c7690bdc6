"""How many clients settings need: with fewer nothing is trained, or a bound is none."""

from collections.abc import Iterator
from math import ceil

from covey.aggregation.base import ClusterwiseAggregation
from covey.base.errors import ConfigError
from covey.settings.schema import Sections


def cohort_needs(config: Sections) -> Iterator[tuple[str, object, int]]:
    """Yield settings with which no model moves in a round of fewer clients, values, and these."""
    aggregation = config.aggregation
    if least := config.privacy_plan.min_cohort:
        yield "privacy.min_cohort", least, least
    if terms := aggregation.anonymity():
        yield "aggregation.min_anonymity", terms.min_anonymity, terms.min_anonymity
    if isinstance(aggregation, ClusterwiseAggregation):
        yield "aggregation.name", aggregation.name, aggregation.fewest


def check_enough(config: Sections, clients: int, noun: str = "clients") -> None:
    """Refuse settings that need more clients than there are.

    Raises:
        ConfigError: naming the settings, how many they need, and how many there are.
    """
    least, newcomers = config.population.min_clients, getattr(config.method, "max_newcomers", 0.0)
    needed = [*cohort_needs(config), ("population.min_clients", least, least)]
    if (
        newcomers and config.method.num_models != 1
    ):  # initial members for whom one may come, and that one
        needed.append(("method.max_newcomers", newcomers, ceil(1 / newcomers - 1e-9) + 1))
    lacking = [
        f"{key} = {value!r} needs {count}" for key, value, count in needed if count > clients
    ]
    if lacking:
        raise ConfigError(
            f"There must be as many {noun} as the settings need, found {clients} "
            f"({', '.join(lacking)}): add some, or change the settings."
        )
