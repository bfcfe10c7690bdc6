from .built_ins import BUILT_INS, BuiltIn
from .capability import Capability, Claim, conflicts
from .component import Component
from .own_source import source_hash
from .registry import (
    create,
    find,
    is_built_in,
    known_names,
    options_of,
    reference,
)
from .section import Count, NotNegative, Positive, Share
from .slots import (
    ComponentSection,
    Options,
    component_of,
    options_key,
    options_table,
    slot,
)
from .state import ComponentState, States, decoded, encoded, keep, kept, without

__all__ = [
    "BUILT_INS",
    "BuiltIn",
    "Capability",
    "Claim",
    "Component",
    "ComponentSection",
    "ComponentState",
    "Count",
    "NotNegative",
    "Options",
    "Positive",
    "Share",
    "States",
    "component_of",
    "conflicts",
    "create",
    "decoded",
    "encoded",
    "find",
    "is_built_in",
    "keep",
    "kept",
    "known_names",
    "options_key",
    "options_of",
    "options_table",
    "reference",
    "slot",
    "source_hash",
    "without",
]
