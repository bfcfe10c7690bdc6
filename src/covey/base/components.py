"""Components: settings that can act, each found by its name or by `package.module:name`.

A component is its section of the settings: `[aggregation] name = "trimmed-mean"`, and beside
`name` its own settings, which are the annotated fields of its class. What was read from a file
is the object that runs. A name is that of a built-in one (`built_ins`) or of an installed plug-in
(an entry point `KIND.NAME` of the group `covey.components`), or `package.module:name`, or nothing
but `python:name` where a program passes what no import finds again.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import count
from numbers import Integral
from types import FunctionType
from typing import Annotated, Any, NoReturn, TypeVar, cast, no_type_check

import tomli_w
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import (
    CoreSchema,
    InitErrorDetails,
    PydanticCustomError,
    PydanticSerializationError,
    ValidationError,
    core_schema,
    to_jsonable_python,
)

from covey.base.arguments import must_be
from covey.base.built_ins import built_ins, default_of
from covey.base.component_names import (
    PASSED,
    coveys_packages,
    described_in,
    find,
    imported,
    is_derived,
    is_known,
    may_be_part,
    passed,
    recorded_name,
    settings_of_kind,
    spec_of_kind,
)
from covey.base.errors import ConfigError
from covey.base.names import client_name
from covey.base.own_code import ForeignCodeError, check_import, source_hash

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
AboveZero = Annotated[float, Field(gt=0)]
Range = Annotated[tuple[float, float], Field(strict=False)]  # TOML has lists alone
Shares = Annotated[tuple[Share, Share], Field(strict=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]
ClientNames = Annotated[
    tuple[Annotated[str, BeforeValidator(lambda name: client_name(name) or name)], ...],
    Field(strict=False),
]
"""Clients' names; whole numbers are names, too."""
C = TypeVar("C", bound="Component")


class Section(BaseModel):
    """Frozen, and takes no other names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _MadeByPrograms(type(BaseModel)):
    """Of settings that a program makes as objects: a mistake is an error of covey's own.

    pydantic makes what is read from a file without this call, and collects all mistakes.
    """

    __hash__ = type.__hash__

    def __call__(cls, *args: Any, **settings: Any) -> Any:  # noqa: ANN401 - of a class
        try:
            return super().__call__(*args, **settings)
        except ValidationError as error:
            raise ConfigError(_mistakes(error, cls.__name__)) from None


class SettingsSection(Section, metaclass=_MadeByPrograms):
    """A section of a run's settings; its types are strict.

    A text where a number belongs is a mistake, and so is `true`. A whole number may stand
    where a number with a point does.
    """

    model_config = ConfigDict(strict=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON schema, in which the docstring describes every setting."""
        spec = handler.resolve_ref_schema(handler(schema))
        for key, meaning in described_in(cls).items():
            if key in spec.get("properties", {}):
                spec["properties"][key]["description"] = meaning
        return spec

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, settings: object) -> object:
        """Take the whole numbers of other libraries, like NumPy's, for Python's own."""
        if not isinstance(settings, Mapping):
            return settings
        values = cast("Mapping[Any, Any]", settings)
        whole = {k: int(v) for k, v in values.items() if isinstance(v, Integral)}
        return {**values, **{k: v for k, v in whole.items() if not isinstance(values[k], bool)}}


class Component(SettingsSection):
    """A replaceable part of a run: an algorithm, an aggregation, a loss, and so on.

    A subclass is frozen settings that can act. Its annotated fields are its settings: they
    are checked when it is made, stand beside its name in a run's `config.toml`, and are
    recorded with the run. All of them must be values that TOML can hold.

    What a component needs, and what it gives away, stands in class attributes of its kind.
    What a class of one's own does not say is taken as the least private.
    """

    @property
    def name(self) -> str:
        """The name under which settings record it."""
        return reference(self)

    @property
    def is_own(self) -> bool:
        """Whether a user wrote it."""
        return type(self).__module__.partition(".")[0] not in coveys_packages()

    def declares(self, attribute: str) -> bool:
        """Say whether a truth that protects somebody holds of it, and may be believed.

        A user's own class must say it itself: what it inherits says nothing, as it may have
        overridden what made it true.
        """
        believed = not self.is_own or attribute in vars(type(self))
        return believed and bool(getattr(self, attribute))

    @classmethod
    def around(cls, function: Callable[..., Any], options: Mapping[str, Any]) -> "Component":
        """Return the subclass of this kind that is an `OwnFunction`, around a user's function.

        Raises:
            ConfigError: there is none: it takes a class.
        """
        for subclass in cls.__subclasses__():
            if issubclass(subclass, OwnFunction):
                return subclass.model_validate({"function": function, **options})
        name = getattr(function, "__name__", function)
        raise ConfigError(f"must be derived from covey.{cls.__name__}, found {name}: derive it.")

    def conflicts(self, settings: Any) -> Iterable[Any]:  # noqa: ANN401 - of a lower room
        """Return what it does not go with in all settings, as of `covey.settings.rules`."""
        del settings
        return ()

    def own_settings(self) -> dict[str, Any]:
        """Return its settings as TOML has them, without those at their defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


class OwnFunction(Component):
    """A user's function as a component; the settings beside its name are its keywords."""

    model_config = ConfigDict(extra="allow")

    function: Callable[..., Any] = Field(exclude=True)

    @model_validator(mode="after")
    def _recorded(self) -> "OwnFunction":
        """Refuse options that a run could not record."""
        for key, value in self.options.items():
            try:
                tomli_w.dumps({"": to_jsonable_python(value, inf_nan_mode="null")})
            except (PydanticSerializationError, TypeError) as error:
                raise ValueError(
                    f"{key} must be text, a finite number, true or false, a list or a table, found "
                    f"{type(value).__name__}: change it, and name code as 'package.module:name'."
                ) from error
        return self

    @property
    def is_own(self) -> bool:
        """Whether a user wrote the function."""
        return getattr(self.function, "__module__", "").partition(".")[0] not in coveys_packages()

    @property
    def options(self) -> dict[str, Any]:
        """The keywords that the function is called with."""
        return dict(self.model_extra or {})

    @property
    def call(self) -> Callable[..., Any]:
        """The function with its keywords bound."""
        return partial(self.function, **self.options) if self.options else self.function


class UnloadedComponent(Component):
    """A user's own component of a run that is only read: its code is not imported."""

    model_config = ConfigDict(extra="allow")

    recorded_name: str = Field(exclude=True)
    key: str = Field(exclude=True)

    @property
    def name(self) -> str:
        """The name that was recorded."""
        return self.recorded_name

    @property
    def is_own(self) -> bool:
        """It is: covey's own code can be read."""
        return True

    def declares(self, attribute: str) -> bool:
        """Nothing is known of it."""
        del attribute
        return False

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401
        """Refuse what only its code would know."""
        value = (self.__pydantic_extra__ or {}).get(attribute)
        if value is not None or attribute.startswith("_"):
            return super().__getattr__(attribute)  # type: ignore[misc]
        return self.refuse()

    def refuse(self) -> NoReturn:
        """Refuse what only its code can do."""
        check_import(self.key, self.recorded_name)
        raise ConfigError(
            f"{self.key} = {self.recorded_name!r} must be here, found none: install its package."
        )


class Part:
    """Marks a setting whose value is a component: `Annotated[Loss, Part("loss")]`.

    It may be written as a name, as a table of `name` and the component's own settings, or be
    passed by a program.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    @no_type_check  # a protocol that cannot be checked at run time
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:  # noqa: ANN401
        """Return how a value becomes a component, and how it is written again."""
        return core_schema.no_info_plain_validator_function(
            lambda value: made(self.kind, source, value),
            serialization=core_schema.plain_serializer_function_ser_schema(_written, info_arg=True),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return a name, or a table of all that components of the kind have."""
        del schema, handler
        return spec_of_kind(self.kind)


@no_type_check  # a protocol that cannot be checked at run time
def _written(component: Component, info: core_schema.SerializationInfo) -> dict[str, Any]:
    # a user's own defaults are on record, since its code need not be there to show them
    without = info.exclude_defaults and not component.is_own
    own = component.model_dump(
        mode=info.mode, exclude_defaults=without, exclude_unset=info.exclude_unset
    )
    return {"name": component.name, **own}


def made(kind: str, base: type[C], value: Any) -> Any:  # noqa: ANN401
    """Return the component that a setting's value is or names.

    Args:
        kind: one of `MODULES`.
        base: what components of this kind are derived from.
        value: a component, a class or a function, a name, or a table of `name` and settings.

    Raises:
        ValidationError: at `name`: there is no such component; or at its settings.
        ForeignCodeError: its code is not to be imported from here.
    """
    options: dict[str, Any] = {}
    if isinstance(value, Mapping):
        options = dict(cast("Mapping[str, Any]", value))
        value = options.pop("name", default_of(kind))
    if isinstance(value, base):
        return type(value).model_validate({**dict(value), **options}) if options else value
    if isinstance(value, partial):
        options, value = {**value.keywords, **options}, value.func
    component: Any = value
    if isinstance(value, str):
        try:
            component = find(kind, value, "{key}")
        except ForeignCodeError:
            return UnloadedComponent(recorded_name=value, key=kind, **options)
        except ConfigError as error:
            raise _wrong_name(kind, value, error) from None
    if inspect.isclass(component) and issubclass(component, base):
        if lacking := getattr(component, "__abstractmethods__", ()):
            error = ConfigError(f"must have a method {min(lacking)}, found none: write it.")
            raise _wrong_name(kind, value, error)
        return component.model_validate(options)
    if not callable(component) or (inspect.isclass(component) and issubclass(component, Component)):
        shown = getattr(component, "__name__", repr(component))
        error = ConfigError(
            f"must be a covey.{base.__name__}, its name or a table with its name, found {shown}: "
            f"derive it from covey.{base.__name__}."
        )
        raise _wrong_name(kind, value, error)
    try:
        return base.around(component, options)
    except ConfigError as error:
        raise _wrong_name(kind, value, error) from None


def _wrong_name(kind: str, value: object, error: ConfigError) -> ValidationError:
    """Return what is wrong with the name of a component, as pydantic has it."""
    known = not isinstance(value, str) or is_known(kind, value)
    problem = PydanticCustomError("component" if known else "unknown", "{why}", {"why": str(error)})
    line = InitErrorDetails(type=problem, loc=("name",), input=value)
    return ValidationError.from_exception_data(kind, [line])


def create(kind: str, value: object, key: str, base: type[C]) -> C:
    """Return a component that no setting of a run holds, by its name or as a table.

    Raises:
        ConfigError: there is none of this name, or it does not have such settings.
    """
    try:
        return made(kind, base, value)
    except ValidationError as error:
        raise ConfigError(_mistakes(error, key)) from None


def _mistakes(error: ValidationError, key: str) -> str:
    """Return all that is wrong with a component, whose settings begin with this key."""
    return "; ".join(
        str(problem.get("ctx", {}).get("why")).replace("{key}", key)
        if problem["type"] in ("component", "unknown")
        else f"{'.'.join(map(str, (key, *problem['loc'])))} {must_be(problem)}, "
        f"found {problem['input']!r}: correct it."
        for problem in error.errors()
    )


def reference(component: object) -> str:
    """Return the name under which a component that a program passes is recorded.

    `package.module:name` where an import finds it again and it may be named; else
    `python:name`, which is found as long as this process runs.
    """
    maker: Any = component.func if isinstance(component, partial) else component
    if isinstance(component, OwnFunction):
        maker = component.function
    elif isinstance(component, Component):
        maker = type(component)
    qualname = getattr(maker, "__qualname__", type(maker).__qualname__)
    module = getattr(maker, "__module__", "")
    if known := recorded_name(maker):
        return known
    if module.startswith("torch.optim") and inspect.isclass(maker):
        return qualname
    is_part = is_derived(maker) or may_be_part(module.partition(".")[0])
    if module != "__main__" and imported(module, qualname) == maker and is_part:
        return f"{module}:{qualname}"
    word = f"{PASSED}{qualname.rpartition('.')[2].strip('<>')}"
    names = (word if n == 1 else f"{word}_{n}" for n in count(1))
    name = next(n for n in names if _is_same(passed.setdefault(n, maker), maker))
    passed[name] = maker
    return name


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - as they were passed
    """Say whether two parts are one: a notebook's cell that ran twice made two of it.

    Two that were made inside of a function may differ in what they close over.
    """
    if one == other or not all(_is_top_level(cls) for cls in (one, other)):
        return one == other
    source = source_hash(one)
    return source != "" and source == source_hash(other)


def _is_top_level(thing: object) -> bool:
    name = thing.__qualname__ if isinstance(thing, (type, FunctionType)) else ""
    return bool(name) and "<" not in name


def components_in(section: BaseModel, key: str = "") -> Sequence[tuple[str, Component]]:
    """Return every component in a section of the settings, with its `section.key`."""
    components: list[tuple[str, Component]] = []
    for name, value in section:
        path = f"{key}.{name}" if key else name
        if isinstance(value, Component):
            components.append((path, value))
        for item in value if isinstance(value, tuple) else ():
            if isinstance(item, Component):
                components.append((path, item))
        if isinstance(value, SettingsSection):
            components.extend(components_in(value, path))
    return components


@cache
def shared_settings(kind: str) -> frozenset[str]:
    """Return the settings that every component of a kind has."""
    cls = built_ins(kind)[next(iter(settings_of_kind(kind)))]
    bases = [b for b in cls.__mro__ if issubclass(b, Component) and b is not Component]
    return frozenset(bases[-1].model_fields)
