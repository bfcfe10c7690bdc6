"""Settings of a section that are options of components which it does not name."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from covey.components.built_ins import BUILT_INS
from covey.components.registry import find, is_built_in
from covey.components.slots import ComponentSection

__all__ = ["Foreign", "built_in_options", "foreign_options", "reserved"]


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
    names = " and ".join(
        filter(None, (", ".join(map(repr, owners[:-1])), repr(owners[-1])))
    )
    return f"it is for {slot} = {names}, found {found!r}"


def foreign_options(section: ComponentSection) -> Iterator[Foreign]:
    """Yield the settings that are options of other built-in components alone.

    A component of the user's own has its options in a table, and none of these.
    """
    known, prefix = type(section).model_fields, type(section).section
    for slot, kind in type(section).slots.items():
        found: str = getattr(section, slot)
        options = {
            name: built_in_options(kind, name) & known.keys()
            for name in BUILT_INS[kind]
        }
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
