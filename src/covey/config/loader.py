"""Settings from a TOML file and from the command line."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.bounded_io import read_text
from covey.config.problems import Problem, together
from covey.config.settings import Config
from covey.errors import ConfigError

__all__ = ["config_of", "load_config", "put", "read_settings"]


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
