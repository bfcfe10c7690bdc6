"""From settings to a recipe: how clients train."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

from covey.algorithms import Algorithm
from covey.components.capability import Capability, Claim
from covey.components.component import Component
from covey.components.registry import find
from covey.components.slots import component_of
from covey.config import Config
from covey.config.data_constraints import refuse_conflicts
from covey.config.plain_claims import plain_claims
from covey.engine import (
    EngineFactory,
    Loss,
    Objective,
    Optimizer,
    OwnLoss,
    OwnObjective,
    OwnSchedule,
    Recipe,
    Schedule,
    TorchOptimizer,
)
from covey.errors import ConfigError

__all__ = ["recipe_of"]

C = TypeVar("C", bound=Component)


def recipe_of(config: Config) -> Recipe:
    """Return how clients train; `Recipe.at` is how they do in one round.

    Raises:
        ConfigError: a part of it cannot be made, or does not go with the other settings.
    """
    recipe = _recipe(config)
    refuse_conflicts([*_claims(config, recipe), *_surroundings(config)])
    return recipe


def _recipe(config: Config) -> Recipe:
    train, privacy = config.train, config.privacy
    loss = component_of(train, "loss", Loss)
    schedule = component_of(train, "schedule", Schedule)
    objective = _objective(config)
    return Recipe(
        local_epochs=train.local_epochs,
        local_steps=train.local_steps,
        batch_size=train.batch_size,
        learning_rate=train.learning_rate,
        drop_last=train.drop_last,
        record_clip=privacy.record_clip,
        record_noise=privacy.record_noise,
        optimizer=_optimizer(config),
        schedule=_own(schedule, Schedule, OwnSchedule),
        loss=_own(loss, Loss, OwnLoss),
        objective=objective,
        personal=_algorithm(config).personal(),
        max_gradient_norm=train.max_gradient_norm,
        keep_losses=train.keep_losses,
    )


def _algorithm(config: Config) -> Algorithm:
    return component_of(config.method, "name", Algorithm)


def _objective(config: Config) -> Objective:
    """Return the algorithm's objective, where it has one, or that of the settings."""
    named = component_of(config.train, "objective", Objective)
    of_algorithm = _algorithm(config).objective()
    if of_algorithm is None:
        return _own(named, Objective, OwnObjective)
    if type(named) is not Objective:
        raise ConfigError(
            f"method.name = {config.method.name!r} has an objective of its own, found "
            f"train.objective = {config.train.objective!r} beside it. Leave one of the two "
            f"at its default."
        )
    return of_algorithm


def _optimizer(config: Config) -> Optimizer:
    train = config.train
    maker = find("optimizer", train.optimizer, "train.optimizer")
    if inspect.isclass(maker) and issubclass(maker, Component):
        return component_of(train, "optimizer", Optimizer)
    options = train.optimizer_options
    return TorchOptimizer(maker=partial(maker, **options) if options else maker).tried()


def _own(found: object, base: type[C], wrapper: Callable[..., C]) -> C:
    """Return a component; a user's function becomes one."""
    return found if isinstance(found, base) else wrapper(function=found)


def _claims(config: Config, recipe: Recipe) -> Iterator[Claim]:
    def called(field: str) -> str:
        if field == "personal":
            return f"method.name = {config.method.name!r}"
        section = config.privacy if field == "record_clip" else config.train
        name = "privacy" if section is config.privacy else "train"
        return f"{name}.{field} = {getattr(section, field)!r}"

    return recipe.claims(called)


def _surroundings(config: Config) -> Iterator[Claim]:
    """Yield what the engine and the task leave no room for."""
    engine: EngineFactory = component_of(config.engine, "name", EngineFactory)
    claim = engine.claim(f"engine.name = {config.engine.name!r}")
    yield replace(claim, remedy="Choose another engine.")
    yield from plain_claims(config)
    labels = {
        "multiclass": Capability.EXCLUSIVE_CLASSES,
        "regression": Capability.NUMBER_LABELS,
    }
    task = config.model.task
    others = frozenset(each for name, each in labels.items() if name != task)
    yield Claim(f"model.task = {task!r}", rules_out=others)
