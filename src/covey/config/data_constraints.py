"""What the components of data and engine are asked, and what they rule out."""

from collections.abc import Iterator, Sequence
from typing import Any

from covey.components.capability import Capability, Claim, conflicts
from covey.components.foreign import foreign_options
from covey.components.registry import find
from covey.components.slots import ComponentSection
from covey.config.sections import Sections
from covey.errors import ConfigError

__all__ = [
    "brings_clients",
    "foreign_data_problems",
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


def foreign_data_problems(config: Sections) -> Iterator[str]:
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
