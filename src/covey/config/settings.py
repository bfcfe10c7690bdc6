"""All settings of a run together, and what must hold between them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast, no_type_check

import tomli_w
from pydantic import ValidationError, ValidationInfo, model_validator

from covey.components.foreign import foreign_options
from covey.components.foreign_code import ForeignCodeError, no_foreign_code
from covey.components.registry import is_built_in
from covey.components.slots import READ, RECORDED
from covey.config.compatibility import compatibility_problems
from covey.config.data_constraints import brings_clients, foreign_data_problems, kind_of
from covey.config.dp_constraints import privacy_problems
from covey.config.ledger_url import has_password
from covey.config.problems import Problem, problems_of, together
from covey.config.sections import MethodConfig, PopulationConfig, Sections
from covey.config.trackers import tracker_problems
from covey.errors import ConfigError

__all__ = ["Config"]

TOLD = (
    "ledger.url must hold no password: settings are kept and shown with the run. Put the "
    "URL into an environment variable and set ledger.url = 'env:NAME', or into a file "
    "that only its owner may read and set 'file:PATH', or leave the password to libpq's "
    "own ~/.pgpass."
)


class Config(Sections):
    """All settings of a run, which agree with each other.

    A section that names components may be a component itself: `Config(method=FedAvg())`.
    """

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None: ...  # noqa: ANN401

    @model_validator(mode="after")
    @no_type_check  # a protocol that cannot be checked at run time
    def _agree(self, info: ValidationInfo) -> "Config":
        if info.context == READ:
            return self
        # what a run recorded can no more be changed: it is masked where it is shown
        check = _disagreements if info.context == RECORDED else _mistakes
        if problems := [Problem(each) for each in check(self)]:
            raise ConfigError(together(problems))
        return self

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Config":
        """Return validated settings; ConfigError with key, value and remedy of all."""
        try:
            return cls.model_validate(settings)
        except (ValidationError, ConfigError):
            raise ConfigError(together(cls.problems(settings))) from None

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> "Config":
        """Return the settings of a run that began; its trackers may not be here."""
        try:
            return cls.model_validate(settings, context=RECORDED)
        except ForeignCodeError:
            raise
        except (ValidationError, ConfigError):
            raise ConfigError(together(cls.problems(settings))) from None

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> "Config":
        """Return recorded settings, and import none of the user's code for that.

        Whether a user's components go with each other is not looked at again: `recorded`
        does so before anything is played.
        """
        try:
            with no_foreign_code():
                return cls.recorded(settings)
        except ForeignCodeError:
            with no_foreign_code():
                return cls.model_validate(settings, context=READ)

    @classmethod
    def problems(cls, settings: Mapping[str, Any]) -> tuple[Problem, ...]:
        """Return everything for which `of` refuses these settings."""
        return problems_of(settings, _mistakes)

    def naming(self, **names: str) -> "Config":
        """Return what was set with other components as `name` of these sections."""
        settings = self.model_dump(exclude_unset=True)
        for section, name in names.items():
            settings.setdefault(section, {})["name"] = name
        return Config.of(settings)

    def with_settings(self, changed: Mapping[str, Any]) -> "Config":
        """Return what was set with other values of these settings, by `section.key`."""
        settings = self.model_dump(exclude_unset=True)
        for key, value in changed.items():
            section, _, inside = key.rpartition(".")
            place = settings
            for part in filter(None, section.split(".")):
                place = place.setdefault(part, {})
            place[inside] = value
        return Config.of(settings)

    def toml(self) -> str:
        """Return all settings as TOML that gives this very config again."""
        return tomli_w.dumps(_without_empty(self.model_dump(mode="json")))


def _without_empty(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out tables of options in which there is nothing."""
    return {
        key: _without_empty(cast("dict[str, Any]", value))
        if isinstance(value, dict)
        else value
        for key, value in settings.items()
        if value != {}
    }


def _mistakes(config: Sections) -> list[str]:
    """Return what is wrong between settings, and with what they give away."""
    told = has_password(config.ledger.url)
    leaks = [TOLD] if told else []
    return [*_disagreements(config), *leaks, *tracker_problems(config)]


def _disagreements(config: Sections) -> list[str]:
    """Return what is wrong between settings that are fine one by one."""
    population, method = config.population, config.method
    num_groups = len(population.groups) or 2
    problems = _population_problems(population)
    oracle = method.initialisation == "groups" and not brings_clients(config)
    if oracle and method.num_clusters != num_groups:
        problems.append(
            f"method.initialisation = 'groups' needs one cluster per group, found "
            f"num_clusters = {method.num_clusters} for {num_groups} groups. Set "
            f"method.num_clusters = {num_groups}."
        )
    problems += [*_share_problems(method), *privacy_problems(config)]
    problems += foreign_data_problems(config)
    problems += compatibility_problems(config)
    return problems


def _population_problems(population: PopulationConfig) -> list[str]:
    """Return why no clients can be made as these settings ask."""
    problems = [
        (
            f"population.{name} must be [low, high] with low <= high, found "
            f"{list(low_high)}. Swap the two numbers."
        )
        for name in ("minority", "majority", "thresholds")
        for low_high in [getattr(population, name)]
        if low_high[0] > low_high[1]
    ]
    shares = sum(group.share for group in population.groups)
    if population.groups and abs(shares - 1) > 1e-6:
        problems.append(
            f"The shares in population.groups must add up to 1, found {shares:g}. "
            f"Correct them."
        )
    still = getattr(kind_of(population, "shift"), "changes_nothing", False)
    if population.images == "per-group" and still:
        problems.append(
            "population.images = 'per-group' gives every group the same images, each in "
            "its own transform, found population.shift = "
            f"{population.shift!r}. Choose a shift, or images = 'disjoint'."
        )
    return problems


def _share_problems(method: MethodConfig) -> list[str]:
    """Return why the clusters cannot have the share that they are to keep."""
    share, most = method.target_share, 1 / method.num_clusters
    if share > most:
        return [
            f"method.target_share is what each of method.num_clusters = "
            f"{method.num_clusters} clusters keeps, so at most {most:.3g}, found "
            f"{share:g}. Lower it."
        ]
    if share > 0 < method.max_newcomers:
        return [
            f"method.target_share moves clients into small clusters, and "
            f"method.max_newcomers bounds who enters them, found {share:g} and "
            f"{method.max_newcomers:g}. Set one of the two to 0."
        ]
    foreign = {each.key for each in foreign_options(method)}
    keeps = is_built_in("selection", method.selection)
    if keeps and "method.target_share" not in foreign and share == 0:
        return [
            f"method.selection = {method.selection!r} keeps method.target_share of the "
            f"clients in every cluster, found 0. Set it, for example to {most / 2:.3g}."
        ]
    return []
