"""What settings cannot be had together, and what of them does nothing: one function per subject.

A rule looks at settings that are fine one by one, and yields `Refusal(keys, message)`: the
settings that it is about, and what must be, what was found and what to do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from covey.aggregation.anonymity import AnonymitySets
from covey.aggregation.robust import NormBounded
from covey.aggregation.server import NoServerOptimizer
from covey.algorithms.algorithm import Clustered
from covey.base.components import components_in
from covey.base.names import unknown
from covey.data.partition import Dirichlet
from covey.data.source import DataSource
from covey.engine.metrics import Confusion, metric_named
from covey.engine.optimizers import Sgd
from covey.engine.recipe import Objective
from covey.settings.schema import FIGURES, Sections, balances_classes, cohort_needs, recipe_of

CLASSES = "labels that are classes"
ONE_CLASS = "one class per example"
EVERYBODYS_DATA = "to see every client's data"
KNOWN_FROM_START = "to know all clients from the start"
SIMULATED_HERE = "clients that are simulated here"
SHARED_MODELS = "models that several clients share"
SINGLE_UPDATES = "the server to see single updates"


_OF_TWO_GROUPS = ("minority_share", "minority", "majority", "examples_per_client")

_OF_SIMULATION = (
    *("population.clients", "population.shift", "population.shift_per", "population.groups"),
    *("population.partition", "population.images", "population.audit_examples", "population.pool"),
    *("audit.non_members", *(f"population.{name}" for name in _OF_TWO_GROUPS)),
)
"""What makes clients out of a data set."""


class SettingsConflict(NamedTuple):
    """Why settings cannot be had together.

    Attributes:
        keys: the settings that it is about, as `section.key`.
        message: a sentence, or a few.
    """

    keys: tuple[str, ...]
    message: str


class Clash(NamedTuple):
    """One setting needs what another rules out, where this holds."""

    holds: bool
    key: str
    needs: str
    other: str
    remedy: str = "change one of the two."

    def refusal(self, config: Sections) -> SettingsConflict:
        """Return it with what is set."""
        key, other = (_key_and_value(config, name) for name in (self.key, self.other))
        message = f"{key} needs {self.needs}, found {other}: {self.remedy}"
        return SettingsConflict((self.key, self.other), message)


Conflicts = Iterator[SettingsConflict | Clash]


def _key_and_value(config: Sections, key: str) -> str:
    """Return a setting as messages have it: `section.key = value`."""
    value: object = config
    for part in key.split("."):
        value = getattr(value, part)
    return f"{key} = {getattr(value, 'name', value)!r}"


def _population(config: Sections) -> Conflicts:
    """[low, high] are in this order, groups are all clients, and images of each differ."""
    population = config.population
    for name in ("minority", "majority", "thresholds"):
        low, high = getattr(population, name)
        if low > high:
            yield SettingsConflict(
                (f"population.{name}",),
                f"population.{name} must be [low, high] with low <= high, found "
                f"{[low, high]}: swap the two numbers.",
            )
    shares = sum(group.share for group in population.groups)
    if population.groups and abs(shares - 1) > 1e-6:
        yield SettingsConflict(
            ("population.groups",),
            f"The shares in population.groups must add up to 1, found {shares:g}: correct them.",
        )
    if population.images == "per-group" and population.shift.changes_nothing:
        yield SettingsConflict(
            ("population.images", "population.shift"),
            f"population.images = 'per-group' gives every group the same images, each in its own "
            f"transform, found population.shift = {population.shift.name!r}: choose a shift, or "
            f"images = 'disjoint'.",
        )


def of_data(config: Sections, source: DataSource | None = None) -> Conflicts:
    """Where examples come from has what settings ask of it.

    A program's own clients may stand in place of the settings' source, and are looked at then.
    """
    source, risk, key = source or config.data, config.risk, "risk.name"
    numbers = config.model.task == "regression"
    if source.is_drawn:
        yield from _drawn_data(config)
    yield from _known_groups(config, source)
    missing = "engine.name" if config.engine.is_remote else "data.name"
    yield Clash(
        risk.needs_client_data and config.engine.is_remote, key, EVERYBODYS_DATA, "engine.name"
    )
    columns = config.data.client_columns and config.engine.is_remote
    yield Clash(columns, "data.client_columns", KNOWN_FROM_START, "engine.name", "remove it.")
    if risk.needs_pool:
        pool = config.engine.is_remote or not source.has_pool
        yield Clash(pool, key, "data on the server that are like the clients'", missing)
        yield Clash(numbers, key, CLASSES, "model.task")


def _public_examples(config: Sections) -> Conflicts:
    """Examples that whiten features are no client's, and look as clients' do to a model."""
    public, data = getattr(config.model, "whiten_from", ""), config.data
    key, set_of = "model.whiten_from", "a data set that is not the clients'"
    yield Clash(public == data.name, key, set_of, "data.name", "name another one, or an .npz file.")
    for name in ("normalise", "standardise"):
        changed = bool(public) and getattr(data, name) != "none"
        yield Clash(changed, key, "clients' examples as they are", f"data.{name}")


def _drawn_data(config: Sections) -> Conflicts:
    """Numbers that are drawn have no images, no classes, and no set to deal out."""
    population, shifts = config.population, not config.population.shift.changes_nothing
    for key, holds in (
        ("population.images", population.images != "disjoint"),
        ("population.partition", population.partition.needs_data_set),
        ("audit.non_members", config.audit.non_members != "matched"),
    ):
        needs = "one data set out of which clients' examples are dealt"
        yield Clash(holds, key, needs, "data.name", "leave it at its default.")
    remedy = "set population.shift = 'none'."
    yield Clash(shifts, "population.shift", "images", "data.name", remedy)
    remedy = "set model.task = 'regression'."
    yield Clash(config.model.task != "regression", "model.task", CLASSES, "data.name", remedy)


def _known_groups(config: Sections, source: DataSource) -> Conflicts:
    """Starting from the true groups takes knowing them, and one cluster for each."""
    method, key, remote = config.method, "method.initialisation", config.engine.is_remote
    if not (isinstance(method, Clustered) and method.initialisation == "groups"):
        return
    needs, remedy = "to know every client's group", "set it to 'warm' or 'random'."
    missing = "engine.name" if remote else "data.name"
    yield Clash(remote or not source.has_groups, key, needs, missing, remedy)
    if source.simulates:
        yield from one_cluster_per_group(config, len(config.population.groups) or 2)


def one_cluster_per_group(config: Sections, groups: int) -> Iterator[SettingsConflict]:
    """An oracle knows every cluster's group."""
    method, key = config.method, "method.num_clusters"
    if not isinstance(method, Clustered) or method.initialisation != "groups":
        return
    if method.num_clusters != groups:
        yield SettingsConflict(
            ("method.initialisation", key),
            f"{key} must be {groups}, one per group, with method.initialisation = 'groups', found "
            f"{method.num_clusters}: set it, or another initialisation.",
        )


def _held_out(config: Sections) -> Conflicts:
    """What looks at examples that clients hold out needs some."""
    for key, looks in (
        ("risk.name", config.risk.needs_holdout),
        ("method.select_on", config.method.compares_on[0] == "holdout"),
    ):
        bare = looks and config.population.holdout == 0
        remedy = "reserve some (population.holdout = 0.2), or change the other."
        yield Clash(bare, key, "clients to hold examples out", "population.holdout", remedy)


def _one_batch(config: Sections) -> Conflicts:
    """One batch, on which a client compares the models and makes its step, is of one step."""
    if config.method.compares_on[0] != "batch":
        return
    key, step = "method.same_batch", "train.local_steps"
    several = config.train.local_steps != 1
    yield Clash(several, key, "one step a round", step, "set train.local_steps = 1.")
    clip, noisy = "privacy.record_clip", config.privacy_plan.record_clip > 0
    yield Clash(noisy, key, "a batch that no guarantee rests on", clip, "set it to 0.")


def _tasks(config: Sections) -> Conflicts:
    """Labels are what losses, heads and remote clients take them for."""
    task, tasks, other = config.model.task, config.train.loss.tasks, "model.task"
    needs = {"multiclass": ONE_CLASS, "regression": "labels that are numbers"}
    yield Clash(task not in tasks, "train.loss", needs.get(tasks[0], ""), other)
    is_ridge = config.method.traits.subtracts and not config.method.is_own
    yield Clash(task != "multiclass" and is_ridge, "method.name", ONE_CLASS, other)
    remote = task != "multiclass" and config.engine.is_remote
    yield Clash(remote, "engine.name", ONE_CLASS, other)
    reached = task == "regression" and config.stopping.target > 0
    yield Clash(reached, "stopping.target", CLASSES, other)
    classes = task == "tokens" and isinstance(config.population.partition, Dirichlet)
    yield Clash(classes, "population.partition", "classes of examples", other)


def _balanced_classes(config: Sections) -> Conflicts:
    """Weights by what clients announce reach all models, whatever hides their updates."""
    key, needs = "train.loss", "clients to announce how many examples of each class they have"
    for other, holds in (
        ("engine.name", config.engine.is_remote),
        ("aggregation.name", isinstance(config.aggregation, AnonymitySets)),
        ("privacy.exposure", config.privacy.exposure != 1),
    ):
        remedy = "write train.loss.class_weights as a list of numbers."
        yield Clash(holds and balances_classes(config), key, needs, other, remedy)


def _components(config: Sections) -> Conflicts:
    """What a component says of itself."""
    for _, component in components_in(config):
        yield from component.conflicts(config)


def _is_sound(config: Sections) -> bool:
    """Say whether anonymity sets have noise that is accounted for."""
    return isinstance(config.aggregation, AnonymitySets) and config.aggregation.noise == "sound"


def _aggregations(config: Sections) -> Conflicts:
    """Who has a model of its own shares none; where clients count alike, no example weighs."""
    method, aggregation, key = config.method, config.aggregation, "aggregation.name"
    alone = method.traits.one_client_each
    absent = method.traits.reads_population and not method.traits.subtracts
    unknown = (alone or absent) and config.engine.is_remote
    yield Clash(unknown, "method.name", KNOWN_FROM_START, "engine.name")
    yield Clash(aggregation.needs_shared_models and alone, key, SHARED_MODELS, "method.name")
    is_ridge = aggregation.sees_updates and not method.traits.trains
    yield Clash(is_ridge, key, "to see single updates that clients train", "method.name")
    if aggregation.weights == "equal":
        return
    for needy, alike in (
        (key, aggregation.needs_equal_weights or _is_sound(config)),
        ("privacy.client_noise", config.privacy.client_noise > 0),
        ("privacy.record_clip", config.privacy_plan.sums_gradients),
    ):
        needs = "clients to count alike, however many examples they hold"
        remedy = "set aggregation.weights = 'equal'."
        yield Clash(alike, needy, needs, "aggregation.weights", remedy)


def _noise_without_training(config: Sections) -> Conflicts:
    """Noise hides clients, and records, in what clients train."""
    is_ridge = config.method.traits.subtracts or not config.method.traits.trains
    remedy = (
        "choose a method that trains, such as method.name = 'fedavg' with model.name = "
        "'linear-head'."
    )
    for name in ("client_clip", "client_noise", "record_clip", "record_noise"):
        holds = is_ridge and getattr(config.privacy, name) > 0
        yield Clash(holds, f"privacy.{name}", "clients that train", "method.name", remedy)


def _noise_on_clients(config: Sections) -> Conflicts:
    """A sum is hidden, and not what its terms are: noise on sums takes sums, and a clip."""
    privacy, method, key = config.privacy, config.method, "privacy.client_noise"
    if privacy.client_noise == 0:
        if config.population.epsilon_limits:
            yield SettingsConflict(
                ("population.epsilon_limits", key),
                "population.epsilon_limits need updates under privacy.client_noise, found none: "
                "set it, as a bare update costs more than any budget, or remove the limits.",
            )
        if privacy.client_clip:
            yield SettingsConflict(
                ("privacy.client_clip", key),
                "privacy.client_clip is for updates that privacy.client_noise hides, found "
                "client_noise = 0: set the noise, or remove client_clip.",
            )
        return
    if privacy.client_clip == 0:
        yield SettingsConflict(
            ("privacy.client_clip", key),
            "privacy.client_noise is in units of privacy.client_clip, the largest norm of an "
            "update, found client_clip = 0: set it, for example to 1.",
        )
    if privacy.noise_model != "central":
        yield from _noise_of_clients(config)
        return
    remedy = "remove the noise, or use privacy.record_noise."
    sees = config.aggregation.sees_updates
    yield Clash(sees, "aggregation.name", SINGLE_UPDATES, key, remedy)
    yield Clash(
        config.train.participation < 1 and method.num_models != 1,
        "train.participation",
        "one model for everybody",
        "method.name",
        "set train.participation = 1: with privacy.client_noise it is secret who came, which "
        "the sizes of several clusters reveal.",
    )


def _noise_of_clients(config: Sections) -> Conflicts:
    """What clients send carries their noise: a share of a sum's, or all that hides an update."""
    privacy, method, key = config.privacy, config.method, "privacy.noise_model"
    local = privacy.noise_model == "local"
    remedy = "set privacy.noise_model = 'central', or change the other."
    masks = "sums under masks" if not local else "every client to send its own update"
    yield Clash(privacy.secure_sums == local, key, masks, "privacy.secure_sums", remedy)
    one = method.num_models == 1
    yield Clash(
        not (local or one), key, "one model for everybody, in whose sum all are", "method.name"
    )
    warm = method.starts_warm
    yield Clash(warm, key, "clients to send nothing but what is hidden", "method.initialisation")
    yield Clash(
        config.leaving.store_updates > 0, key, "no update to be kept bare", "leaving.store_updates"
    )
    if not local and privacy.colluders and 5 * privacy.colluders >= privacy.min_cohort:
        yield SettingsConflict(
            ("privacy.colluders", "privacy.min_cohort"),
            f"privacy.colluders must be fewer than a fifth of privacy.min_cohort = "
            f"{privacy.min_cohort}, as more can take masks off, found {privacy.colluders}: raise "
            f"min_cohort.",
        )


def _noise_on_records(config: Sections) -> Conflicts:
    """Every record's gradient is clipped by itself, in a sum over all clients or by DP-SGD."""
    privacy, clip, noise = config.privacy, "privacy.record_clip", "privacy.record_noise"
    if privacy.record_noise > 0 and privacy.record_clip == 0:
        yield SettingsConflict(
            (clip, noise),
            "privacy.record_noise hides a record only if its gradient is clipped, found "
            "privacy.record_clip = 0: set it, for example to 1.0.",
        )
    if privacy.record_clip == 0:
        return
    rounded = getattr(config.engine, "precision", "float32") != "float32"
    remedy = "leave engine.precision at its default, and choose another engine."
    yield Clash(rounded, clip, "training in float32", "engine.precision", remedy)
    for part in recipe_of(config).by_batch:
        name = _key_of(part)
        needs = "the gradient of a batch's mean loss"
        remedy = "set privacy.record_clip = 0."
        yield Clash(privacy.record_clip > 0, name, needs, clip, remedy)
    if config.privacy_plan.sums_gradients:
        yield from _sums_of_gradients(config)
        return
    remedy = "set privacy.noise_model = 'central' or 'distributed'."
    own = privacy.record_noise > 0 and config.engine.is_remote
    yield Clash(own, "privacy.noise_model", EVERYBODYS_DATA, "engine.name", remedy)


def _sums_of_gradients(config: Sections) -> Conflicts:
    """One step a round by a sum of clipped gradients is all that a client sends of its records."""
    train, method, key = config.train, config.method, "privacy.record_clip"
    if config.privacy.client_noise > 0:
        yield SettingsConflict(
            ("privacy.client_noise", key),
            f"Noise on a sum hides clients or records, found privacy.client_noise = "
            f"{config.privacy.client_noise} and privacy.record_clip = "
            f"{config.privacy.record_clip}: remove privacy.record_clip, as noise that hides a "
            f"client hides its records, too.",
        )
    step = "one step a round, whose direction is a sum of clipped gradients"
    objective = method.objective or train.objective
    for other, holds in (
        ("train.optimizer", train.optimizer != Sgd()),
        ("train.max_gradient_norm", train.max_gradient_norm > 0),
        ("train.objective", objective.corrects or objective.remembers),
        ("model.personal", bool(config.model.personal)),
        ("leaving.store_updates", config.leaving.store_updates > 0),
    ):
        remedy = "leave it at its default; steps of the server: aggregation.server_optimizer."
        name = "method.name" if other == "train.objective" and method.objective else other
        yield Clash(holds, key, step, name, remedy)
    yield Clash(method.starts_warm, key, step, "method.initialisation", "choose random.")
    sees = config.aggregation.sees_updates
    yield Clash(sees, key, "the mean of updates", "aggregation.name")
    open_choices = config.privacy.selection_noise == 0 or train.participation < 1
    remedy = "choose fedavg, or set privacy.selection_noise and train.participation = 1."
    needs = "one model for everybody, or choices of a cluster under noise, by all"
    yield Clash(method.num_models != 1 and open_choices, key, needs, "method.name", remedy)
    if config.privacy_plan.clients_add_noise:
        yield from _noise_of_clients(config)


def _exposures(config: Sections) -> Conflicts:
    """What is accepted bounds an attack on all models by the noise on every sum."""
    privacy, key = config.privacy, "privacy.exposure"
    if privacy.exposure == 1:
        return
    if not config.privacy_plan.noise:
        yield SettingsConflict(
            (key, "privacy.record_noise"),
            f"privacy.exposure bounds what noise on sums reveals, found exposure = "
            f"{privacy.exposure!r} without noise: set privacy.record_noise with record_clip, or "
            f"client_noise with client_clip.",
        )
    local = privacy.noise_model == "local"
    yield Clash(local, key, "noise on a sum over all clients", "privacy.noise_model")
    several = config.method.num_models != 1
    yield Clash(several, key, "one model for everybody", "method.name", "choose fedavg.")
    counts = config.risk.counts and privacy.noise_model == "distributed"
    remedy = "set risk.name = 'none'."
    yield Clash(counts, key, "clients to send nothing but updates", "risk.name", remedy)


def _noisy_choices(config: Sections) -> Conflicts:
    """Report-noisy-min is for choices by the lowest cost, whose loss is bounded."""
    method, key, remedy = config.method, "privacy.selection_noise", "set it to 0."
    if config.privacy.selection_noise == 0:
        return
    lowest, chooses = "choices by the lowest cost of a round", method.traits.chooses_clusters
    yield Clash(not chooses, key, "clients that choose their cluster", "method.name", remedy)
    warm, cold = chooses and method.starts_warm, "set method.initialisation = 'random'."
    yield Clash(warm, key, lowest, "method.initialisation", cold)
    other = "method.selection" if hasattr(method, "selection") else "method.name"
    yield Clash(chooses and not warm and not method.choice.minimises, key, lowest, other, remedy)
    numbers = config.model.task == "regression"
    yield Clash(numbers, key, "a loss with a known bound", "model.task", remedy)


def _stopping_under_noise(config: Sections) -> Conflicts:
    """A run may not end where its models say, as its noise is accounted for beforehand."""
    privacy, stopping = config.privacy, config.stopping
    noise = privacy.client_noise or privacy.record_noise or privacy.selection_noise
    for key, value, ends in (
        ("stopping.figure", stopping.figure, stopping.figure != "none"),
        ("stopping.target", stopping.target, stopping.target > 0),
    ):
        if ends and (noise or _is_sound(config)):
            yield SettingsConflict(
                (key,),
                f"{key} = {value!r} lets the models decide how many rounds are played, and a "
                f"guarantee counts the rounds that were fixed beforehand: remove it, or the "
                f"noise.",
            )


def _masked_sums(config: Sections) -> Conflicts:
    """Under masks clients send nothing but sums."""
    method, key, remedy = config.method, "privacy.secure_sums", "set privacy.secure_sums = false."
    if not config.privacy.secure_sums:
        return
    other = "method.num_clusters" if method.declares("sends_sums") else "method.name"
    needs = "clients to send nothing but one sum over all of them"
    yield Clash(not method.sends_sums_alone, key, needs, other, remedy)
    sees = config.aggregation.sees_updates
    yield Clash(sees, "aggregation.name", SINGLE_UPDATES, key, remedy)
    central, other = config.privacy_plan.server_adds_noise, "privacy.noise_model"
    remedy = "set privacy.noise_model = 'distributed', or secure_sums = false."
    yield Clash(central, key, "clients to add the noise on what they send", other, remedy)


def _leaving(config: Sections) -> Conflicts:
    """Updates are calibrated where one model is their mean; who is simulated leaves by chance."""
    method, train, optimizer = config.method, config.train, config.aggregation.server_optimizer
    if config.leaving.store_updates > 0:
        key, remedy = "leaving.store_updates", "set leaving.store_updates = 0."
        for other, holds in (
            ("method.name", not method.traits.calibrates or method.personal is not None),
            ("aggregation.server_optimizer", not isinstance(optimizer, NoServerOptimizer)),
            ("train.objective", (method.objective or train.objective).remembers),
            ("model.personal", bool(config.model.personal)),
            ("engine.name", config.engine.is_remote),
            ("train.cohort_size", train.cohort_size > 0),
            ("privacy.secure_sums", config.privacy.secure_sums),
        ):
            needs = "clients' updates to be kept and calibrated"
            yield Clash(holds, key, needs, other, remedy)
    if config.leaving.request_probability > 0:
        key = "leaving.request_probability"
        remedy = "set it to 0: clients ask for themselves, or their own model is deleted."
        yield Clash(config.engine.is_remote, key, SIMULATED_HERE, "engine.name", remedy)
        yield Clash(method.traits.one_client_each, key, SHARED_MODELS, "method.name", remedy)


def _trained_apart(config: Sections) -> Conflicts:
    """An engine that trains clients as one tensor has no client, and no example, by itself."""
    for part in recipe_of(config).per_client:
        needs = "every client to be trained by itself, with the gradient of every example"
        remedy = "change it, or choose another engine."
        yield Clash(config.engine.batches_clients, _key_of(part), needs, "engine.name", remedy)


def _key_of(part: str) -> str:
    """Return the setting that says a part of a recipe."""
    elsewhere = {
        "personal": "method.name",
        "record_clip": "privacy.record_clip",
        "augment": "data.augment",
    }
    return elsewhere.get(part, f"train.{part}")


def _objectives(config: Sections) -> Conflicts:
    """Entries that stay with clients are in one model; an algorithm's objective stands alone."""
    method, named = config.method, config.train.objective
    if config.model.personal:
        key, remedy = "model.personal", "set model.personal = []."
        several = method.traits.chooses_clusters or method.traits.one_client_each
        own = several or not method.traits.trains or method.personal is not None
        yield Clash(own, key, "one shared model that clients train", "method.name", remedy)
        needs, remembers = (
            "clients to keep these entries alone",
            (method.objective or named).remembers,
        )
        yield Clash(remembers, key, needs, "train.objective", remedy)
    if method.objective is not None and type(named) is not Objective:
        yield SettingsConflict(
            ("train.objective",),
            f"method.name = {method.name!r} has an objective of its own, found "
            f"train.objective = {named.name!r} beside it: leave one of the two at its default.",
        )


def _fixed_cohorts(config: Sections) -> Conflicts:
    """Cohorts of a fixed size are no independent draws, and change with who is there."""
    train, privacy, key = config.train, config.privacy, "train.cohort_size"
    if train.cohort_size == 0:
        return
    if train.participation < 1:
        yield SettingsConflict(
            (key, "train.participation"),
            f"Clients are drawn by their number or each by its own chance, found {key} = "
            f"{train.cohort_size} and train.participation = {train.participation}: set "
            f"{key} = 0, or train.participation = 1.",
        )
    for other, value, fewest in () if config.is_unread else cohort_needs(config):
        if train.cohort_size < fewest:
            yield SettingsConflict(
                (key, other),
                f"{key} must be at least {fewest} with {other} = {value!r}, or no model ever "
                f"moves, found {train.cohort_size}: raise it.",
            )
    remedy = f"set {key} = 0, and train.participation for a share of the clients."
    noise, needs = privacy.client_noise > 0, "cohorts of a fixed size"
    yield Clash(noise, key, needs, "privacy.client_noise", remedy)
    sets, needs = isinstance(config.aggregation, AnonymitySets), "independent draws of clients"
    yield Clash(sets, "aggregation.name", needs, key, remedy)
    needs = "the cohorts of the others to stay as they are when a client leaves"
    yield Clash(config.method.traits.subtracts, "method.name", needs, key, remedy)


def _metrics(config: Sections) -> Conflicts:
    """Metrics are measured here, by answers that fit the task, each once."""
    key, task, labels = "metrics", config.model.task, [metric.label for metric in config.metrics]
    if len(set(labels)) < len(labels):
        yield SettingsConflict(
            (key,), f"{key} must differ from each other, found {', '.join(labels)}: remove one."
        )
    for metric in config.metrics:
        if task not in metric.tasks:
            yield SettingsConflict(
                (key, "model.task"),
                f"The metric {metric.name!r} is for model.task = "
                f"{' or '.join(map(repr, metric.tasks))}, found {task!r}: remove it from {key}.",
            )
    known = [metric.label for metric in config.metrics if not isinstance(metric, Confusion)]
    for of, name in (
        ("stopping.figure", config.stopping.figure),
        ("checkpoints.best", config.checkpoints.best),
    ):
        if name not in FIGURES and metric_named(name, known) is None:
            yield SettingsConflict(
                (of,), unknown(of, name, (*FIGURES, *known), "a metric of metrics")
            )
    if config.metrics and config.engine.is_remote:
        yield SettingsConflict(
            (key, "engine.name"),
            f"{key} are measured on clients that are simulated here, found {', '.join(labels)} "
            f"with engine.name = {config.engine.name!r}: set {key} = [].",
        )


RULES: Sequence[Callable[[Sections], Conflicts]] = (
    _public_examples,
    _population,
    of_data,
    _held_out,
    _one_batch,
    _tasks,
    _balanced_classes,
    _components,
    _aggregations,
    _noise_without_training,
    _noise_on_clients,
    _noise_on_records,
    _exposures,
    _noisy_choices,
    _stopping_under_noise,
    _masked_sums,
    _leaving,
    _trained_apart,
    _objectives,
    _fixed_cohorts,
    _metrics,
)


def refusals(
    config: Sections, rules: Sequence[Callable[[Sections], Conflicts]] = RULES
) -> Iterator[SettingsConflict]:
    """Yield why these settings cannot be had together."""
    for rule in rules:
        for conflict in rule(config):
            if isinstance(conflict, SettingsConflict):
                yield conflict
            elif conflict.holds:
                yield conflict.refusal(config)


@dataclass(frozen=True, slots=True)
class Idle:
    """A setting that is not at its default, and does nothing.

    Attributes:
        reason: what else is set, and what it makes of this one; no full stop.
    """

    key: str
    value: object
    reason: str

    @property
    def sentence(self) -> str:
        """The fact as a sentence."""
        return f"{self.key} = {self.value!r} does nothing: {self.reason}."


def reasons(config: Sections) -> Iterator[tuple[Sequence[str], bool, str]]:
    """Yield keys, whether nothing comes of them, and why: sections count as all their keys."""
    data, method, train, risk = config.data, config.method, config.train, config.risk
    population, shift, privacy = config.population, config.population.shift, config.privacy
    aggregation, noise = config.aggregation, getattr(config.aggregation, "noise", "")
    drawn = ("participation", "cohort_size")  # of clients that train nothing, too
    of_training = (f"train.{field}" for field in type(train).model_fields if field not in drawn)
    no_files = not data.reads_files and not data.is_own
    yield ("data.dir",), no_files, f"data.name = {data.name!r} reads no files of this folder"
    yield (
        _OF_SIMULATION,
        not data.simulates,
        f"the clients of data.name = {data.name!r} bring their own examples",
    )
    yield (
        tuple(f"population.{name}" for name in _OF_TWO_GROUPS),
        bool(population.groups),
        "population.groups is there instead",
    )
    yield (
        ("population.shift_per", "population.minority", "population.majority"),
        shift.changes_nothing,
        f"population.shift = {shift.name!r} shifts nothing",
    )
    yield (
        ("population.risk_weight",),
        not (method.traits.chooses_clusters and method.choice.weighs),
        "it is for method.selection = 'weighted', where clients choose by it",
    )
    unmeasured, key = not risk.measures, f"risk.name = {risk.name!r}"
    yield ("population.risk_weight",), unmeasured, f"{key} leaves no risk to weigh"
    yield ("risk.every",), unmeasured and not aggregation.waits, f"{key} measures nothing"
    yield ("population.pool",), not risk.needs_pool, f"{key} trains nothing on the server's images"
    yield (
        ("method.max_newcomers",),
        isinstance(method, Clustered) and method.num_clusters == 1,
        "method.num_clusters = 1 leaves no client to move",
    )
    yield (
        ("method.select_on", "method.select_examples"),
        method.compares_on[0] == "batch",
        "method.same_batch compares the models on the batch of the step",
    )
    yield (
        (*of_training, "data.augment", "aggregation"),
        not method.traits.trains,
        f"method.name = {method.name!r} solves its models from sums, and trains none",
    )
    for key, noises in (
        ("radius", ("paper", "sound")),
        ("delta", ("sound",)),
        ("noise_shape", ("paper", "released")),
    ):
        names = " and ".join(map(repr, noises))
        yield (
            (f"aggregation.{key}",),
            isinstance(aggregation, AnonymitySets) and noise not in noises,
            f"it is for aggregation.noise = {names}, found {noise!r}",
        )
    yield (
        ("aggregation.max_norm",),
        isinstance(aggregation, NormBounded) and aggregation.max_relative_norm > 0,
        "aggregation.max_relative_norm takes its place",
    )
    yield (
        ("train.local_epochs",),
        train.local_steps > 0,
        f"train.local_steps = {train.local_steps} counts steps instead of epochs",
    )
    yield ("stopping",), config.rounds == 1, "rounds = 1 leaves nothing to end early"
    never = config.stopping.figure == "none"
    yield (
        ("stopping.patience", "stopping.min_change"),
        never,
        "stopping.figure = 'none' waits for no better figure",
    )
    yield (
        ("privacy.noise_model", "privacy.colluders"),
        not config.privacy_plan.noise and privacy.record_clip == 0,
        "privacy.client_noise = 0 leaves no noise for anybody to add",
    )
    yield (
        ("privacy.releases",),
        privacy.exposure == 1,
        "privacy.exposure = 1 bounds no number of releases",
    )
    yield (
        ("privacy.expected_records",),
        not config.privacy_plan.sums_gradients,
        "no sum of gradients is divided by it",
    )
    yield (
        ("train.local_epochs", "train.local_steps", "train.batch_size", "train.drop_last"),
        config.privacy_plan.sums_gradients,
        "privacy.record_clip makes one step a round on all records",
    )
    yield (
        ("privacy.weigh_by_budget", "population.min_clients"),
        not (population.epsilon_limits or config.engine.is_remote),
        "population.epsilon_limits = [] leaves nobody with a budget",
    )
    yield (
        ("privacy.colluders",),
        privacy.noise_model != "distributed",
        f"privacy.noise_model = {privacy.noise_model!r} adds no shares of noise",
    )
    yield (
        ("privacy.delta",),
        not (privacy.client_noise or privacy.record_noise or privacy.selection_noise),
        "no noise of this section is on, so that nothing is promised at this delta",
    )
