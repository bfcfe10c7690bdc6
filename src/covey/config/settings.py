"""All settings of a run together: what must hold between them, and how they are read."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, no_type_check

import tomli_w
from pydantic import ValidationError, ValidationInfo, model_validator

from covey.base.errors import ConfigError
from covey.base.files import read_text
from covey.components.built_ins import BUILT_INS
from covey.components.registry import ForeignCodeError, is_built_in, no_foreign_code
from covey.components.slots import READ, RECORDED, built_in_options, foreign_options
from covey.config.learning import MethodConfig, PopulationConfig
from covey.config.problems import Problem, problems_of, together
from covey.config.rules import (
    brings_clients,
    compatibility_problems,
    foreign_data_problems,
    kind_of,
    privacy_problems,
)
from covey.config.sections import Sections, tracker_problems

IN_USER = re.compile(r"(://[^/?#@:]*):[^@/]*@")
IN_QUERY = re.compile(r"(\b\w*password=)[^&\s\"']+", re.IGNORECASE)


def has_password(url: str) -> bool:
    """Return whether a URL holds a password, before its host or in its query."""
    return bool(IN_USER.search(url) or IN_QUERY.search(url))


def without_passwords(text: str) -> str:
    """Return a text with stars for the passwords of URLs in it."""
    return IN_QUERY.sub(r"\1***", IN_USER.sub(r"\1:***@", text))


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
        key: _without_empty(cast("dict[str, Any]", value)) if isinstance(value, dict) else value
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
            f"The shares in population.groups must add up to 1, found {shares:g}. Correct them."
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


CHANGES_NOTHING = (
    "engine.workers",
    "engine.options.address",  # of a Ray cluster: where the work is done
    "checkpoints.",
    "tracking",  # and tracking_options: who else is told
    "ledger.",  # where the record is kept; its head says what is in it
    "data.dir",
    "merge.deniability_threshold",  # judges requests, not training
    "merge.options.deniability_threshold",
)


def that_matter(config: Config) -> dict[str, Any]:
    """Return the settings that can change a result, as `section.key` to value.

    Only those that are not the defaults.
    """
    found = flat(config.model_dump(mode="json", exclude_defaults=True))
    return {k: v for k, v in found.items() if not k.startswith(CHANGES_NOTHING)}


def unused(method: str, selection: str) -> tuple[str, ...]:
    """Return how the settings begin that this method does not look at."""
    named = MethodConfig.model_construct(name=method, selection=selection)
    foreign = (e.key for e in foreign_options(named) if e.slot == "method.selection")
    return (*of_other_algorithms(method), *foreign)


def of_other_algorithms(method: str) -> tuple[str, ...]:
    """Return the settings that this algorithm does not look at, whatever else is set.

    A user's own may look at all of them. What no algorithm has as an option is for the
    selection, and for algorithms that have one.
    """
    if not is_built_in("algorithm", method):
        return ()
    own = built_in_options("algorithm", method)
    keys = MethodConfig.model_fields.keys() - {"name", "options"}
    of_selection = keys - _options_of_algorithms() if "selection" in own else set[str]()
    return tuple(f"method.{key}" for key in sorted(keys - own - of_selection))


def _options_of_algorithms() -> set[str]:
    names = BUILT_INS["algorithm"]
    return {key for name in names for key in built_in_options("algorithm", name)}


def heeded(settings: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Leave out of `section.key` settings what the config's method does not look at."""
    ignored = unused(config.method.name, config.method.selection)
    used = {key: v for key, v in settings.items() if not key.startswith(ignored)}
    return used | {"method.name": config.method.name}


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as `section.key` to value."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            inner = flat(cast("Mapping[str, Any]", value))
            found |= {f"{key}.{k}": v for k, v in inner.items()}
        else:
            found[key] = value
    return found


def config_of(given: object) -> Config:
    """Return the settings that a program passes: a Config, a dict, or None.

    A dict is nested as a config file is, or has keys with dots, or both.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    if given is None:
        return Config()
    if isinstance(given, Config):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"config must be a covey.Config or a dict of settings, found a "
            f"{type(given).__name__}. A file's settings are covey.load_config(path)."
        )
    settings: dict[str, Any] = {}
    _put_all(settings, given, [])
    return Config.of(settings)


def _put_all(settings: dict[str, Any], given: Any, above: list[str]) -> None:  # noqa: ANN401
    for key, value in given.items():
        if not isinstance(key, str):
            raise ConfigError(
                f"config must have names of settings as keys, found {key!r}. Write for "
                f"example {{'train.local_epochs': 5}}."
            )
        path = [*above, *key.split(".")]
        if isinstance(value, Mapping):
            _put_all(settings, value, path)
        elif _is_put(settings, path):
            raise ConfigError(
                f"config sets {'.'.join(path)} twice, nested and with a dot. Remove one."
            )
        else:
            _put(settings, path, _plain(value))


def _is_put(settings: Any, path: list[str]) -> bool:  # noqa: ANN401 - nested, as far as it goes
    for part in path:
        if not isinstance(settings, Mapping) or part not in settings:
            return False
        settings = settings[part]
    return True


def _plain(value: object) -> object:
    """Return numbers of numpy or torch as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value  # type: ignore[attr-defined]


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read settings from a TOML file (None: the defaults) and `section.key=value` pairs.

    Raises:
        ConfigError: naming the key, the value and the remedy of every mistake.
    """
    settings, problems = read_settings(path, overrides)
    if problems := [*problems, *Config.problems(settings)]:
        raise ConfigError(together(problems))
    return Config.of(settings)


def read_settings(
    path: str | Path | None, overrides: Sequence[str] = ()
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Read settings as `load_config` does, unchecked; and what is wrong with the pairs.

    Raises:
        ConfigError: there is no such file, or it is no TOML.
    """
    settings = {} if path is None else _read(Path(path))
    problems: list[Problem] = []
    for pair in overrides:
        try:
            put(settings, pair)
        except ConfigError as error:
            problems.append(Problem(str(error)))
    return settings, tuple(problems)


def put(settings: dict[str, Any], pair: str) -> None:
    """Put a `section.key=value` into nested settings.

    Raises:
        ConfigError: it is no such pair, or the section is a value.
    """
    key, equals, text = pair.partition("=")
    if not equals:
        raise ConfigError(
            f"--set takes section.key=value, found {pair!r}. "
            f"Write for example --set train.local_epochs=5."
        )
    _put(settings, key.strip().split("."), _value(text.strip()))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ConfigError(
            f"There is no config file {path}. Give the path of a TOML file, or none at "
            f"all to run the embedded example."
        ) from None
    except (ValueError, RecursionError, OSError) as error:
        raise ConfigError(f"{path} is not a readable TOML file: {error}.") from None


def _value(text: str) -> Any:  # noqa: ANN401 - whatever TOML can say
    """Return a TOML value, and bare words as strings."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"--set takes a value that TOML can hold, but: {error}. Shorten it."
        ) from None


def _put(settings: dict[str, Any], path: list[str], value: object) -> None:
    *sections, key = path
    inner: Any = settings
    for section in sections:
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"Unknown setting {'.'.join(path)!r}: {section} is a value and has no "
                f"keys. Correct the name."
            )
    inner[key] = value
