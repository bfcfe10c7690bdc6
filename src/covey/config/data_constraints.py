"""What the components of data and engine are asked, and what they rule out."""

from collections.abc import Iterator, Sequence
from typing import Any

from covey.components.capability import Capability, Claim, conflicts
from covey.components.foreign import foreign_options
from covey.components.registry import find
from covey.components.slots import ComponentSection
from covey.config.risk_constraints import claims_of_risk
from covey.config.sections import Sections
from covey.errors import ConfigError

__all__ = [
    "brings_clients",
    "claims_of",
    "claims_of_data",
    "data_problems",
    "is_passed",
    "is_remote",
    "kind_of",
    "reads_files",
    "refuse_conflicts",
]


def kind_of(section: ComponentSection, field: str) -> Any:  # noqa: ANN401 - a class, if any
    """Return the class or function that a setting names; None where it is a user's own.

    What users wrote is imported when a run is made, and not when settings are read.
    """
    name: str = getattr(section, field)
    if ":" in name:
        return None
    cls = type(section)
    return find(cls.slots[field], name, f"{cls.section}.{field}")


def is_remote(config: Sections) -> bool:
    """Say whether clients keep their data on machines of their own."""
    ruled_out = getattr(kind_of(config.engine, "name"), "rules_out", ())
    return Capability.CLIENT_DATA in ruled_out


def brings_clients(config: Sections) -> bool:
    """Say whether clients come with their own examples, and are not simulated.

    Nobody knows of a user's own source before a run is made; it is taken to bring them.
    """
    return not getattr(kind_of(config.data, "name"), "simulates", False)


def reads_files(config: Sections) -> bool:
    """Say whether the data come out of the folder `data.dir`."""
    return getattr(kind_of(config.data, "name"), "reads_files", False)


def is_passed(section: ComponentSection) -> bool:
    """Say whether what the section names lives in a program alone."""
    return getattr(kind_of(section, "name"), "is_passed", False)


def data_problems(config: Sections) -> Iterator[str]:
    """Yield why these settings cannot be had with these data, or on this engine."""
    yield from _foreign_options(config)
    yield from conflicts(claims_of(config))


def claims_of(config: Sections) -> list[Claim]:
    """Return what all parts of the settings need and rule out that are covey's own."""
    named = (
        (config.data, "name"),
        (config.population, "shift"),
        (config.population, "partition"),
        (config.engine, "name"),
        (config.redteam, "source"),
    )
    known = {(type(each).section, field): kind_of(each, field) for each, field in named}
    claims = [
        Claim(
            f"{section}.{field} = {getattr(getattr(config, section), field)!r}",
            kind.requires,
            kind.rules_out,
        )
        for (section, field), kind in known.items()
        if kind is not None
    ]
    return [*claims, *claims_of_data(config), *claims_of_risk(config)]


def claims_of_data(config: Sections) -> Iterator[Claim]:
    """Yield what settings beside the components need of the data, and of the engine."""
    for key, holds, capability, remedy in _needs(config):
        if holds:
            section, name = key.split(".")
            value = getattr(getattr(config, section), name)
            yield Claim(f"{key} = {value!r}", frozenset({capability}), remedy=remedy)
    if config.model.task == "regression":
        yield Claim(
            f"model.task = {config.model.task!r}",
            rules_out=frozenset({Capability.CLASS_LABELS}),
        )
    if config.engine.precision != "float32":
        yield Claim(
            f"engine.precision = {config.engine.precision!r}",
            rules_out=frozenset({Capability.FULL_PRECISION}),
            remedy="Leave the precision at its default, or choose another engine.",
        )


def _needs(config: Sections) -> Iterator[tuple[str, bool, Capability, str]]:
    """Yield a setting, whether it needs something, and what."""
    yield (
        "population.images",
        config.population.images != "disjoint",
        Capability.DATA_SET,
        "Set population.images = 'disjoint'.",
    )
    yield (
        "audit.non_members",
        config.audit.non_members != "matched",
        Capability.DATA_SET,
        "Set audit.non_members = 'matched'.",
    )
    yield (
        "model.task",
        config.model.task != "regression",
        Capability.CLASS_LABELS,
        "Set model.task = 'regression'.",
    )
    yield (
        "method.initialisation",
        config.method.initialisation == "groups",
        Capability.KNOWN_GROUPS,
        "Set it to 'warm' or 'random'.",
    )
    clip = config.privacy.record_clip
    yield (
        "privacy.record_clip",
        clip > 0,
        Capability.EXAMPLE_GRADIENTS,
        "Choose another engine.",
    )
    yield (
        "privacy.record_clip",
        clip > 0,
        Capability.FULL_PRECISION,
        "Leave engine.precision at its default.",
    )


def _foreign_options(config: Sections) -> Iterator[str]:
    """Yield the options of a source of data that is not there."""
    changed = config.data.model_dump(exclude_defaults=True)
    for each in foreign_options(config.data):
        name = each.key.partition(".")[2]
        if name in changed:
            yield f"{each.key} = {changed[name]!r} does nothing: {each.reason}. Remove it."


def refuse_conflicts(claims: Sequence[Claim]) -> None:
    """Refuse parts of which one needs what another rules out.

    Raises:
        ConfigError: naming them.
    """
    if found := dict.fromkeys(conflicts(claims)):
        raise ConfigError(" ".join(found))
