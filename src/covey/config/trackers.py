"""The settings that name trackers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast, no_type_check

from pydantic import AfterValidator, Field, ValidationInfo

from covey.components.built_ins import described
from covey.components.component import Component
from covey.components.registry import is_known, known_names, options_of, reference
from covey.components.slots import READ, RECORDED, Options, choice_of
from covey.errors import ConfigError
from covey.tracking import tracker_of

if TYPE_CHECKING:
    from covey.config.sections import Sections

__all__ = ["TrackerNames", "TrackerOptions", "tracker_problems", "with_names"]


@no_type_check  # a protocol that cannot be checked at run time
def _exists(name: str, info: ValidationInfo) -> str:
    """Refuse a name that nobody knows, but where a run recorded it."""
    if info.context in (READ, RECORDED) or is_known("tracker", name):
        return name
    known = ", ".join(known_names("tracker"))
    raise ValueError(f"must be one of {known} or package.module:name")


Name = Annotated[
    str, AfterValidator(_exists), Field(json_schema_extra=choice_of("tracker"))
]
TrackerNames = Annotated[
    tuple[Name, ...],
    Field(
        strict=False,
        description="who else is told of every round (`docs/tracking.md`), and changes "
        f"no result: a list of trackers. {described('tracker')}",
    ),
]
TrackerOptions = Annotated[
    Options,
    Field(
        description="tables of options of trackers, by their names, such as `{mlflow = "
        '{uri = "http://localhost:5000"}}`'
    ),
]


def with_names(settings: object) -> object:
    """Return settings with the names of trackers that a program passes as objects."""
    if not isinstance(settings, Mapping):
        return settings
    named = dict(cast("Mapping[str, Any]", settings))
    given = named.get("tracking")
    if given is None:
        return named
    several = given if isinstance(given, list | tuple) else [given]
    trackers = cast("Sequence[object]", several)
    tables = named.get("tracking_options", {})
    if not isinstance(tables, Mapping):
        return named  # the field itself says what is wrong
    options = dict(cast("Mapping[str, Any]", tables))
    for each in trackers:
        if isinstance(each, Component):
            options[reference(each)] = options_of(each)
    names = [e if isinstance(e, str) else reference(e) for e in trackers]
    named["tracking"] = names
    named["tracking_options"] = {
        **{k: v for k, v in options.items() if not _is_part(k, names)},
        **{name: _options(options, name) for name in names if _options(options, name)},
    }
    return named


def _options(options: Mapping[str, Any], name: str) -> Options:
    """Return the options of a name, which a dict with dots in its keys has in parts."""
    found: Any = options.get(name)
    if found is None:
        found = options
        for part in name.split("."):
            found = found.get(part, {}) if isinstance(found, Mapping) else {}
    return cast("Options", found)


def _is_part(key: str, names: Sequence[str]) -> bool:
    return any(name.startswith(f"{key}.") for name in names)


def tracker_problems(config: "Sections") -> list[str]:
    """Return why the trackers cannot be made, and which options are of none of them."""
    problems = [
        f"tracking_options has options of {name!r}, which tracking does not name. Add it "
        f"to tracking, or remove them."
        for name in config.tracking_options
        if name not in config.tracking
    ]
    for name in config.tracking:
        try:
            tracker_of(name, config.tracking_options.get(name, {}))
        except ConfigError as error:
            problems.append(str(error))
    return problems
