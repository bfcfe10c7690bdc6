"""What the ledger is told of components: names, options, sources."""

from covey.build.isolation import mixes_clusters
from covey.components import (
    ComponentSection,
    find,
    is_built_in,
    options_key,
    source_hash,
)
from covey.config import Config
from covey.events import ComponentsUsed

__all__ = ["components_used"]


def components_used(config: Config) -> tuple[ComponentsUsed, ...]:
    """Return the fact which components are a user's own or have options, if any do."""
    found: dict[str, dict[str, object]] = {}
    for _, section in config:
        if isinstance(section, ComponentSection):
            found |= _named_in(section)
    if not found:
        return ()
    return (ComponentsUsed(found, mixes_clusters(config)),)


def _named_in(section: ComponentSection) -> dict[str, dict[str, object]]:
    """Return the components of one section that are worth a record."""
    found: dict[str, dict[str, object]] = {}
    for field, kind in type(section).slots.items():
        name, key = getattr(section, field), f"{type(section).section}.{field}"
        options = getattr(section, options_key(field))
        usual = type(section).model_fields[field].default
        if not options and (name == usual or is_built_in(kind, name)):
            continue
        source = "" if is_built_in(kind, name) else source_hash(find(kind, name, key))
        found[key] = {"name": name, "options": options, "source": source}
    return found
