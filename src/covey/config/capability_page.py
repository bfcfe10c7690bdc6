"""The page of the documentation that tells what goes with what, out of the claims."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from covey.components.capability import Capability, Claim
from covey.components.component import Component
from covey.components.registry import find, is_built_in, known_names
from covey.components.slots import ComponentSection
from covey.config.compatibility import claims_of
from covey.config.sections import Sections

__all__ = ["SHOWN", "capability_page"]

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

BESIDE = {
    "train.participation": ("privacy", "client_noise", 1.0),
}
"""Settings beside which alone some of them matter."""

HEAD = """# What goes with what

Every part of a run says what it needs and what it rules out. One check compares them
all: a run in which a part needs what another one rules out is refused, with a sentence
that names both (`covey config check` tells all of them). Components are shown with their
default options, and settings that act like parts at one value. Beside that, components
check their own options, and what the data turn out to be is checked when a run is built.

This page is what `covey.config.capability_page()` returns, and a test compares the two.
How a part of your own says it: [Components](extending.md#components).
"""


def capability_page() -> str:
    """Return the page in Markdown."""
    claims = [*_of_components(), *_of_settings()]
    conflicts = ["| part | is refused beside |", "|---|---|", *_conflicts(claims)]
    table = ["| part | needs | rules out |", "|---|---|---|", *_rows(claims)]
    return "\n".join(
        [HEAD, "## Conflicts", "", *conflicts, "", "## Claims", "", *table, ""]
    )


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


def _rows(claims: Sequence[Claim]) -> Iterator[str]:
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
