"""Sections of the settings that name components, and the components that they name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast, no_type_check

import tomli_w
from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticSerializationError, to_jsonable_python

from covey.base.errors import ConfigError
from covey.components.built_ins import BUILT_INS, DEFAULTS, described
from covey.components.registry import (
    Component,
    SettingsSection,
    create,
    find,
    is_built_in,
    is_known,
    known_names,
    options_of,
    reference,
)

C = TypeVar("C", bound=Component)

RECORDED, READ = "recorded", "read"
"""The context of validation in which trackers need not be installed."""

Options = dict[str, Any]
"""The options of a component, as TOML has them."""


def choice_of(kind: str, also: str = "") -> Callable[[JsonDict], None]:
    """Return what says in a text's schema that it names a component of this kind."""
    pattern = r"^[\w.]+:\w+$"

    def allowed(spec: JsonDict) -> None:  # asked late: who is installed takes a look
        spec["anyOf"] = [
            {"type": "string", "enum": [*known_names(kind)]},
            {"type": "string", "pattern": f"{pattern}|{also}" if also else pattern},
        ]

    return allowed


def slot(kind: str, about: str = "", also: str = "") -> Any:  # noqa: ANN401 - as pydantic's Field
    """Return a setting that names a component of this kind.

    `also` is a pattern of further names that the section itself looks up.
    """
    return Field(
        default=DEFAULTS[kind],
        description=f"{about}{described(kind)}",
        json_schema_extra=choice_of(kind, also),
    )


def options_table(name: str) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Return a setting that holds the options of the component that `name` names."""
    return Field(
        default={},
        description=f"a table of options of the component that `{name}` names, such as `{{a = 1}}`",
    )


class ComponentSection(SettingsSection):
    """A section in which some settings name components.

    Beside `name` stand `options`, beside any other setting `x` of `slots` `x_options`.
    A program may pass a component in place of a name, or of the whole section.
    """

    section: ClassVar[str] = ""
    """What it is called in the settings."""
    slots: ClassVar[Mapping[str, str]] = {}
    """Settings that name components, with the kind; the first stands for the section."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, settings: object) -> object:
        if isinstance(settings, Component) or callable(settings):
            settings = {next(iter(cls.slots)): settings}
        if not isinstance(settings, Mapping):
            return settings
        named = dict(cast("Mapping[str, Any]", settings))
        for field in cls.slots:
            passed = named.get(field)
            if isinstance(passed, Component) or callable(passed):
                named[field] = reference(passed)
                given = named.get(options_key(field), {})
                named[options_key(field)] = {**given, **options_of(passed)}
            cls._take_options(named, field)
            cls._check_options(named, options_key(field))
        return named

    @classmethod
    def _take_options(cls, named: dict[str, Any], field: str) -> None:
        """Put a built-in's options where the section has settings of their names."""
        kind, options = cls.slots[field], named.get(options_key(field))
        name = named.get(field, cls.model_fields[field].default)
        if not isinstance(options, Mapping) or not options:
            return
        if not isinstance(name, str) or not is_built_in(kind, name):
            return
        component = find(kind, name, f"{cls.section}.{field}")
        known: Mapping[str, object] = getattr(component, "model_fields", {})
        given = cast("Mapping[str, Any]", options)
        shared = given.keys() & known.keys() & cls.model_fields.keys()
        for key in shared:
            if key in named and named[key] != given[key]:
                raise ConfigError(
                    f"{cls.section}.{key} = {named[key]!r} stands beside the option {key} "
                    f"= {given[key]!r} of {name!r}, and both are the same setting. Remove "
                    f"one of them."
                )
            named[key] = given[key]
        named[options_key(field)] = {k: v for k, v in given.items() if k not in shared}

    @classmethod
    def _check_options(cls, named: Mapping[str, Any], field: str) -> None:
        """Refuse options that a run could not record."""
        options = named.get(field)
        given = cast("Mapping[str, Any]", options) if isinstance(options, Mapping) else {}
        for key, value in given.items():
            try:
                tomli_w.dumps({"": to_jsonable_python(value, inf_nan_mode="null")})
            except (PydanticSerializationError, TypeError) as error:
                raise ConfigError(
                    f"{cls.section}.{field}.{key} must be text, a finite number, true or "
                    f"false, a list or a table, as TOML has them, found a "
                    f"{type(value).__name__}. Change the value, and name code of yours "
                    f"as 'package.module:name'."
                ) from error

    @field_validator("*", mode="after")
    @classmethod
    @no_type_check  # a protocol that cannot be checked at run time
    def _exists(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - any setting's
        kind = cls.slots.get(info.field_name or "")
        if kind is None:
            return value
        default = cls.model_fields[info.field_name or ""].default
        if value != default and not is_known(kind, value):
            raise ValueError(
                f"must be one of {', '.join(known_names(kind))} or package.module:name"
            )
        return value


def options_key(field: str) -> str:
    """Return the setting that holds the options of the component that `field` names."""
    return "options" if field == "name" else f"{field}_options"


def component_of(section: ComponentSection, field: str, base: type[C]) -> Any:  # noqa: ANN401
    """Return the component that a setting names, or a user's function.

    A built-in component's options may also stand in the section itself, where the section
    has settings of their names.

    Args:
        section: of the settings.
        field: the setting.
        base: what components of this kind are derived from.

    Raises:
        ConfigError: there is none, or it has no such options.
    """
    kind, name = type(section).slots[field], getattr(section, field)
    key = f"{type(section).section}.{field}"
    given: Options = dict(getattr(section, options_key(field)))
    if is_built_in(kind, name):
        known = find(kind, name, key).model_fields.keys() & type(section).model_fields
        given = {each: getattr(section, each) for each in known} | given
    return create(kind, name, given, key, base)


class Foreign(NamedTuple):
    """A setting that the named component does not have.

    Attributes:
        key: of the setting, `section.key`.
        slot: the setting that names the component, `section.key`.
        owners: the built-in components that have such an option.
        found: the component that is named.
    """

    key: str
    slot: str
    owners: tuple[str, ...]
    found: str

    @property
    def reason(self) -> str:
        """Why it does nothing; no full stop."""
        return reserved(self.slot, self.owners, self.found)


def reserved(slot: str, owners: Sequence[str], found: str) -> str:
    """Return why a setting does nothing that only these components look at."""
    names = " and ".join(filter(None, (", ".join(map(repr, owners[:-1])), repr(owners[-1]))))
    return f"it is for {slot} = {names}, found {found!r}"


def foreign_options(section: ComponentSection) -> Iterator[Foreign]:
    """Yield the settings that are options of other built-in components alone.

    A component of the user's own has its options in a table, and none of these.
    """
    known, prefix = type(section).model_fields, type(section).section
    for slot, kind in type(section).slots.items():
        found: str = getattr(section, slot)
        options = {name: built_in_options(kind, name) & known.keys() for name in BUILT_INS[kind]}
        own = built_in_options(kind, found)
        for key in known:
            owners = tuple(name for name, keys in options.items() if key in keys)
            if owners and key not in own:
                yield Foreign(f"{prefix}.{key}", f"{prefix}.{slot}", owners, found)


def built_in_options(kind: str, name: str) -> frozenset[str]:
    """Return the options of a built-in component; of a user's own nothing is known."""
    if not is_built_in(kind, name):
        return frozenset()
    return frozenset(getattr(find(kind, name, kind), "model_fields", ()))
