"""What settings cannot be had together, and what of them does nothing: one function per rule.

A rule looks at settings that are fine one by one, and yields `Refusal(keys, message)`: the
settings that it is about, and what must be, what was found and what to do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from covey.aggregation.anonymity import AnonymitySets
from covey.aggregation.robust import NormBounded
from covey.aggregation.server import NoServerOptimizer
from covey.algorithms.algorithm import Clustered, Subtractable
from covey.algorithms.ifca import Ifca
from covey.algorithms.selection import Keeping
from covey.algorithms.solved import Solved
from covey.config.sections import Sections
from covey.data.partition import Dirichlet
from covey.data.source import DataSource
from covey.engine.recipe import Objective, Recipe


class Refusal(NamedTuple):
    """Why settings cannot be had together.

    Attributes:
        keys: the settings that it is about, as `section.key`.
        message: a sentence, or a few.
    """

    keys: tuple[str, ...]
    message: str


Rule = Callable[[Sections], Iterator[Refusal]]


def stated(config: Sections, key: str) -> str:
    """Return a setting as messages have it: `section.key = value`."""
    found: object = config
    for part in key.split("."):
        found = getattr(found, part)
    return f"{key} = {getattr(found, 'name', found)!r}"


def clash(config: Sections, needy: str, needs: str, other: str, remedy: str) -> Refusal:
    """Return that one setting needs what another rules out."""
    message = f"{stated(config, needy)} needs {needs}, but {stated(config, other)} rules it out"
    return Refusal((needy, other), f"{message}. {remedy}")


def is_solved(config: Sections) -> bool:
    """Say whether the method's models depend on data through sums, which noise hides."""
    return config.method.subtracts and not config.method.is_own


def recipe_of(config: Sections) -> Recipe:
    """Return how clients train; `Recipe.at` is how they do in one round."""
    train, privacy = config.train, config.privacy
    return Recipe(
        local_epochs=train.local_epochs,
        local_steps=train.local_steps,
        batch_size=train.batch_size,
        learning_rate=train.learning_rate,
        drop_last=train.drop_last,
        record_clip=privacy.record_clip,
        record_noise=privacy.record_noise if privacy.record_clip else 0.0,
        optimizer=train.optimizer,
        schedule=train.schedule,
        loss=train.loss,
        objective=config.method.objective or train.objective,
        personal=config.method.personal,
        max_gradient_norm=train.max_gradient_norm,
        keep_losses=train.keep_losses,
        own_layers=bool(config.model.personal),
    )


def ranges(config: Sections) -> Iterator[Refusal]:
    """[low, high] are in this order, and groups are all clients."""
    population = config.population
    for name in ("minority", "majority", "thresholds"):
        low, high = getattr(population, name)
        if low > high:
            yield Refusal(
                (f"population.{name}",),
                f"population.{name} must be [low, high] with low <= high, found "
                f"{[low, high]}. Swap the two numbers.",
            )
    shares = sum(group.share for group in population.groups)
    if population.groups and abs(shares - 1) > 1e-6:
        yield Refusal(
            ("population.groups",),
            f"The shares in population.groups must add up to 1, found {shares:g}. Correct them.",
        )


def images_of_groups(config: Sections) -> Iterator[Refusal]:
    """The same images for every group take a shift that tells groups apart."""
    shift = config.population.shift
    if config.population.images == "per-group" and shift.changes_nothing:
        yield Refusal(
            ("population.images", "population.shift"),
            f"population.images = 'per-group' gives every group the same images, each in its "
            f"own transform, found population.shift = {shift.name!r}. Choose a shift, or "
            f"images = 'disjoint'.",
        )


def drawn_data(config: Sections, source: DataSource | None = None) -> Iterator[Refusal]:
    """Numbers that are drawn have no images, no classes, and no set to deal out."""
    source = source or config.data
    population = config.population
    if not source.is_drawn:
        return
    needs = "one data set out of which clients' examples are dealt"
    for key, needed in (
        ("population.images", population.images != "disjoint"),
        ("population.partition", population.partition.needs_data_set),
        ("audit.non_members", config.audit.non_members != "matched"),
    ):
        if needed:
            yield clash(config, key, needs, "data.name", "Leave it at its default.")
    if not population.shift.changes_nothing:
        remedy = "Set population.shift = 'none'."
        yield clash(config, "population.shift", "images", "data.name", remedy)
    if config.model.task != "regression":
        remedy = "Set model.task = 'regression'."
        yield clash(config, "model.task", "labels that are classes", "data.name", remedy)


def groups_known(config: Sections, source: DataSource | None = None) -> Iterator[Refusal]:
    """Starting from the true groups takes knowing them, and one cluster for each."""
    method, source = config.method, source or config.data
    if not (isinstance(method, Clustered) and method.initialisation == "groups"):
        return
    key, remedy = "method.initialisation", "Set it to 'warm' or 'random'."
    needs = "to know every client's group"
    if config.engine.is_remote:
        yield clash(config, key, needs, "engine.name", remedy)
    elif not source.knows_groups:
        yield clash(config, key, needs, "data.name", remedy)
    groups = len(config.population.groups) or 2
    if source.simulates and method.num_clusters != groups:
        yield Refusal(
            (key, "method.num_clusters"),
            f"method.initialisation = 'groups' needs one cluster per group, found "
            f"num_clusters = {method.num_clusters} for {groups} groups. Set "
            f"method.num_clusters = {groups}.",
        )


def kept_shares(config: Sections) -> Iterator[Refusal]:
    """A share of the clients that every cluster keeps, which fits and moves newcomers."""
    method, choice = config.method, config.method.choice
    if not isinstance(choice, Keeping):
        return
    key, share, most = "method.selection", choice.target_share, 1 / (method.num_models or 1)
    if share > most:
        yield Refusal(
            (key,),
            f"{key}.target_share is what each of method.num_clusters = "
            f"{method.num_models} clusters keeps, so at most {most:.3g}, found {share:g}. "
            f"Lower it.",
        )
    elif share == 0:
        yield Refusal(
            (key,),
            f"method.selection = {choice.name!r} keeps target_share of the clients in every "
            f"cluster, found 0. Set it, for example to {most / 2:.3g}: method.selection = "
            f'{{name = "{choice.name}", target_share = {most / 2:.3g}}}.',
        )
    elif isinstance(method, Ifca) and method.max_newcomers > 0:
        yield Refusal(
            (key, "method.max_newcomers"),
            f"{key}.target_share moves clients into small clusters, and method.max_newcomers "
            f"bounds who enters them, found {share:g} and {method.max_newcomers:g}. Set one of "
            f"the two to 0.",
        )
    if config.engine.is_remote or config.privacy.secure_sums:
        other = "engine.name" if config.engine.is_remote else "privacy.secure_sums"
        needs = "to know what every client measured"
        yield clash(config, key, needs, other, "Choose another selection.")


def held_out(config: Sections) -> Iterator[Refusal]:
    """What looks at examples that clients hold out needs some."""
    if config.population.holdout > 0:
        return
    remedy = "Reserve some (population.holdout = 0.2), or change the other."
    needs = "clients to hold examples out"
    if config.risk.needs_holdout:
        yield clash(config, "risk.name", needs, "population.holdout", remedy)
    if config.method.compares_on[0] == "holdout":
        yield clash(config, "method.select_on", needs, "population.holdout", remedy)


def risk_measured(config: Sections, source: DataSource | None = None) -> Iterator[Refusal]:
    """What a measurement of risk rests on is there."""
    risk, source = config.risk, source or config.data
    key, remedy = "risk.name", "Change one of the two."
    if risk.needs_client_data and config.engine.is_remote:
        yield clash(config, key, "to see every client's data", "engine.name", remedy)
    if not risk.needs_pool:
        return
    needs = "data on the server that are like the clients'"
    if config.engine.is_remote:
        yield clash(config, key, needs, "engine.name", remedy)
    elif not source.has_pool:
        yield clash(config, key, needs, "data.name", remedy)
    if config.model.task == "regression":
        yield clash(config, key, "labels that are classes", "model.task", remedy)


def tasks(config: Sections) -> Iterator[Refusal]:
    """Labels are what losses, heads and remote clients take them for."""
    task, remedy = config.model.task, "Change one of the two."
    if task not in config.train.loss.tasks:
        of = {"multiclass": "one class per example", "regression": "labels that are numbers"}
        needs = of[config.train.loss.tasks[0]]
        yield clash(config, "train.loss", needs, "model.task", remedy)
    if task != "multiclass":
        needs = "one class per example"
        if is_solved(config):
            yield clash(config, "method.name", needs, "model.task", remedy)
        if config.engine.is_remote:
            yield clash(config, "engine.name", needs, "model.task", remedy)
    if task == "tokens" and isinstance(config.population.partition, Dirichlet):
        needs = "classes of examples"
        yield clash(config, "population.partition", needs, "model.task", remedy)


def pooled(config: Sections) -> Iterator[Refusal]:
    """Pooled models are weighed by how many examples each client holds, all being known."""
    method = config.method
    if not (isinstance(method, Ifca) and method.pooling != 0):
        return
    key, remedy = "method.pooling", "Set method.pooling = 0, or use privacy.record_noise."
    if config.engine.is_remote:
        yield clash(config, key, "to know all clients from the start", "engine.name", remedy)
    needs = "to know how many examples each client holds"
    if config.privacy.client_noise > 0:
        yield clash(config, key, needs, "privacy.client_noise", remedy)
    if isinstance(config.aggregation, AnonymitySets) and config.aggregation.noise == "sound":
        yield clash(config, key, needs, "aggregation.noise", remedy)
    if method.pooling == "risk":
        if not config.risk.measures:
            yield clash(config, key, "a measured risk", "risk.name", "Set a share.")
        if config.model.task == "regression":
            yield clash(config, key, "a loss with a known bound", "model.task", "Set a share.")


def many_models(config: Sections) -> Iterator[Refusal]:
    """Who has a model of its own shares none, and is known from the start."""
    method, remedy = config.method, "Change one of the two."
    absent = method.reads_population and not isinstance(method, Ifca | Subtractable)
    if (method.one_client_each or absent) and config.engine.is_remote:
        needs = "to know all clients from the start"
        yield clash(config, "method.name", needs, "engine.name", remedy)
    if config.aggregation.needs_shared_models and method.one_client_each:
        needs = "models that several clients share"
        yield clash(config, "aggregation.name", needs, "method.name", remedy)
    if config.aggregation.sees_updates and not method.trains:
        needs = "to see single updates that clients train"
        yield clash(config, "aggregation.name", needs, "method.name", remedy)


def weights_alike(config: Sections) -> Iterator[Refusal]:
    """Where clients count alike, examples do not weigh them."""
    if config.aggregation.weights == "equal":
        return
    remedy = "Set aggregation.weights = 'equal'."
    needs = "clients to count alike, however many examples they hold"
    sound = isinstance(config.aggregation, AnonymitySets) and config.aggregation.noise == "sound"
    if config.aggregation.needs_equal_weights or sound:
        yield clash(config, "aggregation.name", needs, "aggregation.weights", remedy)
    if config.privacy.client_noise > 0:
        yield clash(config, "privacy.client_noise", needs, "aggregation.weights", remedy)


def noise_on_clients(config: Sections) -> Iterator[Refusal]:
    """A sum is hidden, and not what its terms are: noise on sums takes sums, and a clip."""
    privacy, key = config.privacy, "privacy.client_noise"
    if privacy.client_noise == 0:
        if privacy.client_clip:
            yield Refusal(
                ("privacy.client_clip", key),
                "privacy.client_clip is for updates that privacy.client_noise hides, found "
                "client_noise = 0. Set the noise, or remove client_clip.",
            )
        return
    if privacy.client_clip == 0:
        yield Refusal(
            ("privacy.client_clip", key),
            "privacy.client_noise is in units of privacy.client_clip, the largest norm of an "
            "update, found client_clip = 0. Set it, for example to 1.",
        )
    remedy = "Remove the noise, or use privacy.record_noise."
    if config.aggregation.sees_updates:
        yield clash(config, "aggregation.name", "the server to see single updates", key, remedy)
    if is_solved(config) and config.engine.is_remote:
        needs = "clients that are simulated here"
        yield clash(config, key, needs, "engine.name", remedy)
    if isinstance(config.method, Solved) and config.method.keep_sums:
        yield clash(config, "method.keep_sums", "sums without noise", key, "Set it to false.")
    one = config.method.num_models == 1 and config.method.trains
    if config.train.participation < 1 and not one:
        needs = "one model for everybody, that clients train"
        yield clash(
            config,
            "train.participation",
            needs,
            "method.name",
            "Set train.participation = 1: with privacy.client_noise it is secret who came, "
            "which the sizes of several clusters tell.",
        )


def noise_on_records(config: Sections) -> Iterator[Refusal]:
    """DP-SGD clips every example's gradient by itself; heads hide records at the server."""
    privacy, key = config.privacy, "privacy.record_clip"
    if privacy.record_noise > 0 and privacy.record_clip == 0:
        yield Refusal(
            (key, "privacy.record_noise"),
            "privacy.record_noise hides an example only if its gradient is clipped, found "
            "privacy.record_clip = 0. Set it, for example to 1.0.",
        )
    if privacy.record_noise > 0 and config.engine.is_remote:
        remedy = "Set privacy.record_noise = 0."
        needs = "to see every client's data"
        yield clash(config, "privacy.record_noise", needs, "engine.name", remedy)
    if isinstance(config.method, Solved) and config.method.keep_sums and privacy.record_noise:
        remedy = "Set method.keep_sums = false."
        needs = "sums without noise"
        yield clash(config, "method.keep_sums", needs, "privacy.record_noise", remedy)
    if privacy.record_clip == 0:
        return
    remedy = "Leave engine.precision at its default, and choose another engine."
    if getattr(config.engine, "precision", "float32") != "float32":
        yield clash(config, key, "training in float32", "engine.precision", remedy)
    for part in recipe_of(config).by_batch:
        name = "method.name" if part == "personal" else f"train.{part}"
        needs = "the gradient of a batch's mean loss"
        yield clash(config, name, needs, key, "Set privacy.record_clip = 0.")


def noise_on_sums(config: Sections) -> Iterator[Refusal]:
    """Noise on ridge heads is on sums, for clients, or on heads, for records."""
    privacy = config.privacy
    if not is_solved(config):
        return
    if privacy.client_noise > 0 and privacy.record_clip > 0:
        yield Refusal(
            ("privacy.client_noise", "privacy.record_clip"),
            f"Noise is on sums, for clients, or on heads, for records, found "
            f"privacy.client_noise = {privacy.client_noise} and privacy.record_clip = "
            f"{privacy.record_clip}. Noise that hides a client hides each of its records, "
            f"too: remove privacy.record_clip and privacy.record_noise.",
        )
    elif privacy.record_clip > 0 and privacy.record_noise == 0:
        yield Refusal(
            ("privacy.record_clip", "privacy.record_noise"),
            "privacy.record_clip bounds what noise on heads hides, found "
            "privacy.record_noise = 0. Set the noise, or remove the clip.",
        )
    if config.engine.is_remote and privacy.record_clip > 0:
        needs, remedy = "clients that are simulated here", "Remove it."
        yield clash(config, "privacy.record_clip", needs, "engine.name", remedy)


def noisy_choices(config: Sections) -> Iterator[Refusal]:
    """Report-noisy-min is for choices by the lowest cost, whose loss is bounded."""
    method, key, remedy = config.method, "privacy.selection_noise", "Set it to 0."
    if config.privacy.selection_noise == 0:
        return
    if not method.chooses_clusters:
        yield clash(config, key, "clients that choose their cluster", "method.name", remedy)
    elif method.starts_warm:
        needs = "choices by the lowest cost of a round"
        remedy = "Set method.initialisation = 'random'."
        yield clash(config, key, needs, "method.initialisation", remedy)
    elif not method.choice.minimises:
        other = "method.selection" if hasattr(method, "selection") else "method.name"
        yield clash(config, key, "choices by the lowest cost of a round", other, remedy)
    if config.model.task == "regression":
        yield clash(config, key, "a loss with a known bound", "model.task", remedy)


def stopping_under_noise(config: Sections) -> Iterator[Refusal]:
    """A run may not end where its models say, as its noise is accounted for beforehand."""
    privacy, figure = config.privacy, config.stopping.figure
    noise = privacy.client_noise or privacy.record_noise or privacy.selection_noise
    sound = isinstance(config.aggregation, AnonymitySets) and config.aggregation.noise == "sound"
    if figure != "none" and (noise or sound):
        yield Refusal(
            ("stopping.figure",),
            f"stopping.figure = {figure!r} lets the models decide how many rounds are "
            f"played, and a guarantee counts the rounds that were settled beforehand. Remove "
            f"it, or the noise.",
        )


def masked_sums(config: Sections) -> Iterator[Refusal]:
    """Under masks clients send nothing but sums."""
    key, remedy = "privacy.secure_sums", "Set privacy.secure_sums = false."
    if not config.privacy.secure_sums:
        return
    if not config.method.sends_sums_alone:
        sums = config.method.vouches_for("sends_sums")
        other = "method.initialisation" if sums and config.method.starts_warm else "method.name"
        if isinstance(config.method, Solved) and config.method.keep_sums:
            other = "method.keep_sums"
        yield clash(config, key, "clients to send nothing but sums", other, remedy)
    if config.aggregation.sees_updates:
        yield clash(config, "aggregation.name", "the server to see single updates", key, remedy)


def stored_updates(config: Sections) -> Iterator[Refusal]:
    """Updates are kept and calibrated where one model is their mean, and nothing more."""
    method, train, optimizer = config.method, config.train, config.aggregation.server_optimizer
    if config.leaving.store_updates == 0:
        return
    rules_out = {
        "method.name": not method.calibrates or method.personal is not None,
        "aggregation.server_optimizer": not isinstance(optimizer, NoServerOptimizer),
        "train.objective": (method.objective or train.objective).remembers,
        "model.personal": bool(config.model.personal),
        "engine.name": config.engine.is_remote,
        "train.cohort_size": train.cohort_size > 0,
        "privacy.secure_sums": config.privacy.secure_sums,
    }
    needs = "clients' updates to be kept and calibrated"
    remedy = "Set leaving.store_updates = 0."
    for other, found in rules_out.items():
        if found:
            yield clash(config, "leaving.store_updates", needs, other, remedy)


def leaving_by_chance(config: Sections) -> Iterator[Refusal]:
    """Clients that are simulated ask to leave at random, where models are shared."""
    key = "leaving.request_probability"
    remedy = "Set it to 0: clients ask for themselves, or their own model is deleted."
    if config.leaving.request_probability == 0:
        return
    if config.engine.is_remote:
        yield clash(config, key, "clients that are simulated here", "engine.name", remedy)
    if config.method.one_client_each:
        yield clash(config, key, "models that several clients share", "method.name", remedy)


def trained_apart(config: Sections) -> Iterator[Refusal]:
    """An engine that trains clients as one tensor has no client, and no example, by itself."""
    if not config.engine.batches_clients:
        return
    for part in recipe_of(config).apart:
        section = "privacy" if part == "record_clip" else "train"
        key = "method.name" if part == "personal" else f"{section}.{part}"
        needs = "every client to be trained by itself, with the gradient of every example"
        yield clash(config, key, needs, "engine.name", "Change it, or choose another engine.")


def personal_layers(config: Sections) -> Iterator[Refusal]:
    """Entries that stay with clients stand in one model that all of them train."""
    key, remedy = "model.personal", "Set model.personal = []."
    if not config.model.personal:
        return
    method, own = config.method, config.method.personal is not None
    if not method.trains or method.chooses_clusters or method.one_client_each or own:
        yield clash(config, key, "one shared model that clients train", "method.name", remedy)
    if (method.objective or config.train.objective).remembers:
        needs = "clients to keep these entries alone"
        yield clash(config, key, needs, "train.objective", remedy)
    if config.train.keep_losses:
        needs = "clients to keep these entries alone"
        yield clash(config, key, needs, "train.keep_losses", remedy)


def one_objective(config: Sections) -> Iterator[Refusal]:
    """An algorithm's own objective stands in no other's place."""
    named = config.train.objective
    if config.method.objective is not None and type(named) is not Objective:
        yield Refusal(
            ("train.objective",),
            f"method.name = {config.method.name!r} has an objective of its own, found "
            f"train.objective = {named.name!r} beside it. Leave one of the two at its default.",
        )


def fixed_cohorts(config: Sections) -> Iterator[Refusal]:
    """Cohorts of a fixed size are no independent draws, and change with who is there."""
    train, privacy, key = config.train, config.privacy, "train.cohort_size"
    if train.cohort_size == 0:
        return
    if train.participation < 1:
        yield Refusal(
            (key, "train.participation"),
            f"Clients are drawn by their number or each by its own chance, found {key} = "
            f"{train.cohort_size} and train.participation = {train.participation}. Set "
            f"{key} = 0, or train.participation = 1.",
        )
    if privacy.secure_sums and train.cohort_size < privacy.min_cohort:
        yield Refusal(
            (key, "privacy.min_cohort"),
            f"{key} must be at least privacy.min_cohort = {privacy.min_cohort}, or no sum "
            f"under masks is ever opened, found {train.cohort_size}. Raise it.",
        )
    remedy = f"Set {key} = 0, and train.participation for a share of the clients."
    if privacy.client_noise > 0:
        needs = "cohorts of a fixed size"
        yield clash(config, key, needs, "privacy.client_noise", remedy)
    if isinstance(config.aggregation, AnonymitySets):
        yield clash(config, "aggregation.name", "independent draws of clients", key, remedy)
    if config.method.subtracts:
        needs = "the cohorts of the others to stay as they are when a client leaves"
        yield clash(config, "method.name", needs, key, remedy)


def metrics_measured(config: Sections) -> Iterator[Refusal]:
    """Metrics are measured here, by answers that fit the task, each once."""
    key, task, labels = "metrics", config.model.task, [each.label for each in config.metrics]
    if len(set(labels)) < len(labels):
        yield Refusal(
            (key,), f"{key} must differ from each other, found {', '.join(labels)}. Remove one."
        )
    for metric in config.metrics:
        if task not in metric.tasks:
            yield Refusal(
                (key, "model.task"),
                f"The metric {metric.name!r} is for model.task = "
                f"{' or '.join(map(repr, metric.tasks))}, found {task!r}. Remove it from {key}.",
            )
    if config.metrics and config.engine.is_remote:
        yield Refusal(
            (key, "engine.name"),
            f"{key} are measured on clients that are simulated here, found {', '.join(labels)} "
            f"with engine.name = {config.engine.name!r}. Set {key} = [].",
        )


OF_DATA = (drawn_data, groups_known, risk_measured)
"""Rules that a program's own clients may change: they are checked again with these."""

RULES: Sequence[Rule] = (
    ranges,
    images_of_groups,
    *OF_DATA,
    kept_shares,
    held_out,
    tasks,
    pooled,
    many_models,
    weights_alike,
    noise_on_clients,
    noise_on_records,
    noise_on_sums,
    noisy_choices,
    stopping_under_noise,
    masked_sums,
    stored_updates,
    leaving_by_chance,
    trained_apart,
    personal_layers,
    one_objective,
    fixed_cohorts,
    metrics_measured,
)


def refusals(config: Sections) -> Iterator[Refusal]:
    """Yield why these settings cannot be had together."""
    for rule in RULES:
        yield from rule(config)


def keeps_clusters_apart(config: Sections) -> bool:
    """Say whether a cluster's next model hangs on its own clients alone, aggregation and all."""
    parts = config.aggregation, config.aggregation.server_optimizer
    return all(each.vouches_for("keeps_clusters_apart") for each in parts)


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


DRAWS = ("participation", "cohort_size")
"""Settings of `train` that are for clients that train nothing, too."""

SIMULATED = (
    "population.clients",
    "population.examples_per_client",
    "population.shift",
    "population.shift_per",
    "population.minority_share",
    "population.minority",
    "population.majority",
    "population.groups",
    "population.partition",
    "population.images",
    "population.audit_examples",
    "audit.non_members",
)
"""What makes clients out of a data set."""


def reasons(config: Sections) -> Iterator[tuple[Sequence[str], bool, str]]:
    """Yield keys, whether nothing comes of them, and why: sections count as all their keys."""
    data, population, method = config.data, config.population, config.method
    train, risk, privacy = config.train, config.risk, config.privacy
    aggregation = config.aggregation
    yield (
        ("data.dir",),
        not data.reads_files and not data.is_own,
        f"data.name = {data.name!r} reads no files of this folder",
    )
    yield (
        SIMULATED,
        not data.simulates,
        f"the clients of data.name = {data.name!r} bring their own examples",
    )
    yield (
        (
            "population.examples_per_client",
            "population.minority_share",
            "population.minority",
            "population.majority",
        ),
        bool(population.groups),
        "population.groups is there instead",
    )
    yield (
        ("population.shift_per", "population.minority", "population.majority"),
        population.shift.changes_nothing,
        f"population.shift = {population.shift.name!r} shifts nothing",
    )
    weighs = method.chooses_clusters and method.choice.weighs
    yield (
        ("population.risk_weight",),
        not weighs,
        "it is for method.selection = 'weighted', where clients choose by it",
    )
    yield (
        ("population.risk_weight",),
        not risk.measures,
        f"risk.name = {risk.name!r} leaves no risk to weigh",
    )
    yield (
        ("method.max_newcomers",),
        isinstance(method, Clustered) and method.num_clusters == 1,
        "method.num_clusters = 1 leaves nobody to move",
    )
    of_training = (f"train.{each}" for each in type(train).model_fields if each not in DRAWS)
    yield (
        (*of_training, "aggregation"),
        not method.trains,
        f"method.name = {method.name!r} solves its models from sums, and trains none",
    )
    if isinstance(aggregation, AnonymitySets):
        for key, noises in (("radius", ("paper", "sound")), ("delta", ("sound",))):
            names = " and ".join(map(repr, noises))
            yield (
                (f"aggregation.{key}",),
                aggregation.noise not in noises,
                f"it is for aggregation.noise = {names}, found {aggregation.noise!r}",
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
    yield (
        ("risk.every",),
        not risk.measures and not aggregation.waits,
        f"risk.name = {risk.name!r} measures nothing",
    )
    yield ("stopping",), config.rounds == 1, "rounds = 1 leaves nothing to end early"
    yield (
        ("stopping",),
        config.stopping.figure == "none",
        "stopping.figure = 'none' ends no run early",
    )
    yield (
        ("privacy.delta",),
        not (privacy.client_noise or privacy.record_noise or privacy.selection_noise),
        "no noise of this section is on, so that nothing is promised at this delta",
    )
