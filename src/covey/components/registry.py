"""From a name in the settings to a component: built in, installed, or a user's own.

A name is one of `BUILT_INS`, or that of an installed plug-in (an entry point
`KIND.NAME` of the group `covey.components`), or `package.module:name`. A program passes
the component itself, and `reference` returns the name under which it is recorded.

What one part of a run rests on, and another may take away.

Every capability is there until some part rules it out. One check compares them all, so
that no part has to know another by name.

When a user's own code may be imported, and from where.

A setting can name any function of any module, so the settings of a run are code. Who only
reads a run runs none of it; who carries one on imports it from where the run's first start
did.
"""

import hashlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache, partial
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from itertools import count
from numbers import Integral
from pathlib import Path
from types import CodeType, FunctionType
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from covey.base.errors import ConfigError
from covey.components.built_ins import BUILT_INS


class Capability(Enum):
    """Something that a part of a run may need; the value completes "X needs ...".

    The set is closed: a component chooses among these, and adds none.
    """

    SINGLE_UPDATES = "the server to see single updates"
    SUMS_ALONE = "clients to send nothing but sums"
    TRAINED_UPDATES = "updates that clients train"
    STORED_UPDATES = "clients' updates to be kept and calibrated"
    EXACT_SUMS = "sums without noise"
    BOUNDED_CONTRIBUTION = "every client's contribution to be bounded"
    UNIFORM_WEIGHTS = "clients to count alike, however many examples they hold"
    EXAMPLE_COUNTS = "to know how many examples each client holds"
    REPLAYABLE_ROUNDS = "rounds that can be played again"
    SHARED_MODEL = "one model for everybody"
    SHARED_CLUSTERS = "models that several clients share"
    CLUSTER_CHOICE = "clients that choose their cluster"
    COST_CHOICE = "choices by the lowest cost of a round"
    CLUSTER_ISOLATION = "every cluster to depend on its own clients only"
    PUBLIC_COHORT = "who takes part to be no secret"
    KNOWN_POPULATION = "to know all clients from the start"
    KNOWN_GROUPS = "to know every client's group"
    ALL_LOSSES = "to know what every client measured"
    SERVER_DATA = "data on the server that are like the clients'"
    CLIENT_DATA = "to see every client's data"
    HELD_OUT_EXAMPLES = "clients to hold examples out"
    MEASURED_RISK = "a measured risk"
    CLASS_LABELS = "labels that are classes"
    EXCLUSIVE_CLASSES = "one class per example"
    NUMBER_LABELS = "labels that are numbers"
    BOUNDED_LOSS = "a loss with a known bound"
    PLAIN_GRADIENTS = "the gradient of a batch's mean loss"
    EXAMPLE_GRADIENTS = "the gradient of every single example"
    SEPARATE_TRAINING = "every client to be trained by itself"
    FULL_PRECISION = "training in float32"
    SIMULATED_CLIENTS = "clients that are simulated here"
    DATA_SET = "one data set out of which clients' examples are dealt"
    IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Claim:
    """What one part of a run needs and rules out.

    Attributes:
        part: what it is called in messages: the setting that asks for it.
        remedy: what else to do about a conflict than to change the other part.
    """

    part: str
    requires: frozenset[Capability] = frozenset()
    rules_out: frozenset[Capability] = frozenset()
    remedy: str = ""


def conflicts(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield a sentence for every part that needs what another part rules out."""
    for needy in claims:
        for other in claims:
            shared = needy.requires & other.rules_out
            for capability in sorted(shared, key=lambda each: each.name):
                yield (
                    f"{needy.part} needs {capability.value}, but {other.part} rules it "
                    f"out. {needy.remedy or other.remedy or 'Change one of the two.'}"
                )


Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
Range = Annotated[tuple[float, float], Field(strict=False)]  # TOML has lists alone
Shares = Annotated[tuple[Share, Share], Field(strict=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]


class Section(BaseModel):
    """Frozen, and knows no other names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SettingsSection(Section):
    """A section of a run's settings; its types are strict.

    A text where a number belongs is a mistake, and so is `true`. A whole number may stand
    where a number with a point does.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, settings: object) -> object:
        """Take the whole numbers of other libraries, like NumPy's, for Python's own."""
        if not isinstance(settings, Mapping):
            return settings
        values = cast("Mapping[Any, Any]", settings)
        return {
            key: int(value) if _counts_elsewhere(value) else value for key, value in values.items()
        }


def _counts_elsewhere(value: object) -> bool:
    """Say whether a value is another library's whole number."""
    return isinstance(value, Integral) and not isinstance(value, (bool, int))


class Component(SettingsSection):
    """A replaceable part of a run: an algorithm, an aggregation, a loss, and so on.

    A subclass is frozen settings that can act. Its annotated fields are its options: they
    are checked when it is made, stand in a run's `config.toml` under
    `[section.options]`, and are recorded with the run. All of them must be values that
    TOML can hold.

    Attributes:
        requires: what it rests on.
        rules_out: what is no longer there beside it. Override `claim` where either hangs
            on the options.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    rules_out: ClassVar[frozenset[Capability]] = frozenset()

    def claim(self, part: str) -> Claim:
        """Return what this component needs and rules out; `part` is its setting."""
        return Claim(part, self.requires, self.rules_out)

    def claims(self, part: str) -> Iterator[Claim]:
        """Yield the claim, and those of single options with words of their own."""
        yield self.claim(part)

    def idle_options(self, section: str) -> Iterator[tuple[str, str]]:
        """Yield the options that do nothing beside the others, each with the reason.

        Args:
            section: of the settings, for the reasons, which have no full stop.
        """
        del section
        yield from ()


_allowed: ContextVar[bool] = ContextVar("allowed", default=True)
_origins: ContextVar[Mapping[str, str] | None] = ContextVar("origins", default=None)


class ForeignCodeError(ConfigError):
    """A user's own code would have to be imported where none is run."""


@contextmanager
def no_foreign_code() -> Generator[None]:
    """Import nothing that settings name but what covey and installed plug-ins bring."""
    before = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(before)


@contextmanager
def only_from(origins: Mapping[str, str]) -> Generator[None]:
    """Import what settings name only from these files, and nothing else.

    Args:
        origins: as `origins_of` returned them when the run was started.
    """
    before = _origins.set(origins)
    try:
        yield
    finally:
        _origins.reset(before)


def check_import(key: str, name: str) -> None:
    """Refuse the import of `package.module:name`, unless it may be imported here.

    Raises:
        ForeignCodeError: this only reads a run.
        ConfigError: the package lies elsewhere than when the run was started.
    """
    if not _allowed.get():
        raise ForeignCodeError(
            f"{key} = {name!r} names code that is not covey's, and reading a run runs "
            f"none. What needs it is run and resume; do that with runs of your own alone."
        )
    origins, package = _origins.get(), _package(name)
    if origins is None:
        return
    known, found = origins.get(package), _origin(package)
    if known is None or found != known:
        raise ConfigError(
            f"{key} = {name!r} must be imported from where the run's first start did, "
            f"{known or 'which imported no such thing'}, but it would be from "
            f"{found or 'nowhere'}. Put the folder in PYTHONPATH from which it was "
            f"started, or start the command there."
        )


def origins_of(names: Iterable[str]) -> dict[str, str]:
    """Return where the packages of `package.module:name` lie, for `only_from`."""
    found = {package: _origin(package) for package in map(_package, names)}
    return {package: origin for package, origin in sorted(found.items()) if origin}


def _package(name: str) -> str:
    return name.partition(":")[0].partition(".")[0]


def _origin(package: str) -> str | None:
    """Return the file of a top-level package, and run none of its code; None: unknown."""
    loaded = sys.modules.get(package)
    spec = loaded.__spec__ if loaded else PathFinder.find_spec(package)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    place = spec.origin or (places[0] if places else None)
    return str(Path(place).resolve()) if place and Path(place).exists() else place


PLAIN = (bool, int, float, complex, str, bytes, type(None))
"""Constants of a module that count as they are."""


def source_hash(maker: object) -> str:
    """Return the SHA-256 of a user's own class or function, as text; "" if unknown.

    With it counts what it uses by name from its own module: functions, classes above all
    those that it is derived from, and constants. The rest of the file does not, such as a
    script that goes on below.
    """
    found: dict[str, str] = {}
    _collect(maker.func if isinstance(maker, partial) else maker, found)
    if not any(found.values()):
        return ""
    digest = hashlib.sha256()
    for name, text in sorted(found.items()):
        digest.update(f"{name}\n{text}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _collect(part: Any, found: dict[str, str]) -> None:  # noqa: ANN401 - anything
    """Add the source of a class or a function, and of what it uses, by name."""
    if not isinstance(part, type):
        part = inspect.unwrap(part) if callable(part) else part
        part = part if isinstance(part, FunctionType) else type(part)
    name, module = part.__qualname__, part.__module__
    if name in found or module == "builtins":
        return
    found[name] = ""  # whatever it uses may use it
    if isinstance(part, FunctionType):
        found[name] = _text(part)
        used = [*_used_by(part)]
    else:
        methods = [*_functions_of(part)]
        found[name] = _text(part) or "\n".join(
            filter(None, [_fields_of(part) if methods else "", *map(_text, methods)])
        )
        used = [pair for each in methods for pair in _used_by(each)]
        used += [(base.__qualname__, base) for base in part.__bases__]
    for key, value in used:
        if isinstance(value, (type, FunctionType)) and value.__module__ == module:
            _collect(value, found)
        elif _is_plain(value):
            found.setdefault(f"{module}.{key}", repr(value))


def _is_plain(value: object) -> bool:
    """Say whether what a value is written as is all that it is."""
    if isinstance(value, tuple):
        return all(map(_is_plain, cast("tuple[object, ...]", value)))
    return isinstance(value, PLAIN)


def _text(part: type | FunctionType) -> str:
    """Return the source as it stands in its file or cell; "" where it is in none."""
    try:
        return textwrap.dedent(inspect.getsource(part)).rstrip()
    except (OSError, TypeError, SyntaxError):
        return ""


def _functions_of(part: type) -> Iterator[FunctionType]:
    """Yield the functions that a class brings itself, also in properties and such."""
    for _, value in sorted(vars(part).items()):
        wrapped = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(wrapped, FunctionType) and wrapped.__module__ == part.__module__:
            yield wrapped


def _fields_of(part: type) -> str:
    """Return what is annotated and set in a class whose own text is not at hand."""
    plain = {k: v for k, v in vars(part).items() if _is_plain(v) and k[0] != "_"}
    fields = getattr(part, "model_fields", {})
    options = [f"{key}: {value!r}" for key, value in sorted(fields.items())]
    return "\n".join([*options, *(f"{k} = {v!r}" for k, v in sorted(plain.items()))])


def _used_by(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what a function finds by name outside of itself, in its module or around it."""
    inside = inspect.unwrap(function).__code__
    cells = function.__closure__ or ()
    for key, cell in zip(inside.co_freevars, cells, strict=False):
        try:
            yield key, cell.cell_contents
        except ValueError:  # not set yet
            continue
    for key in sorted(_names_in(inside)):
        if key in function.__globals__ and not key.startswith("__"):
            yield key, function.__globals__[key]


def _names_in(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


GROUP = "covey.components"

PASSED = "python:"
"""How names begin of what no import can find."""

_passed: dict[str, object] = {}
"""Components that a program passed and that no import can find again, by name."""


@cache
def _installed() -> Mapping[str, str]:
    """Return every installed plug-in, `kind.name` to `package.module:name`."""
    return {each.name: each.value for each in entry_points(group=GROUP)}


@cache
def _beside_covey() -> frozenset[str]:
    """Return those of them that are installed with covey itself, as `kind.name`."""
    points = entry_points(group=GROUP)
    return frozenset(p.name for p in points if p.dist and p.dist.name == "covey")


def is_built_in(kind: str, name: str) -> bool:
    """Say whether covey itself brings this component, or a package installed with it."""
    return name in BUILT_INS[kind] or f"{kind}.{name}" in _beside_covey()


def known_names(kind: str) -> tuple[str, ...]:
    """Return the names of all built-in and installed components of a kind."""
    prefix = f"{kind}."
    plugins = (n.removeprefix(prefix) for n in _installed() if n.startswith(prefix))
    return (*BUILT_INS[kind], *sorted(plugins))


def is_known(kind: str, name: str) -> bool:
    """Say whether this can be a component's name; nothing is imported for it."""
    return ":" in name or name in known_names(kind)


def find(kind: str, name: str, key: str) -> Any:  # noqa: ANN401 - a class, or a function
    """Return the class or the function of this name.

    Args:
        kind: one of `BUILT_INS`.
        name: as the settings have it.
        key: the setting, for messages.

    Raises:
        ConfigError: there is none, or importing it failed.
    """
    if name in _passed:
        return _passed[name]
    built_in = BUILT_INS[kind].get(name)
    path = built_in.path if built_in else _installed().get(f"{kind}.{name}", name)
    if path == name and ":" in name and not name.startswith("covey."):
        check_import(key, name)
    module, colon, attribute = path.partition(":")
    if not colon:
        near = get_close_matches(name, known_names(kind), n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"{key} must be one of {', '.join(known_names(kind))} or "
            f"package.module:name, found {name!r}. {meant}Change the value."
        )
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a module of somebody's may raise anything
        raise ConfigError(
            f"{key} = {name!r} must name a component as package.module:name, but "
            f"importing it failed: {error}. Check the spelling and PYTHONPATH, or pass "
            f"it from the program that has it."
        ) from error
    if not callable(found):
        raise ConfigError(
            f"{key} = {name!r} must name a class or a function, found a "
            f"{type(found).__name__}. Name one of those."
        )
    return found


def create(
    kind: str, name: str, options: Mapping[str, object], key: str, base: type[Component]
) -> Any:  # noqa: ANN401 - a component of the kind, or a user's function
    """Return a component with these options, or a user's function with them bound.

    Raises:
        ConfigError: there is none of this name, it is of another kind, or it does not
            have such options.
    """
    found = find(kind, name, key)
    if not inspect.isclass(found):
        return partial(found, **options) if options else found
    if not issubclass(found, base):
        raise ConfigError(
            f"{key} = {name!r} must be a {base.__name__}, found the class "
            f"{found.__name__}. Derive it from covey.{base.__name__}."
        )
    try:
        return found.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(_wrong_options(found, error, f"{key} = {name!r}")) from None


def _wrong_options(found: type[Component], error: ValidationError, part: str) -> str:
    """Return what is wrong with a component's options, all at once."""
    errors = error.errors()
    own = [
        str(each.get("ctx", {}).get("error")) for each in errors if each["type"] == "value_error"
    ]
    if len(own) == len(errors):  # a component's own sentences
        return f"{part}: {' '.join(own)}"
    known = ", ".join(found.model_fields) or "none"
    told = "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'together'}: {each['msg']}, found {each['input']!r}"
        for each in errors
    )
    return f"The options of {part} are not possible: {told}. Its options are: {known}."


def options_of(component: object) -> dict[str, Any]:
    """Return a component's options as TOML has them, without those at their defaults."""
    if isinstance(component, Component):
        return component.model_dump(mode="json", exclude_defaults=True)
    if isinstance(component, partial):
        return dict(component.keywords)
    return {}


def reference(component: object) -> str:
    """Return the name under which a component that a program passes is recorded.

    `package.module:name` where an import finds it again; else `python:name`, which is
    found as long as this process lives.
    """
    maker: Any = component.func if isinstance(component, partial) else component
    if isinstance(component, Component):
        maker = type(component)
        known = _name_of(f"{maker.__module__}:{maker.__qualname__}")
        if known:
            return known
    qualname = getattr(maker, "__qualname__", type(maker).__qualname__)
    module = getattr(maker, "__module__", "")
    if module != "__main__" and _imported(module, qualname) == maker:
        return f"{module}:{qualname}"
    word = f"{PASSED}{qualname.rpartition('.')[2].strip('<>')}"
    names = (word if n == 1 else f"{word}_{n}" for n in count(1))
    name = next(n for n in names if _is_same(_passed.setdefault(n, maker), maker))
    _passed[name] = maker
    return name


def _is_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - as they were passed
    """Say whether two parts are one: a notebook's cell that ran twice made two of it.

    Two that were made inside of a function may differ in what they close over.
    """
    if one == other or not all(_is_top_level(each) for each in (one, other)):
        return one == other
    source = source_hash(one)
    return source != "" and source == source_hash(other)


def _is_top_level(made: object) -> bool:
    name = made.__qualname__ if isinstance(made, (type, FunctionType)) else ""
    return bool(name) and "<" not in name


def is_missing(name: str) -> bool:
    """Say whether a name is of a part that a program passed, and that is not here."""
    return name.startswith(PASSED) and name not in _passed


def pass_again(recorded: str, name: str) -> None:
    """Let a part be found under the name by which a run recorded it.

    Args:
        recorded: that name.
        name: the part's now, as `reference` returned it.
    """
    if recorded.startswith(PASSED) and name in _passed:
        _passed[recorded] = _passed[name]


def _imported(module: str, qualname: str) -> object:
    """Return what an import finds under this name; None: nothing."""
    found: object = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _name_of(path: str) -> str:
    """Return the name of what is built in or installed and stands here; "": it has none."""
    for names in BUILT_INS.values():
        for name, built_in in names.items():
            if built_in.path == path:
                return name
    named = (name for name, value in _installed().items() if value == path)
    return next(named, "").partition(".")[2]
