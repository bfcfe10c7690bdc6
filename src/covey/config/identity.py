"""What settings mean: which of them can change a result."""

from collections.abc import Mapping
from typing import Any, cast

from covey.components.built_ins import BUILT_INS
from covey.components.foreign import built_in_options, foreign_options
from covey.components.registry import is_built_in
from covey.config.sections import MethodConfig
from covey.config.settings import Config

__all__ = [
    "flat",
    "heeded",
    "of_other_algorithms",
    "that_matter",
    "unused",
]

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
