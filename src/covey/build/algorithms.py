"""From settings to a strategy: the method composed of its steps, and its red team."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from torch import Tensor

from covey.aggregation import finite_updates
from covey.algorithms import (
    Clients,
    Ifca,
    RemoteClients,
    SelectionConfig,
    Send,
    Setup,
    Steps,
    Strategy,
    Train,
    Training,
    calibrated_by,
    evaluate_with,
    freeze_clusters,
    loss_counter,
    loss_smoother,
    no_noise_events,
    no_prices,
    noise_events_of,
    price_update,
    red_teamed,
    self_assessed,
    train_with,
)
from covey.build.aggregators import (
    aggregator_of,
    anonymity_of,
    isolates_clusters,
    noise_on_clients,
    server_step_of,
)
from covey.build.owned import user_selection
from covey.build.settled import algorithm_of, calibration_of, selection_of
from covey.clustering import (
    ClusterSelection,
    Selection,
    SelectionInputs,
    choice_epsilon,
    report_noisy_min,
)
from covey.components import is_built_in
from covey.config import Config, is_remote
from covey.data import Client, Examples, Population, Preference
from covey.engine import TASKS, Engine, Recipe, VmapEngine
from covey.errors import ConfigError
from covey.membership import (
    Laboratory,
    RedTeam,
    Reference,
    Retrial,
    counting,
    federated,
    guarded,
    inferred,
    oracle,
    reported,
    self_judge,
    shadow,
)
from covey.params import layers_of
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "NO_REPLAY",
    "Components",
    "ReplayOptions",
    "clients_of",
    "compose",
    "depends_on_population",
    "has_independent_clusters",
    "notes",
    "num_clusters",
    "red_team",
    "retrain_recipe",
    "selection_config",
]

SPLIT_STEPS = 25
"""Least local steps of the warm start's split round: enough for the groups to show."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How rounds that were played before are played again.

    Attributes:
        recorded: by round, the clusters that clients took then, and take again.
        stored_updates: the updates that clients calibrate in this round; None: they train.
        frozen_models: the models after this round of clusters that need no training.
    """

    recorded: Mapping[int, Mapping[Handle, int]] = field(
        default_factory=dict[int, Mapping[Handle, int]]
    )
    stored_updates: Mapping[Handle, Params] | None = None
    frozen_models: Mapping[int, Params] = field(default_factory=dict[int, Params])


NO_REPLAY = ReplayOptions()


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """What a method is composed of, beside its own steps.

    Attributes:
        init: draws a fresh model.
        send: how clients are asked that are remote; None: a simulation.
    """

    config: Config
    population: Population
    engine: Engine
    init: Callable[[Streams], Params]
    send: Send | None = None


def compose(components: Components) -> Strategy:
    """Compose the algorithm with its wrappers, and with its red team around them."""
    config, population = components.config, components.population
    algorithm = algorithm_of(config)
    model = components.init(Streams(config.seed).at("initial model", 0))
    setup = Setup(
        draw_model=components.init,
        population=population.clients,
        rounds=config.rounds,
        layers=layers_of(model),
        chance_loss=_chance_loss(config, population.num_classes),
    )
    strategy = algorithm.strategy(setup)
    every = config.redteam.every
    if config.redteam.source == "client" and components.send is None:
        return self_assessed(strategy, self_judge(components.engine), every)
    start = strategy.init(Streams(config.seed)).clusters
    attack = red_team(components, start)
    if attack is None:
        return strategy
    by_handle = {client.handle: client for client in population.clients}
    return red_teamed(strategy, attack, every, by_handle)


def clients_of(components: Components, replay: ReplayOptions = NO_REPLAY) -> Clients:
    """Return how clients are asked in a round, with nobody in its cohort yet."""
    config, population = components.config, components.population
    method, usual = config.method, _recipe(config)
    train, send = _training(components), components.send
    recipe, train_now = _replayed(config, usual, train, replay)
    longer = _longer(usual)
    steps = Steps(
        evaluate=evaluate_with(
            components.engine, method.select_on, method.select_examples
        ),
        train=train_now,
        aggregate=aggregator_of(config, len(population.clients)),
        clipping=partial(aggregator_of, config, len(population.clients))
        if config.privacy.adaptive_clip
        else None,
        patience=config.redteam.every,
        recorded=replay.recorded,
        noise_events=no_noise_events if send else noise_events_of(recipe),
        remote=RemoteClients(send, recipe) if send else None,
        dp_accounted=noise_on_clients(config),
        server_step=server_step_of(config),
        longer=Training(
            train(longer), no_noise_events if send else noise_events_of(longer)
        ),
    )
    if replay.frozen_models:
        steps = freeze_clusters(steps, replay.frozen_models)
    return Clients(
        (),
        steps,
        selection_config(config, population.num_classes),
        own_risks=send is not None and config.redteam.source == "client",
    )


def _training(components: Components) -> Callable[[Recipe], Train]:
    """Return how a recipe is carried out: by an engine here, or by the clients there."""
    if components.send is None:
        return partial(
            train_with, components.engine, weights=components.config.merge.weights
        )
    send = components.send
    return lambda recipe: RemoteClients(send, recipe).train


def _replayed(
    config: Config,
    usual: Recipe,
    train: Callable[[Recipe], Train],
    replay: ReplayOptions,
) -> tuple[Recipe, Train]:
    """Return how clients train in this round: as usual, unless they only calibrate."""
    if replay.stored_updates is None:
        return usual, train(usual)
    calibration = calibration_of(config)
    recipe = calibration.recipe(usual)
    return recipe, calibrated_by(calibration, train(recipe), replay.stored_updates)


def selection_config(config: Config, classes: int) -> SelectionConfig:
    """Return a selection with what stands around it: looks, prices, and who stays."""
    method, noise = config.method, config.privacy.selection_noise
    selection = selection_of(config)
    share = selection.kept_share if isinstance(selection, ClusterSelection) else None
    return SelectionConfig(
        select=_noisy_selection(config, selection, classes)
        if noise
        else _select(config, selection),
        smooth_losses=loss_smoother(method.smoothing),
        update_prices=no_prices if share is None else price_update(share),
        hysteresis=method.hysteresis,
        epsilon=choice_epsilon(noise) if noise else None,
    )


def _select(config: Config, selection: ClusterSelection | Selection) -> Selection:
    """Return a selection as a function; errors of a user's own are told as its own."""
    name = config.method.selection
    if not isinstance(selection, ClusterSelection):
        return user_selection(name, selection)
    if is_built_in("selection", name):
        return selection.select
    return user_selection(name, selection.select)


def _noisy_selection(
    config: Config, selection: ClusterSelection | Selection, classes: int
) -> Selection:
    """Return report-noisy-min of what is compared, up to the loss of guessing."""

    def cost(inputs: SelectionInputs) -> Tensor:
        found = (
            selection.cost(inputs) if isinstance(selection, ClusterSelection) else None
        )
        if found is None:
            raise ConfigError(
                f"privacy.selection_noise is for choices by the lowest cost, found "
                f"method.selection = {config.method.selection!r}. Choose a selection "
                f"that tells its cost, or set selection_noise = 0."
            )
        return found

    return report_noisy_min(
        cost=cost,
        bound=_chance_loss(config, classes),
        noise=config.privacy.selection_noise,
    )


def _chance_loss(config: Config, outputs: int) -> float:
    """Return the loss of whoever knows nothing, in nats."""
    return TASKS[config.model.task].chance_loss(outputs)


def red_team(components: Components, start: tuple[Params, ...]) -> RedTeam | None:
    """Return the attack that the settings name; None where the server has none.

    It gives no figure for a model that diverged. `start` are the models that the run
    begins with.
    """
    attack = _attack(components, start)
    if attack is None:
        return None
    config = components.config
    return guarded(
        components.engine, attack, config.redteam.source, start, config.rounds
    )


def _attack(components: Components, start: tuple[Params, ...]) -> RedTeam | None:
    config, population, engine = (
        components.config,
        components.population,
        components.engine,
    )
    source = config.redteam.source
    if source in ("none", "client"):
        return None
    if source == "federated":
        return federated(
            loss_counter(components.send) if components.send else counting(engine)
        )
    if source == "oracle":
        return oracle(engine, Reference(population.non_members))
    setup = Laboratory(
        pool=population.pool,
        shifts=tuple(group.shift for group in population.groups),
        shadows=config.redteam.shadows,
        start=start,
        play_round=_shadow_round(components),
        streams=Streams(config.seed).at("shadow"),
        everybody=tuple((c.group or 0, len(c.train)) for c in population.clients),
        shared_rounds=max(0, _shared_rounds(config)),
    )
    guess = config.redteam.profile == "inferred"
    profiler = inferred(engine, setup) if guess else reported()
    return shadow(engine, setup, profiler)


def _shadow_round(
    components: Components,
) -> Callable[[int, Params, tuple[Examples, ...], Streams], Params]:
    """Return a round of this run's own steps, for data that the server holds."""
    config, population, engine = (
        components.config,
        components.population,
        components.engine,
    )
    usual, private = _recipe(config), config.privacy.client_noise > 0
    longer = _longer(usual)
    aggregate = aggregator_of(config, len(population.clients))
    split_round = _shared_rounds(config)
    accounted = noise_on_clients(config)

    def play_round(
        index: int, params: Params, sets: tuple[Examples, ...], streams: Streams
    ) -> Params:
        recipe = longer if index == split_round else usual
        train = train_with(engine, recipe, config.merge.weights)
        coins = streams.at("cohort").generator().random(len(sets))
        cohort = tuple(
            _pseudo_client(place, examples)
            for place, (coin, examples) in enumerate(zip(coins, sets, strict=True))
            if coin < config.train.participation
        )
        only = {client.handle: 0 for client in cohort}
        updates = finite_updates(
            train((params,), cohort, only, streams), as_zero=accounted
        )
        alike = aggregator_of(config, len(sets)) if private else aggregate
        return alike((params,), updates, streams.at("merge")).clusters[0]

    return play_round


def retrain_recipe(components: Components) -> Retrial:
    """Return how an auditor plays this run's recipe again."""
    config = components.config
    return Retrial(
        components.init, _shadow_round(components), _recipe(config), config.rounds
    )


def _pseudo_client(index: int, examples: Examples) -> Client:
    name, nothing = f"shadow-{index}", examples.first(0)
    return Client(name, name, None, examples, nothing, Preference(0.0, 1.0))


def _shared_rounds(config: Config) -> int:
    """Return for how long a warm start trains one model together; 0: no warm start."""
    algorithm = algorithm_of(config)
    warm = isinstance(algorithm, Ifca) and algorithm.starts_warm
    return min(3, config.rounds // 4) if warm else -1


def _recipe(config: Config) -> Recipe:
    settings, privacy = config.train, config.privacy
    return Recipe(
        local_epochs=settings.local_epochs,
        local_steps=settings.local_steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        record_clip=privacy.record_clip,
        record_noise=privacy.record_noise,
    )


def _longer(recipe: Recipe) -> Recipe:
    """Return the recipe, with more local steps for clients whose usual round has few."""
    return replace(recipe, least_steps=SPLIT_STEPS)


def num_clusters(config: Config, population: Population) -> int:
    """Return how many models the algorithm keeps."""
    return algorithm_of(config).num_models(population.clients)


def depends_on_population(config: Config) -> bool:
    """Say whether a round may depend on clients that have not taken part yet.

    Shadows copy the whole population. Where it is secret who came, no replay may tell
    when somebody first did.
    """
    secretly = config.privacy.client_noise > 0 and config.train.participation < 1
    return config.redteam.source == "shadow" or secretly


def has_independent_clusters(config: Config, engine: Engine) -> bool:
    """Say whether a cluster's model depends only on its own clients, bit for bit.

    Clients that train in one batch are rounded together: not so with `VmapEngine`. Where
    clients are remote, a round depends on who is there: those of a kept model may not
    be, and then no record would tell that they are in it.
    """
    return (
        algorithm_of(config).isolates_clusters
        and not is_remote(config)
        and isolates_clusters(config)
        and config.privacy == type(config.privacy)()
        and not isinstance(engine, VmapEngine)
    )


def notes(config: Config) -> tuple[str, ...]:
    """Return what a reader must know of the settings: oracles, and what nobody sees."""
    found = []
    algorithm = algorithm_of(config)
    if isinstance(algorithm, Ifca) and algorithm.initialisation == "groups":
        found.append("Clusters started from the true groups: an oracle.")
    if config.model.task == "regression":
        found.append(
            "Accuracy and gaps between groups are unknown: a number is never simply right "
            "or wrong."
        )
    if config.redteam.source == "oracle":
        found.append("Clients saw the true risk of every cluster: an oracle.")
    if config.redteam.source == "client":
        found.append(
            "Each client judged the risk for itself and told nobody: there is no risk to "
            "show before the audit at the end."
        )
    if anonymity_of(config) and config.secrets.source == "seeded":
        found.append(
            "Everything hidden can be recomputed from the seed: no deniability against "
            "whoever holds it."
        )
    return tuple(found)
