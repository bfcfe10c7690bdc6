"""What settings that name no component need of a run, and take from it."""

from collections.abc import Iterator

from covey.components.capability import Capability, Claim
from covey.components.registry import find, is_built_in
from covey.config.sections import Sections

__all__ = ["plain_claims", "plain_rows", "solves"]

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
        (
            Capability.SINGLE_UPDATES,
            Capability.STORED_UPDATES,
            Capability.ALL_LOSSES,
        ),
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
