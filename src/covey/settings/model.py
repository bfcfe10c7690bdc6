"""From settings, or from a program, to a model, and to what trains it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import nn

from covey.algorithms.algorithm import Clustered
from covey.base.errors import ConfigError, CoveyError, ModelError, blamed
from covey.base.names import Params
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.data.examples import Client, Examples, hashes, to_floats
from covey.data.population import Population
from covey.engine.example_gradients import check_private
from covey.engine.fixed_features import FixedFeatureEngine, LocalRecords
from covey.engine.protocol import CompletingEngine, Engine, ScoringJob, TrainingJob, used_examples
from covey.engine.recipe import TASKS, Recipe
from covey.models.build import (
    build_model,
    check_model,
    factory_of,
    initial_params,
    personal_params,
    refuse_batch_norm,
)
from covey.models.linear_head import FrozenFeatures, HeadAlone, LinearHeadNetwork
from covey.ridge.sums import FEATURE_STEPS
from covey.settings.aggregation import noise_on_clients
from covey.settings.clients import Overrides
from covey.settings.load import Config
from covey.settings.schema import recipe_for, recipe_of


def model_of(
    config: Config, overrides: Overrides, population: Population
) -> tuple[nn.Module, Callable[[Streams], Params]]:
    """Return the architecture, and how to draw a fresh initial model."""
    like, classes = population.clients[0].train, population.num_classes  # as all others
    shape, labels = tuple(like.inputs.shape[1:]), tuple(like.labels.shape[1:])
    if isinstance(overrides.model, nn.Module):
        _refuse_other_starts(config)
    factory = None if overrides.model is None else factory_of(overrides.model)

    def build(streams: Streams) -> nn.Module:
        if factory is None:
            return build_model(config.model, shape, classes, streams)
        with streams.lent_to_torch():
            return factory()

    module = build(Streams(config.seed).at("architecture"))
    if isinstance(module, LinearHeadNetwork):
        module.features.map.store = overrides.features
        _check_public(module.features, population)
        if population.layout is not None:
            raise ModelError(
                f"A linear head over fixed features needs one tensor of inputs, found "
                f"{population.layout}: join them in one, which the features part."
            )
    if population.layout is not None:
        module.register_forward_pre_hook(population.layout, with_kwargs=True)
    tokens = labels[0] if config.model.task == "tokens" else None
    check_model(module, shape, classes, to_floats(like.inputs).dtype, tokens)
    if config.privacy_plan.record_clip > 0:
        check_private(module)
    if noise_on_clients(config):
        refuse_batch_norm(module, "Hiding a client in noise")
    return module, lambda streams: initial_params(build(streams), config.model.personal)


def _check_public(features: FrozenFeatures, population: Population) -> None:
    """Refuse public examples that are a client's: what is whitened by them shows them."""
    if not features.public:
        return
    for client in population.clients:
        if not features.public.isdisjoint(hashes(client.train.inputs)):
            raise ConfigError(
                f"model.whiten_from must name examples that no client trains on, found one of "
                f"{client.name}: name others."
            )


def _refuse_other_starts(config: Config) -> None:
    """Refuse clusters that are to start from different draws where nothing is drawn."""
    algorithm = config.method
    if (
        isinstance(algorithm, Clustered)
        and algorithm.traits.trains
        and algorithm.initialisation == "random"
        and algorithm.num_clusters > 1
    ):
        raise ConfigError(
            "method.initialisation = 'random' needs a function that makes a fresh module per "
            "cluster, found a module: pass such a one, or set it to 'warm'."
        )


def notes_of_model(overrides: Overrides) -> tuple[str, ...]:
    """Return what a reader must know of where the models start."""
    if not isinstance(overrides.model, nn.Module):
        return ()
    start = model_hash([overrides.model.state_dict()])
    return (
        f"The model was passed as a module: every cluster, and every model that an audit "
        f"trains for comparison, starts from its weights ({start[:12]}), whatever they "
        f"were made of.",
    )


def engine_of(
    config: Config, module: nn.Module, population: Population
) -> tuple[Engine, LocalRecords | None]:
    """Return what trains and scores models, and clients' records where features are fixed."""
    task, recipe, records = TASKS[config.model.task], recipe_of(config), None
    trained = module
    if isinstance(module, LinearHeadNetwork):
        records = LocalRecords(module, task, population.num_classes)
        if not recipe.augment.changes:
            trained = HeadAlone(module, FEATURE_STEPS)
    engine = config.engine.build(trained, task, per_client=bool(recipe.per_client))
    if records is not None:  # heads are trained, scored and solved on what is computed once
        engine = FixedFeatureEngine(engine, records)
    drawn = personal_params(module, config.model.personal)
    return CompletingEngine(engine, drawn) if drawn else engine, records


def check_trains(config: Config, engine: Engine, start: Params, population: Population) -> None:
    """Train and ask a model once on clients' real batches, and forget what came of it.

    The batches are a usual one, the smallest that any client has, and those that hold the
    largest and the smallest whole number: an embedding may be too short for them.

    Raises:
        ModelError: naming the client on whose batch the model failed, and how.
    """
    streams = Streams(config.seed).at("trial")
    # where examples are drawn, each is for certain
    usual = replace(recipe_for(config, population), local_steps=1, record_noise=0.0)
    remedy = f"correct the model, or choose another engine.name than {config.engine.name!r}."
    for client, batch in _batches(
        config, [client for client in population.clients if len(client.train)]
    ):
        job = TrainingJob(start, batch, streams, replace(usual, batch_size=len(batch)))
        try:
            with blamed(ModelError, "a step of training the model", remedy):
                list(engine.train([job]))
                engine.score([ScoringJob(start, batch)])
        except CoveyError as error:
            raise ModelError(f"On {len(batch)} examples of {client.name}: {error}") from error


def _batches(config: Config, clients: Sequence[Client]) -> Iterator[tuple[Client, Examples]]:
    if not clients:
        return
    size = config.train.batch_size
    usual = clients[0].train.first(size)
    yield clients[0], usual
    recipe = recipe_of(config)
    least = min(clients, key=lambda client: _last(client, recipe))
    if config.privacy_plan.record_clip == 0 and _last(least, recipe) < len(usual):
        yield least, least.train.first(_last(least, recipe))
    if clients[0].train.inputs.dtype != torch.float32:  # ids, or several inputs
        yield from _extremes(clients)


def _last(client: Client, recipe: Recipe) -> int:
    """Return how many examples an epoch's last batch has."""
    return used_examples(len(client.train), recipe) % recipe.batch_size or recipe.batch_size


def _extremes(clients: Sequence[Client]) -> Iterator[tuple[Client, Examples]]:
    for sign in (1, -1):
        most = [(sign * member.train.inputs.flatten(1).long()).amax(dim=1) for member in clients]
        client, largest = max(zip(clients, most, strict=True), key=lambda pair: int(pair[1].max()))
        at = largest.argmax()
        yield client, client.train.take(torch.stack([at, at]))
