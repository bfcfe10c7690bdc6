"""All settings of a run together: read, set one by one, and checked at once."""

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, no_type_check

import tomli_w
from pydantic import ValidationError, ValidationInfo, model_validator

from covey.base.arguments import place
from covey.base.components import Component
from covey.base.errors import ConfigError
from covey.base.files import read_text
from covey.base.own_code import no_foreign_code
from covey.settings.problems import Problem, holder_missing, problems_of, together
from covey.settings.reference import kind_at, known_settings
from covey.settings.rules import Idle, SettingsConflict, reasons, refusals
from covey.settings.schema import Sections

IN_USER = re.compile(r"(://[^/?#@:]*):[^@/]*@")
IN_QUERY = re.compile(r"(\b\w*password=)[^&\s\"']+", re.IGNORECASE)


RECORDED = "recorded"
"""The context of validation of settings that a run recorded."""

CHANGES_NOTHING = (
    "engine.workers",
    "engine.address",  # where the work is done
    "checkpoints.",
    "tracking",
    "ledger.",  # where the record is kept; its head says what is in it
    "data.dir",
    "aggregation.deniability_threshold",  # judges requests, not training
)


def without_passwords(text: str) -> str:
    """Return a text with stars for the passwords of URLs in it."""
    return IN_QUERY.sub(r"\1***", IN_USER.sub(r"\1:***@", text))


class Config(Sections):
    """All settings of a run, which agree with each other.

    A component may stand in place of its section: `Config(method=FedAvg())`.
    """

    if TYPE_CHECKING:

        def __init__(self, **settings: Any) -> None: ...  # noqa: ANN401

    @model_validator(mode="after")
    @no_type_check  # a protocol that cannot be checked at run time
    def _agree(self, info: ValidationInfo) -> "Config":
        """Refuse settings that cannot be had together, but where user's code is only read."""
        if self.is_unread:
            return self
        # what a run recorded can no more be changed: it is masked where it is shown
        check = refusals if info.context == RECORDED else _mistakes
        if problems := [Problem(finding.message, finding.keys[0]) for finding in check(self)]:
            raise ConfigError(together(problems))
        return self

    @classmethod
    def of(cls, settings: Mapping[str, Any], context: str | None = None) -> "Config":
        """Return validated settings; ConfigError with key, value and remedy of all."""
        try:
            return cls.model_validate(settings, context=context)
        except (ValidationError, ConfigError) as error:
            raise ConfigError(together(cls.problems(settings)) or str(error)) from None

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> "Config":
        """Return the settings of a run that began."""
        return cls.of(settings, RECORDED)

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> "Config":
        """Return recorded settings, and import none of the user's code for that.

        Whether a user's components go with each other is not looked at again: `recorded`
        does so before anything is played.
        """
        with no_foreign_code():
            return cls.recorded(settings)

    @classmethod
    def problems(cls, settings: Mapping[str, Any]) -> tuple[Problem, ...]:
        """Return everything for which `of` refuses these settings."""
        return problems_of(settings, _mistakes)

    def naming(self, **names: str) -> "Config":
        """Return what was set with other components as `name` of these sections."""
        return self.with_settings({f"{section}.name": name for section, name in names.items()})

    def with_settings(self, changed: Mapping[str, Any]) -> "Config":
        """Return what was set with other values of these settings, by `section.key`.

        Another component takes those of the settings beside its name that it has.
        """
        return Config.of(self.changed(changed))

    def changed(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was set with other values of these settings, nested and unchecked."""
        settings = self.model_dump(exclude_unset=True)
        for key in sorted(changed, key=_names_first):
            replace_setting(settings, key.split("."), changed[key])
        return settings

    def toml(self) -> str:
        """Return all settings as TOML that gives this very config again."""
        return tomli_w.dumps(self.model_dump(mode="json"))


def _mistakes(config: Sections) -> Iterator[SettingsConflict]:
    """Yield what is wrong between settings, and with what they give away."""
    yield from refusals(config)
    if IN_USER.search(config.ledger.url) or IN_QUERY.search(config.ledger.url):
        yield SettingsConflict(
            ("ledger.url",),
            "ledger.url must hold no password, as settings are kept and shown, found one: put the "
            "URL into an environment variable and set ledger.url = 'env:NAME', or into a file that "
            "only its owner may read and set 'file:PATH', or leave it to libpq's own ~/.pgpass.",
        )


def idle_settings(config: Config) -> tuple[Idle, ...]:
    """Return the settings that are not at their defaults, and do nothing.

    None, where a user's own code that they name was not imported: nothing is known then.
    """
    if config.is_unread:
        return ()
    changed = flat(config.model_dump(mode="json", exclude_defaults=True))
    idle: dict[str, Idle] = {}
    for keys, holds, why in reasons(config) if changed else ():
        of = tuple(f"{key}." for key in keys)
        for key, value in changed.items():
            if holds and f"{key}.".startswith(of):
                idle.setdefault(key, Idle(key, value, why))
    return tuple(idle[key] for key in changed if key in idle)


def that_matter(config: Config) -> dict[str, Any]:
    """Return the settings that can change a result, as `section.key` to value.

    Only those that are not the defaults.
    """
    settings = flat(config.model_dump(mode="json", exclude_defaults=True))
    usual = {f"{name}.name": v.name for name, v in Sections() if isinstance(v, Component)}
    return {
        key: value
        for key, value in settings.items()
        if not key.startswith(CHANGES_NOTHING) and (key, value) not in usual.items()
    }


def settings_hash(config: Config) -> str:
    """Hash the settings that can change a result: not how many workers found it."""
    return hashlib.sha256(repr(sorted(that_matter(config).items())).encode()).hexdigest()


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings as `section.key` to value; of a nested component its name.

    `train.optimizer` is the name, and `train.optimizer.momentum` a setting of it.
    """
    result: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            for inner, inner_value in flat(cast("Mapping[str, Any]", value)).items():
                result[f"{key}.{inner}"] = inner_value
        else:
            result[key] = value
    return result


def config_of(settings: object) -> Config:
    """Return the settings that a program passes: a Config, a dict, or None.

    A dict is nested as a config file is, or has keys with dots, or both.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    if settings is None:
        return Config()
    if isinstance(settings, Config):
        return settings
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"config must be a covey.Config or a dict of settings, found a "
            f"{type(settings).__name__}: take covey.load_config(path) for a file's."
        )
    nested: dict[str, Any] = {}
    seen: set[tuple[str, ...]] = set()
    for path, value in _pairs(cast("Mapping[Any, Any]", settings)):
        if path in seen:
            raise ConfigError(f"config must set {'.'.join(path)} once, found it twice: remove one.")
        seen.update(path[:depth] for depth in range(1, len(path) + 1))
        _put(nested, path, value)
    return Config.of(nested)


def _pairs(
    table: Mapping[Any, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield where each value stands, and it; numbers of numpy or torch become Python's."""
    for key, value in table.items():
        if not isinstance(key, str):
            raise ConfigError(
                f"Keys of config must be texts, found {key!r}: write as {{'train.batch_size': 5}}."
            )
        path = (*above, *key.split("."))
        if isinstance(value, Mapping):
            yield from _pairs(cast("Mapping[Any, Any]", value), path)
        else:
            yield path, value.tolist() if hasattr(value, "tolist") else value


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read settings from a TOML file (None: the defaults) and `section.key=value` pairs.

    Raises:
        ConfigError: naming the key, the value and the remedy of every mistake.
    """
    return Config.of(swept_settings(path, overrides, ()))


def read_settings(
    path: str | Path | None, overrides: Sequence[str]
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """Read settings as `load_config` does, unchecked; and what is wrong with the pairs.

    A pair that names another component leaves of the file's section what that one has.

    Raises:
        ConfigError: there is no such file, or it is no TOML.
    """
    settings: dict[str, Any] = {}
    problems: list[Problem] = []
    try:
        settings = {} if path is None else tomllib.loads(read_text(place("path", path)))
    except FileNotFoundError:
        raise ConfigError(
            f"{path} must be a TOML file, found none: give one, or none at all for the example."
        ) from None
    except (ValueError, RecursionError, OSError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} must be a TOML file, found {why}: correct it.") from None
    for pair in sorted(overrides, key=_names_first):
        try:
            put(settings, pair)
        except ConfigError as error:
            problems.append(Problem(str(error)))
    return settings, tuple(problems)


def swept_settings(
    path: str | Path | None, overrides: Sequence[str], swept: Sequence[str]
) -> dict[str, Any]:
    """Read settings as `load_config` does, and put the pairs of a sweep; unchecked.

    Raises:
        ConfigError: they cannot be read, or a pair is none.
    """
    settings, problems = read_settings(path, overrides)
    if problems:
        raise ConfigError(together([*problems, *Config.problems(settings)]))
    for pair in sorted(swept, key=_names_first):
        put(settings, pair)
    return settings


def put(settings: dict[str, Any], pair: str) -> None:
    """Put a `section.key=value` into nested settings: a TOML value, or a bare word.

    Raises:
        ConfigError: it is no such pair, or the section is a value.
    """
    key, equals, text = pair.partition("=")
    if not equals:
        raise ConfigError(f"--set takes section.key=value, found {pair!r}: try train.batch_size=5.")
    try:
        value = tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--set takes what TOML holds, found {error}: shorten it.") from None
    replace_setting(settings, key.strip().split("."), value)


def replace_setting(settings: dict[str, Any], path: Sequence[str], value: object) -> None:
    """Put a value into nested settings; of a component's name, forget what was another's."""
    *section, key = path
    inner: Any = settings
    for part in section:
        inner = inner.get(part, {}) if isinstance(inner, dict) else {}
    if key == "name" and isinstance(inner, dict) and isinstance(value, str):
        known = known_settings(section, value)
        for other in [key for key in inner if known is not None and key not in known]:
            del inner[other]
    _put(settings, path, value)


def take_strange(settings: dict[str, Any], keys: Sequence[str]) -> dict[str, str]:
    """Take out of these settings those that the components there do not have; say why."""
    problems: dict[str, str] = {}
    for key in keys:
        path = key.split(".")
        for depth in range(2, len(path) + 1):
            missing = holder_missing(path[:depth], settings)
            if missing and ":" not in missing[1]:  # what a user's own has is not known here
                problems[key] = f"it is a setting of {missing[0]}, found {missing[1]!r}"
                inner: Any = settings
                for part in path[: depth - 1]:
                    inner = inner.get(part) if isinstance(inner, dict) else None
                if isinstance(inner, dict):
                    inner.pop(path[depth - 1], None)
                break
    return problems


def _names_first(pair: str) -> tuple[bool, int]:
    """Order settings, with values or without, so that none is put before its component."""
    key = pair.partition("=")[0].strip()
    return not key.endswith(".name"), key.count(".")


def _put(settings: dict[str, Any], path: Sequence[str], value: object) -> None:
    *sections, key = path
    inner: Any = settings
    for depth, section in enumerate(sections, 1):
        if isinstance(inner.get(section), str) and kind_at(path[:depth]):  # a component's name
            inner[section] = {"name": inner[section]}
        inner = inner.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(
                f"{'.'.join(path)!r} must be in a section, found a value at {section}: correct it."
            )
    inner[key] = value
