"""Settings of a section that are options of components which it does not name."""

from collections.abc import Iterator
from typing import NamedTuple

from covey.components.built_ins import BUILT_INS
from covey.components.registry import find, is_built_in
from covey.components.slots import ComponentSection

__all__ = ["Foreign", "foreign_options"]


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
        owners = ", ".join(map(repr, self.owners[:-1]))
        owners = f"{owners} and {self.owners[-1]!r}" if owners else repr(self.owners[0])
        return f"it is for {self.slot} = {owners}, found {self.found!r}"


def foreign_options(section: ComponentSection) -> Iterator[Foreign]:
    """Yield the settings that are options of other built-in components alone.

    A component of the user's own has its options in a table, and none of these.
    """
    known, prefix = type(section).model_fields, type(section).section
    for slot, kind in type(section).slots.items():
        found: str = getattr(section, slot)
        options = {name: _fields(kind, name) & known.keys() for name in BUILT_INS[kind]}
        own = _fields(kind, found) if is_built_in(kind, found) else frozenset[str]()
        for key in known:
            owners = tuple(name for name, keys in options.items() if key in keys)
            if owners and key not in own:
                yield Foreign(f"{prefix}.{key}", f"{prefix}.{slot}", owners, found)


def _fields(kind: str, name: str) -> frozenset[str]:
    return frozenset(getattr(find(kind, name, kind), "model_fields", ()))
