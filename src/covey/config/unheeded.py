"""Settings that do nothing beside others, and the page of what goes with what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from covey.base.errors import ConfigError
from covey.components.built_ins import BUILT_INS
from covey.components.registry import Capability, Claim, Component, find, is_built_in, known_names
from covey.components.slots import ComponentSection, component_of, foreign_options, reserved
from covey.config.rules import claims_of, kind_of
from covey.config.sections import MergeConfig, Sections
from covey.config.settings import Config, flat, of_other_algorithms

Row = tuple[tuple[str, ...], bool, str]
"""Keys, whether nobody looks at them, and why."""

SIMULATED = (
    "population.clients",
    "population.examples_per_client",
    "population.shift",
    "population.shift_per",
    "population.minority_share",
    "population.minority",
    "population.majority",
    "population.groups",
    "population.partition",
    "population.dirichlet_alpha",
    "population.images",
    "population.audit_examples",
    "audit.non_members",
)
"""What makes clients out of a data set."""


@dataclass(frozen=True, slots=True)
class Unheeded:
    """A setting that is not at its default, and does nothing.

    Attributes:
        reason: what else is set, and what it makes of this one; no full stop.
    """

    key: str
    value: object
    reason: str

    @property
    def told(self) -> str:
        """The fact as a sentence."""
        return f"{self.key} = {self.value!r} does nothing: {self.reason}."


def unheeded(config: Config) -> tuple[Unheeded, ...]:
    """Return the settings that are not at their defaults, and do nothing."""
    changed = flat(config.model_dump(mode="json", exclude_defaults=True))
    reasons = why_unheeded(config)
    return tuple(
        Unheeded(key, value, reasons[key]) for key, value in changed.items() if key in reasons
    )


def why_unheeded(config: Config) -> dict[str, str]:
    """Return every `section.key` that changes nothing beside the others, and why."""
    found: dict[str, str] = {}
    for keys, holds, why in _rows(config):
        if holds:
            found |= {key: why for key in keys if key not in found}
    return found


def _rows(config: Config) -> Iterator[Row]:
    yield from _data_rows(config)
    own = not is_built_in("risk_estimator", config.redteam.source)
    for section in (
        config.data,
        config.population,
        config.train,
        config.redteam,
        config.engine,
        config.merge,
    ):
        for each in foreign_options(section):
            heeded = own and each.key == "redteam.pool"  # data are dealt out by it
            yield (each.key,), not heeded, each.reason
    yield from _method_rows(config)
    yield from _idle_rows(config)
    yield from _training_rows(config)
    redteam, train, privacy = config.redteam, config.train, config.privacy
    yield (
        ("train.local_epochs",),
        train.local_steps > 0,
        f"train.local_steps = {train.local_steps} counts steps instead of epochs",
    )
    yield (
        ("redteam.every",),
        _measures_nothing(config) and _never_waits(config.merge),
        f"redteam.source = {redteam.source!r} measures nothing",
    )
    yield (
        tuple(f"stopping.{each}" for each in type(config.stopping).model_fields),
        config.rounds == 1,
        "rounds = 1 leaves nothing to end early",
    )
    yield (
        ("stopping.patience", "stopping.min_change"),
        config.stopping.figure == "none",
        "stopping.figure = 'none' ends no run early",
    )
    noisy = privacy.client_noise or privacy.record_noise or privacy.selection_noise
    yield (
        ("privacy.delta",),
        not noisy,
        "no noise of this section is on, so that nothing is promised at this delta",
    )


def _training_rows(config: Config) -> Iterator[Row]:
    """Yield what is of updates that clients train, where they train none."""
    name = config.method.name
    algorithm = find("algorithm", name, "method.name")
    trained = Capability.TRAINED_UPDATES not in getattr(algorithm, "rules_out", ())
    keys = (
        *(f"train.{each}" for each in type(config.train).model_fields),
        *(f"merge.{each}" for each in type(config.merge).model_fields),
    )
    if trained:
        return
    of_training = (key for key in keys if key != "train.participation")
    yield tuple(of_training), True, f"method.name = {name!r} {algorithm.summary}"


def _data_rows(config: Config) -> Iterator[Row]:
    name, population, source = config.data.name, config.population, _source(config)
    yield (
        ("data.dir",),
        not getattr(source, "reads_files", False),
        f"data.name = {name!r} reads no files of this folder",
    )
    yield (
        SIMULATED,
        not getattr(source, "simulates", False),
        f"the clients of data.name = {name!r} bring their own examples",
    )
    yield (
        (
            "population.examples_per_client",
            "population.minority_share",
            "population.minority",
            "population.majority",
        ),
        bool(population.groups),
        "population.groups is there instead",
    )
    yield (
        ("population.shift_per", "population.minority", "population.majority"),
        getattr(kind_of(population, "shift"), "changes_nothing", False),
        f"population.shift = {population.shift!r} shifts nothing",
    )


def _measures_nothing(config: Config) -> bool:
    ruled_out = getattr(kind_of(config.redteam, "source"), "rules_out", ())
    return Capability.MEASURED_RISK in ruled_out


def _source(config: Config) -> Any:  # noqa: ANN401 - a class, or a user's function
    """Return the source of the data, a user's own too; None where it is not at hand."""
    try:
        return find("data", config.data.name, "data.name")
    except ConfigError:
        return None


def _method_rows(config: Config) -> Iterator[Row]:
    method, source = config.method, config.redteam.source
    ignored = of_other_algorithms(method.name)
    if ignored:
        summary = find("algorithm", method.name, "method.name").summary
        yield ignored, True, f"method.name = {method.name!r} {summary}"
    for each in foreign_options(method):
        yield (each.key,), each.slot == "method.selection", each.reason
    own = ":" in method.selection  # sees the clients' weights
    weighing = tuple(name for name in BUILT_INS["selection"] if _weighs(name))
    yield (
        ("method.risk_weight",),
        not own and method.selection not in weighing,
        reserved("method.selection", weighing, method.selection),
    )
    yield (
        ("method.risk_weight",),
        method.selection in weighing and _measures_nothing(config),
        f"redteam.source = {source!r} leaves no risk to weigh",
    )


def _weighs(selection: str) -> bool:
    return find("selection", selection, "method.selection").weighs


def _idle_rows(config: Config) -> Iterator[Row]:
    """Yield what built-in components say of their own options."""
    for _, section in config:
        if not isinstance(section, ComponentSection):
            continue
        part = type(section).section
        for slot, kind in type(section).slots.items():
            named = is_built_in(kind, getattr(section, slot))
            if not (named and hasattr(kind_of(section, slot), "idle_options")):
                continue  # a user's own, a plain network
            for option, why in component_of(section, slot, Component).idle_options(part):
                yield (f"{part}.{option}",), True, why


def _never_waits(merge: MergeConfig) -> bool:
    """Say whether no cluster waits for more clients, which takes `redteam.every` rounds."""
    if not is_built_in("aggregation", merge.name):
        return False
    return not find("aggregation", merge.name, "merge.name").waits


SHOWN = (
    ("population.images", "per-group"),
    ("population.holdout", 0.0),
    ("audit.non_members", "pooled"),
    ("model.task", "multilabel"),
    ("model.task", "regression"),
    ("engine.precision", "bfloat16"),
    ("method.initialisation", "groups"),
    ("method.select_on", "holdout"),
    ("method.pooling", 0.5),
    ("method.pooling", "risk"),
    ("merge.weights", "examples"),
    ("train.participation", 0.5),
    ("privacy.client_noise", 1.0),
    ("privacy.record_clip", 1.0),
    ("privacy.record_noise", 1.0),
    ("privacy.secure_sums", True),
    ("privacy.selection_noise", 1.0),
    ("unlearning.store_updates", 1),
    ("unlearning.request_probability", 0.2),
)
"""Settings that name no component, each at a value at which it claims something."""

BESIDE = {"train.participation": ("privacy", "client_noise", 1.0)}
"""Settings beside which alone some of them matter."""

HEAD = """# What goes with what

Every part of a run says what it needs and what it rules out. One check compares them
all: a run in which a part needs what another one rules out is refused, with a sentence
that names both (`covey config check` tells all of them). Components are shown with their
default options, and settings that act like parts at one value. Beside that, components
check their own options, and what the data turn out to be is checked when a run is built.

This page is what `covey.config.unheeded()` returns, and a test compares the two.
How a part of your own says it: [Components](extending.md#components).
"""


def capability_page() -> str:
    """Return the page in Markdown."""
    claims = [*_of_components(), *_of_settings()]
    conflicts = ["| part | is refused beside |", "|---|---|", *_conflicts(claims)]
    table = ["| part | needs | rules out |", "|---|---|---|", *_page_rows(claims)]
    return "\n".join([HEAD, "## Conflicts", "", *conflicts, "", "## Claims", "", *table, ""])


def _of_components() -> Iterator[Claim]:
    """Yield the claims of what covey brings, each under its setting."""
    for _, section in Sections():
        if not isinstance(section, ComponentSection):
            continue
        for field, kind in type(section).slots.items():
            for name in known_names(kind):
                found = find(kind, name, kind) if is_built_in(kind, name) else None
                if isinstance(found, type) and issubclass(found, Component):
                    key = f"{type(section).section}.{field}"
                    yield from _together(found().claims(f"`{key} = {_told(name)}`"))


def _of_settings() -> Iterator[Claim]:
    """Yield what each of the settings adds to the claims of a run."""
    for key, value in SHOWN:
        settings: dict[str, dict[str, object]] = {}
        part = f"`{key} = {_told(value)}`"
        if key in BESIDE:
            section, name, other = BESIDE[key]
            settings[section] = {name: other}
            part += f" beside `{section}.{name}`"
        usual = {*claims_of(Sections.model_validate(settings))}
        section, _, name = key.partition(".")
        settings[section] = {**settings.get(section, {}), name: value}
        found = claims_of(Sections.model_validate(settings))
        added = (replace(each, part=part) for each in found if each not in usual)
        yield from _together(added)


def _told(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _together(claims: Iterator[Claim]) -> Iterator[Claim]:
    """Yield one claim for all of a part."""
    for part, each in groupby(claims, key=lambda claim: claim.part):
        own = [*each]
        requires = frozenset[Capability]().union(*(claim.requires for claim in own))
        lost = frozenset[Capability]().union(*(claim.rules_out for claim in own))
        if requires or lost:
            yield Claim(part, requires, lost)


def _page_rows(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield a row for every part, those of one setting that claim the same in one."""
    alike = groupby(claims, key=lambda c: (_key(c), c.requires, c.rules_out))
    for (_, needs, lost), parts in alike:
        yield f"| {_parts([*parts])} | {_values(needs)} | {_values(lost)} |"


def _conflicts(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield a row for every part that needs what others rule out."""

    def others(needy: Claim) -> tuple[Claim, ...]:
        return tuple(other for other in claims if _is_refused(needy, other))

    for (_, refused), parts in groupby(claims, key=lambda c: (_key(c), others(c))):
        if refused:
            by_setting = (_parts([*each]) for _, each in groupby(refused, key=_key))
            yield f"| {_parts([*parts])} | {'; '.join(by_setting)} |"


def _is_refused(needy: Claim, other: Claim) -> bool:
    """Say whether one rules out what the other needs; a setting has one value only."""
    return _key(needy) != _key(other) and bool(needy.requires & other.rules_out)


def _key(claim: Claim) -> str:
    return claim.part.partition(" ")[0]


def _parts(claims: Sequence[Claim]) -> str:
    """Return values of one setting, which is named once."""
    first, *others = (claim.part for claim in claims)
    values = (each.replace(f"{_key(claims[0])} = ", "`", 1) for each in others)
    return ", ".join((first, *values))


def _values(capabilities: frozenset[Capability]) -> str:
    return "; ".join(sorted(each.value for each in capabilities))
