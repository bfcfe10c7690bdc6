"""What every part of a run needs and rules out, held against each other.

A part is a component that the settings name, or a setting that acts like one.
"""

import inspect
from collections.abc import Collection, Iterator

from covey.components.capability import Capability, Claim, conflicts
from covey.components.component import Component
from covey.components.registry import find
from covey.components.slots import ComponentSection, component_of
from covey.config.plain_claims import plain_claims
from covey.config.sections import MethodConfig, Sections
from covey.errors import ConfigError

__all__ = ["claims_of", "compatibility_problems"]

OWN_NEEDS = {
    "aggregation": Claim("", frozenset({Capability.SINGLE_UPDATES})),
    "risk_estimator": Claim("", frozenset({Capability.CLIENT_DATA})),
    "selection": Claim("", rules_out=frozenset({Capability.COST_CHOICE})),
}
"""What a user's own component is taken to claim while nobody has imported it.

Its own claims count when a run is made.
"""


def compatibility_problems(config: Sections) -> Iterator[str]:
    """Yield why the parts of a run cannot be had together.

    What users wrote is imported when a run is made, and not when settings are read.
    """
    claims = list(plain_claims(config))
    for section, field in _slots(config):
        try:
            claims += _claims_in(config, section, field, own=False)
        except ConfigError as wrong:  # its options
            yield str(wrong)
    yield from conflicts(claims)


def claims_of(config: Sections, but_for: Collection[str] = ()) -> Iterator[Claim]:
    """Yield what all parts claim, those included that users wrote.

    Args:
        config: of the run.
        but_for: settings whose components do not count, as `section.key`.

    Raises:
        ConfigError: one of them is not there, or has no such options.
    """
    yield from plain_claims(config)
    for section, field in _slots(config):
        if f"{type(section).section}.{field}" not in but_for:
            yield from _claims_in(config, section, field, own=True)


def _slots(config: Sections) -> Iterator[tuple[ComponentSection, str]]:
    """Yield every setting that names a component, with its section."""
    for _, section in config:
        if isinstance(section, ComponentSection):
            yield from ((section, field) for field in type(section).slots)


def _claims_in(
    config: Sections, section: ComponentSection, field: str, *, own: bool
) -> list[Claim]:
    """Return what the component claims that this setting names, if anybody uses it."""
    kind, name = type(section).slots[field], getattr(section, field)
    key = f"{type(section).section}.{field}"
    part = f"{key} = {name!r}"
    if not _is_used(config, section, field):
        return []
    if ":" in name and not own:
        known = OWN_NEEDS.get(kind, Claim(""))
        return [Claim(part, known.requires, known.rules_out)]
    found = find(kind, name, key)
    if not (inspect.isclass(found) and issubclass(found, Component)):
        known = OWN_NEEDS.get(kind, Claim(""))
        return [Claim(part, known.requires, known.rules_out)]
    return list(component_of(section, field, Component).claims(part))


def _is_used(config: Sections, section: ComponentSection, field: str) -> bool:
    """Say whether a run comes to the component that this setting names."""
    if section is config.method and field != "name":
        return _may_have(config.method, field)
    return True


def _may_have(method: MethodConfig, option: str) -> bool:
    """Say whether the algorithm has this option; of a user's own nobody knows."""
    name = method.name
    if ":" in name:
        return True
    return option in find("algorithm", name, "method.name").model_fields
