"""What the ledger is told of components: names, options, sources."""

from torch import nn

from covey.build.isolation import mixes_clusters
from covey.components import (
    ComponentSection,
    find,
    is_built_in,
    options_key,
    source_hash,
)
from covey.config import Config
from covey.config.learning import ModelConfig
from covey.events import ComponentsUsed
from covey.features import FrozenFeatures

__all__ = ["components_used"]


def components_used(config: Config, module: nn.Module) -> tuple[ComponentsUsed, ...]:
    """Return the fact which components are a user's own or have options, if any do.

    Fixed features in the model are told always, with what their numbers hash to.
    """
    found = {
        f"{ModelConfig.section}.{path}": _told(part)
        for path, part in module.named_modules()
        if isinstance(part, FrozenFeatures)
    }
    for _, section in config:
        if isinstance(section, ComponentSection):
            found |= _named_in(section)
    if not found:
        return ()
    return (ComponentsUsed(found, mixes_clusters(config)),)


def _told(features: FrozenFeatures) -> dict[str, object]:
    return {
        "name": features.name,
        "options": features.options,
        "source": features.source,
        "tensors": features.tensors,
    }


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
