"""What every part of a run needs and rules out, held against each other.

A part is a component that the settings name, or a setting that acts like one.
"""

import inspect
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from covey.base.errors import ConfigError
from covey.components.registry import Capability, Claim, Component, conflicts, find, is_built_in
from covey.components.slots import ComponentSection, component_of, foreign_options
from covey.config.learning import MethodConfig
from covey.config.sections import MergeConfig, PrivacyConfig, Sections


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


Row = tuple[str, bool, tuple[Capability, ...], tuple[Capability, ...], str]
"""A setting, whether it counts, what it requires and rules out, and another remedy."""


def plain_claims(config: Sections) -> Iterator[Claim]:
    """Yield what settings claim beside the components that others name."""
    for key, holds, requires, rules_out, remedy in plain_rows(config):
        if holds:
            part = f"{key} = {_value(config, key)!r}"
            yield Claim(part, frozenset(requires), frozenset(rules_out), remedy)


def plain_rows(config: Sections) -> Iterator[Row]:
    """Yield every setting that may claim something."""
    for rows in (_of_data, _of_the_method, _of_noise, _of_leaving):
        yield from rows(config)


def _value(config: Sections, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def _of_data(config: Sections) -> Iterator[Row]:
    task = config.model.task
    yield (
        "population.images",
        config.population.images != "disjoint",
        (Capability.DATA_SET,),
        (),
        "Set population.images = 'disjoint'.",
    )
    yield (
        "population.holdout",
        config.population.holdout == 0,
        (),
        (Capability.HELD_OUT_EXAMPLES,),
        "Reserve some (population.holdout = 0.2), or change the other.",
    )
    yield (
        "audit.non_members",
        config.audit.non_members != "matched",
        (Capability.DATA_SET,),
        (),
        "Set audit.non_members = 'matched'.",
    )
    yield (
        "model.task",
        task != "regression",
        (Capability.CLASS_LABELS,),
        (),
        "Set model.task = 'regression'.",
    )
    yield (
        "model.task",
        task == "regression",
        (),
        (Capability.CLASS_LABELS, Capability.BOUNDED_LOSS),
        "",
    )
    yield "model.task", task != "multiclass", (), (Capability.EXCLUSIVE_CLASSES,), ""
    yield (
        "engine.precision",
        config.engine.precision != "float32",
        (),
        (Capability.FULL_PRECISION,),
        "Leave the precision at its default, or choose another engine.",
    )


def _of_the_method(config: Sections) -> Iterator[Row]:
    method = config.method
    yield (
        "method.initialisation",
        method.initialisation == "groups",
        (Capability.KNOWN_GROUPS,),
        (),
        "Set it to 'warm' or 'random'.",
    )
    yield (
        "method.select_on",
        method.select_on == "holdout",
        (Capability.HELD_OUT_EXAMPLES,),
        (),
        "",
    )
    yield (
        "method.pooling",
        method.pooling == "risk",
        (Capability.MEASURED_RISK, Capability.BOUNDED_LOSS),
        (),
        "Set a share.",
    )
    yield (
        "merge.weights",
        config.merge.weights != "equal",
        (),
        (Capability.UNIFORM_WEIGHTS,),
        "Set merge.weights = 'equal'.",
    )


def _of_noise(config: Sections) -> Iterator[Row]:
    privacy = config.privacy
    hidden = privacy.client_noise > 0
    here = (Capability.SIMULATED_CLIENTS,) if solves(config) else ()
    # a sum is hidden, and not what its terms are or how many examples they stand for
    yield (
        "privacy.client_noise",
        hidden,
        (Capability.UNIFORM_WEIGHTS, *here),
        (Capability.SINGLE_UPDATES, Capability.EXAMPLE_COUNTS, Capability.EXACT_SUMS),
        "Remove the noise, or use privacy.record_noise.",
    )
    yield (
        "train.participation",
        hidden and config.train.participation < 1,
        (Capability.SHARED_MODEL, Capability.TRAINED_UPDATES),
        (),
        "Set train.participation = 1: with privacy.client_noise it is secret who came, "
        "which the sizes of several clusters tell.",
    )
    yield (
        "privacy.record_clip",
        privacy.record_clip > 0,
        (Capability.EXAMPLE_GRADIENTS, Capability.FULL_PRECISION, *here),
        (),
        "Leave engine.precision at its default, and choose another engine.",
    )
    yield (
        "privacy.record_noise",
        privacy.record_noise > 0,
        (Capability.CLIENT_DATA,),
        (Capability.EXACT_SUMS,),
        "Set privacy.record_noise = 0.",
    )
    yield (
        "privacy.secure_sums",
        privacy.secure_sums,
        (Capability.SUMS_ALONE,),
        (Capability.SINGLE_UPDATES, Capability.STORED_UPDATES, Capability.ALL_LOSSES),
        "Set privacy.secure_sums = false.",
    )
    yield (
        "privacy.selection_noise",
        privacy.selection_noise > 0,
        (Capability.CLUSTER_CHOICE, Capability.COST_CHOICE, Capability.BOUNDED_LOSS),
        (),
        "",
    )


def solves(config: Sections) -> bool:
    """Say whether the method's models depend on data through sums, which noise hides."""
    name = config.method.name
    if not is_built_in("algorithm", name):
        return False
    return bool(find("algorithm", name, "method.name").subtracts)


def _of_leaving(config: Sections) -> Iterator[Row]:
    unlearning = config.unlearning
    yield (
        "unlearning.store_updates",
        unlearning.store_updates > 0,
        (Capability.STORED_UPDATES,),
        (),
        "Set unlearning.store_updates = 0.",
    )
    yield (
        "unlearning.request_probability",
        unlearning.request_probability > 0,
        (Capability.SIMULATED_CLIENTS, Capability.SHARED_CLUSTERS),
        (),
        "Set it to 0: clients ask for themselves, or their own model is deleted.",
    )


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


def privacy_problems(config: Sections) -> Iterator[str]:
    """Yield why these settings cannot be private as they ask."""
    yield from _hiding_problems(config.merge)
    yield from _client_problems(config)
    yield from _stopping_problems(config)
    if solves(config):
        yield from _sums_problems(config.privacy)
    if config.privacy.record_noise > 0 and config.privacy.record_clip == 0:
        yield (
            "privacy.record_noise hides an example only if its gradient is clipped, "
            "found privacy.record_clip = 0. Set it, for example to 1.0."
        )


def _stopping_problems(config: Sections) -> Iterator[str]:
    """Yield why a run may not end where its models say, as its noise is accounted for."""
    privacy, merge = config.privacy, config.merge
    noise = privacy.client_noise or privacy.record_noise or privacy.selection_noise
    if config.stopping.figure != "none" and (noise or merge.epsilon or merge.noise == "sound"):
        yield (
            f"stopping.figure = {config.stopping.figure!r} lets the models decide how many "
            f"rounds are played, and a guarantee counts the rounds that were settled "
            f"beforehand. Remove it, or the noise."
        )


def _sums_problems(privacy: PrivacyConfig) -> Iterator[str]:
    """Yield why sums that heads are solved from are not hidden as they are asked to be."""
    if privacy.client_noise > 0 and privacy.record_clip > 0:
        yield (
            f"Noise is on sums, for clients, or on heads, for records, found "
            f"privacy.client_noise = {privacy.client_noise} and privacy.record_clip = "
            f"{privacy.record_clip}. Noise that hides a client hides each of its records, "
            f"too: remove privacy.record_clip and privacy.record_noise."
        )
    elif privacy.record_clip > 0 and privacy.record_noise == 0:
        yield (
            "privacy.record_clip bounds what noise on heads hides, found "
            "privacy.record_noise = 0. Set the noise, or remove the clip."
        )


def _hiding_problems(merge: MergeConfig) -> Iterator[str]:
    """Yield why an aggregation keeps no promise that its options make.

    One that has these options checks them by itself; another one must not pass over them.
    """
    reasons = {each.key: each.reason for each in foreign_options(merge)}
    if why := reasons.get("merge.noise"):
        promises = (("noise", merge.noise, "sound"), ("epsilon", merge.epsilon > 0, True))
        for key, found, promise in promises:
            if found == promise:
                value = getattr(merge, key)
                yield (
                    f"merge.{key} = {value!r} promises differential privacy that nobody "
                    f"keeps: {why}. Remove it, or change merge.name."
                )
        if merge.min_organisations > 1:
            yield (
                f"merge.min_organisations = {merge.min_organisations} promises sets of "
                f"members of different organisations that nobody forms: {why}. Remove it, "
                f"or change merge.name."
            )
        if merge.deniability_threshold > merge.min_anonymity:
            yield (
                f"merge.deniability_threshold (x) is how many of an anonymity set's at "
                f"least merge.min_anonymity (k) members must stay, so at most k = "
                f"{merge.min_anonymity}, found x = {merge.deniability_threshold}. Lower "
                f"x or raise k."
            )


def _client_problems(config: Sections) -> Iterator[str]:
    """Yield why the sums of clients' updates are not differentially private."""
    privacy, merge = config.privacy, config.merge
    if privacy.client_noise == 0:
        if privacy.client_clip:
            yield (
                "privacy.client_clip is for updates that privacy.client_noise hides, found "
                "client_noise = 0. Set the noise, or remove client_clip."
            )
        return
    if merge.noise != "none":
        yield (
            f"privacy.client_noise needs merge.noise = 'none', as that one is for "
            f"anonymity sets; found {merge.noise!r}. Set merge.noise = 'none', or remove "
            f"the noise."
        )
    if privacy.client_clip == 0:
        yield (
            "privacy.client_noise is in units of privacy.client_clip, the largest norm of "
            "an update, found client_clip = 0. Set it, for example to 1."
        )
