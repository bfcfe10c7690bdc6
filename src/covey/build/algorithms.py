"""From settings to a strategy: the method composed of its steps, and its red team."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from torch import Tensor

from covey.aggregation import finite_updates
from covey.algorithms import (
    MENU,
    Layers,
    RemoteClients,
    SelectionConfig,
    Send,
    Steps,
    Strategy,
    Train,
    WarmStart,
    calibrated_by,
    different_models,
    evaluate_with,
    fedavg,
    fixed_share,
    freeze_clusters,
    group_initialized,
    head_first,
    ifca,
    ifca_mir,
    isolated,
    local_training,
    loss_counter,
    loss_smoother,
    menu_shares,
    no_noise_events,
    no_prices,
    noise_events_of,
    on_the_menu,
    one_model,
    pooled,
    price_update,
    red_teamed,
    self_assessed,
    share_by_risk,
    train_with,
    uniform,
    warm_started,
)
from covey.build.aggregators import aggregator_of
from covey.build.owned import user_selection
from covey.build.plugins import imported
from covey.clustering import (
    Selection,
    advantage,
    choice_epsilon,
    rebalanced,
    report_noisy_min,
    select_by_loss,
    select_by_threshold,
    select_priced,
    select_weighted,
    weighted_cost,
)
from covey.config import Config
from covey.data import Client, Examples, Population, Preference
from covey.engine import TASKS, Engine, Recipe, VmapEngine
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
    "compose",
    "depends_on_population",
    "has_independent_clusters",
    "notes",
    "num_clusters",
    "red_team",
    "releases",
    "retrain_recipe",
    "selection_config",
]

CALIBRATION_RATIO = 0.5
"""Share of the local training that FedEraser's calibration takes, at least one epoch."""
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


def compose(components: Components, replay: ReplayOptions = NO_REPLAY) -> Strategy:
    """Compose the method out of its steps, and wrap it in its red team."""
    config, population, init = components.config, components.population, components.init
    method, usual = config.method, _recipe(config)
    recipe = usual if replay.stored_updates is None else _shorter(usual)
    longer = _longer(usual)
    train = _training(components)
    steps = Steps(
        evaluate=evaluate_with(
            components.engine, method.select_on, method.select_examples
        ),
        train=_calibrating(train(recipe), replay),
        aggregate=aggregator_of(config, len(population.clients)),
        clipping=partial(aggregator_of, config, len(population.clients))
        if config.privacy.adaptive_clip
        else None,
        patience=config.redteam.every,
        recorded=replay.recorded,
        noise_events=no_noise_events if components.send else noise_events_of(recipe),
        remote=RemoteClients(components.send, recipe) if components.send else None,
        dp_accounted=_is_dp_accounted(config),
    )
    if replay.frozen_models:
        steps = freeze_clusters(steps, replay.frozen_models)
    if method.name == "fedavg":
        strategy = fedavg(init, steps)
    elif method.name == "isolated":
        strategy = isolated(init, steps, method.num_clusters, population.clients)
    elif method.name == "local":
        strategy = local_training(init, steps, population.clients)
    else:
        warm = WarmStart(
            shared_rounds=_shared_rounds(config),
            kept_rounds=_kept_rounds(config),
            train=train(longer),
            noise_events=no_noise_events
            if components.send
            else noise_events_of(longer),
        )
        selection = selection_config(config, population.num_classes)
        strategy = _personalised(config, init, steps, warm, selection)
    start = strategy.init(Streams(config.seed)).clusters
    strategy = _pooled(config, strategy, population, layers_of(start[0]))
    if config.redteam.source == "client" and components.send is None:
        return self_assessed(
            strategy, self_judge(components.engine), config.redteam.every
        )
    attack = red_team(components, start)
    if attack is None:
        return strategy
    by_handle = {client.handle: client for client in population.clients}
    return red_teamed(strategy, attack, config.redteam.every, by_handle)


def _training(components: Components) -> Callable[[Recipe], Train]:
    """Return how a recipe is carried out: by an engine here, or by the clients there."""
    if components.send is None:
        return partial(
            train_with, components.engine, weights=components.config.merge.weights
        )
    send = components.send
    return lambda recipe: RemoteClients(send, recipe).train


def _calibrating(train: Train, replay: ReplayOptions) -> Train:
    return (
        train
        if replay.stored_updates is None
        else calibrated_by(train, replay.stored_updates)
    )


def _shorter(recipe: Recipe) -> Recipe:
    """Return FedEraser's recipe, for clients that only calibrate."""
    return replace(
        recipe,
        local_epochs=max(1, round(recipe.local_epochs * CALIBRATION_RATIO)),
        local_steps=math.ceil(recipe.local_steps * CALIBRATION_RATIO),
    )


def _personalised(
    config: Config,
    init: Callable[[Streams], Params],
    steps: Steps,
    warm: WarmStart,
    selection: SelectionConfig,
) -> Strategy:
    method = config.method
    starts = different_models if method.initialisation == "random" else one_model
    start = starts(init, method.num_clusters)
    if _has_menu(config):
        start = on_the_menu(start)
    unseen = steps.remote is not None and config.redteam.source == "client"
    if method.name == "ifca" or unseen:  # nobody else knows which risks a client knows
        strategy = ifca(start, steps, selection)
    else:
        strategy = ifca_mir(start, steps, selection)
    if method.initialisation == "groups":
        return group_initialized(strategy, steps, _kept_rounds(config))
    if _starts_warm(config):
        return warm_started(strategy, steps, warm)
    return strategy


def _pooled(
    config: Config,
    strategy: Strategy,
    population: Population,
    layers: Layers,
) -> Strategy:
    """Pool the models of a method that has several to share."""
    method = config.method
    clients = {client.handle: client for client in population.clients}
    if _has_menu(config):
        control = menu_shares(method.num_clusters)
    elif method.pooling == 0 or method.name in ("fedavg", "isolated", "local"):
        return strategy
    elif method.pooling == "risk":
        control = share_by_risk(clients, _chance_loss(config, population.num_classes))
    else:
        control = fixed_share(method.pooling, method.num_clusters)
    return pooled(
        strategy,
        control=control,
        order=head_first if method.pooling_order == "head-first" else uniform,
        layers=layers,
        clients=clients,
    )


def _is_dp_accounted(config: Config) -> bool:
    """Say whether the aggregation adds noise whose guarantee counts on every client."""
    return config.privacy.client_noise > 0 or config.merge.noise == "sound"


def _has_menu(config: Config) -> bool:
    return config.method.name == "ifca-mir" and config.method.selection == "menu"


def _kept_rounds(config: Config) -> int:
    """Return for how long clients keep their first cluster: at most before round 4."""
    return max(1, min(4, config.rounds // 4))


def selection_config(config: Config, classes: int) -> SelectionConfig:
    """Return a selection with what stands around it: looks, prices, and who stays."""
    method, noise = config.method, config.privacy.selection_noise
    priced = method.name == "ifca-mir" and method.selection == "priced"
    return SelectionConfig(
        select=_noisy_selection(config, classes) if noise else _selection(config),
        smooth_losses=loss_smoother(method.smoothing),
        update_prices=price_update(method.target_share) if priced else no_prices,
        hysteresis=method.hysteresis,
        epsilon=choice_epsilon(noise) if noise else None,
    )


def _noisy_selection(config: Config, classes: int) -> Selection:
    """Return report-noisy-min of what the method compares, up to the loss of guessing."""
    weighted = (
        config.method.name == "ifca-mir" and config.method.selection == "weighted"
    )
    return report_noisy_min(
        cost=partial(weighted_cost, scale=_risk_scale(config))
        if weighted
        else lambda inputs: inputs.losses,
        bound=_chance_loss(config, classes),
        noise=config.privacy.selection_noise,
    )


def _chance_loss(config: Config, outputs: int) -> float:
    """Return the loss of whoever knows nothing, in nats."""
    return TASKS[config.model.task].chance_loss(outputs)


def _risk_scale(config: Config) -> Callable[[Tensor], Tensor]:
    return advantage if config.method.risk_scale == "advantage" else lambda risks: risks


def _selection(config: Config) -> Selection:
    method = config.method
    if method.name == "ifca":
        return select_by_loss
    known: dict[str, Selection] = {
        "loss": select_by_loss,
        "weighted": partial(select_weighted, scale=_risk_scale(config)),
        "threshold": select_by_threshold,
        "menu": select_by_threshold,
        "priced": partial(select_priced, target_share=method.target_share),
        "rebalanced": rebalanced(select_by_threshold, method.target_share),
    }
    if method.selection in known:
        return known[method.selection]
    found = cast("Selection", imported("method.selection", method.selection))
    return user_selection(method.selection, found)


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
        shared_rounds=_shared_rounds(config) if _starts_warm(config) else 0,
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
    split_round = _shared_rounds(config) if _starts_warm(config) else -1

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
            train((params,), cohort, only, streams), as_zero=_is_dp_accounted(config)
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
    """Return for how long a warm start trains one model together."""
    return min(3, config.rounds // 4)


def _starts_warm(config: Config) -> bool:
    method = config.method
    return (
        method.name in ("ifca", "ifca-mir")
        and method.initialisation == "warm"
        and method.num_clusters > 1
    )


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
    """Return how many models the method keeps."""
    if config.method.name == "fedavg":
        return 1
    if config.method.name == "local":
        return len(population.clients)
    return config.method.num_clusters * releases(config)


def releases(config: Config) -> int:
    """Return in how many releases each cluster's model comes."""
    return len(MENU) if _has_menu(config) else 1


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
        config.method.name == "isolated"
        and config.engine.name != "flower"
        and config.merge.name == "mean"
        and config.privacy == type(config.privacy)()
        and not isinstance(engine, VmapEngine)
    )


def notes(config: Config) -> tuple[str, ...]:
    """Return what a reader must know of the settings: oracles, and what nobody sees."""
    found = []
    if config.method.initialisation == "groups" and "ifca" in config.method.name:
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
    if config.merge.name == "anonymity-sets" and config.secrets.source == "seeded":
        found.append(
            "Everything hidden can be recomputed from the seed: no deniability against "
            "whoever holds it."
        )
    return tuple(found)
