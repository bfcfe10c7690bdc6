"""From settings to an algorithm in its run: the steps of its rounds, and its red team."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from torch import Tensor

from covey.algorithms.clients import Clients, Federation, Setup
from covey.algorithms.own_steps import checked_selection, checked_server_step
from covey.algorithms.remote import Remote
from covey.algorithms.round import RoundSteps
from covey.algorithms.run_algorithm import RunAlgorithm
from covey.algorithms.selection import (
    SelectionConfig,
    SelectionInputs,
    choice_epsilon,
    report_noisy_min,
)
from covey.algorithms.simulated import Simulated
from covey.base.errors import ConfigError
from covey.base.names import Handle, Params
from covey.base.rng import Streams
from covey.engine.recipe import TASKS, Recipe
from covey.settings.aggregation import (
    aggregation_of,
    anonymity_of,
    masked_aggregation_of,
    noise_on_clients,
    post_processors_of,
)
from covey.settings.load import Config
from covey.settings.risk import RunParts, risk_measurement
from covey.settings.schema import balances_classes
from covey.settings.trust import trust

OPEN_HEADS = (
    "An attacker with a ridge head, and candidate records, finds who was in it: covey audit RUN "
    "--attack weights shows it."
)

SUMS_ALONE = (
    "The server sees sums over clients alone, and who is in each. What is measured of all "
    "records at once (risks, and residuals) a server of real clients would not see."
)


def algorithm_of(components: RunParts) -> RunAlgorithm:
    """Return the algorithm in its run, with its red team.

    Raises:
        ConfigError: it does not fit the model, or is no algorithm.
    """
    config, streams = components.config, Streams(components.config.seed)
    setup = Setup(
        draw_model=components.init,
        population=components.population.clients,
        rounds=config.rounds,
        chance_loss=_chance_loss(config, components.population.num_classes),
        min_cohort=components.config.privacy_plan.min_cohort,
    )
    algorithm = RunAlgorithm(config.method, setup, is_checked=config.method.is_own)
    start = algorithm.init(streams).clusters
    return replace(algorithm, risk=risk_measurement(components, start))


def clients_of(components: RunParts, setup: Setup) -> Clients:
    """Return how clients get requests in the first round, with no client in its cohort yet."""
    config, population = components.config, components.population
    recipe = components.recipe(0)
    return Clients(
        (),
        federation_of(components, recipe),
        round_steps(components, recipe),
        setup,
        selection_config(config, population.num_classes),
        own_risks=components.send is not None and config.risk.on_clients,
    )


def round_steps(components: RunParts, recipe: Recipe) -> RoundSteps:
    """Return what becomes of updates in a round of this recipe."""
    config, plan = components.config, components.config.privacy_plan
    remote, own = components.send is not None, plan.clients_add_noise
    if plan.masks and not config.method.traits.subtracts:
        begin, own_noise = masked_aggregation_of(config, recipe.learning_rate), None
    else:
        clients = len(components.population.clients)
        begin = aggregation_of(config, clients, recipe.learning_rate, repeats=not remote)
        own_noise = (plan.clip, plan.noise) if own else None
    return RoundSteps(
        begin,
        () if remote and own else post_processors_of(plan, components.exposures),
        checked_server_step(config.aggregation.server_optimizer),
        patience=config.risk.every,
        stores_updates=config.leaving.store_updates > 0,
        dp_accounted=noise_on_clients(config),
        exposures=components.exposures,
        own_noise=own_noise,
    )


def federation_of(
    components: RunParts, recipe: Recipe, stored: Mapping[Handle, Params] | None = None
) -> Federation:
    """Return how clients are reached: here, or by messages.

    Args:
        components: of the run.
        recipe: how they train in a round.
        stored: the updates that they calibrate in it; None: they train.
    """
    config, records, plan = components.config, components.records, components.config.privacy_plan
    if components.send is not None:
        return Remote(
            components.send,
            recipe,
            min_cohort=plan.min_cohort,
            shares=plan.update_shares(recipe.learning_rate),
            fingerprint=records.fingerprint if records else "",
        )
    weights, compares_on = config.aggregation.weights, config.method.compares_on
    here = Simulated(components.engine, recipe, weights, compares_on, components.exposures, records)
    here = replace(here, adds_noise=plan.clients_add_noise)
    return here if stored is None else here.calibrating(stored)


def selection_config(config: Config, classes: int) -> SelectionConfig:
    """Return a selection with what stands around it: noise, and its state."""
    noise, choice = config.privacy_plan.choice_noise, config.method.choice
    select = checked_selection(choice)
    if noise:
        select = report_noisy_min(
            cost=partial(_cost, config), bound=_chance_loss(config, classes), noise=noise
        )
    return SelectionConfig(
        select=select,
        after_choice=choice.after_choice,
        epsilon=choice_epsilon(noise) if noise else None,
    )


def _cost(config: Config, inputs: SelectionInputs) -> Tensor:
    """Return what clients compare, of which noise hides the least."""
    cost = config.method.choice.cost(inputs)
    if cost is None:
        raise ConfigError(
            f"privacy.selection_noise needs a method.selection with a cost, found "
            f"{config.method.choice.name!r}: choose one that has it, or set selection_noise = 0."
        )
    return cost


def _chance_loss(config: Config, outputs: int) -> float:
    """Return the loss of the best constant answer, in nats."""
    return TASKS[config.model.task].chance_loss(outputs)


def depends_on_population(config: Config) -> bool:
    """Say whether a round may depend on clients that have not taken part yet.

    An estimator of risk may copy the whole population, sums of gradients are divided by how
    many records it has, and classes are balanced by how many examples it has of each. Where
    it is secret who came, no replay may show when somebody first did.
    """
    plan = config.privacy_plan
    secretly = plan.server_adds_noise and plan.sampling < 1
    return config.risk.needs_pool or plan.sums_gradients or balances_classes(config) or secretly


def notes(config: Config) -> tuple[str, ...]:
    """Return what a reader must know of the settings: oracles, and what stays unseen."""
    algorithm, masks = config.method, config.privacy_plan.masks
    sentences = [algorithm.note, SUMS_ALONE if masks else algorithm.traits.seen]
    if algorithm.traits.subtracts:
        sentences.append(OPEN_HEADS)
    if masks:
        left = (f"{row.whom}: {row.for_what}" for row in islice(trust(config), 2))
        sentences.append(f"Under masks a client still has to trust {'; '.join(left)}.")
    if config.model.task == "regression":
        sentences.append(
            "Accuracy and gaps between groups are unknown: a number is never simply right or wrong."
        )
    elif config.model.task == "tokens":
        sentences.append(
            "Loss and accuracy are means over each example's own unmasked tokens, then over "
            "examples. Gaps between groups are unknown: classes are those of tokens."
        )
    if config.model.personal:
        sentences.append(
            "Accuracy is with the entries that each client keeps to itself (model.personal); "
            "risk is of the shared ones, with the entries that were drawn."
        )
    if balances_classes(config):
        sentences.append(
            "Losses are weighted by how many examples of each class all clients have, which they "
            "announce: neither noise nor masks hide that."
        )
    if config.data.standardise == "client":
        sentences.append(
            "Every client's columns are scaled by the mean and the deviation of its own training "
            "rows. A record moves these, which no guarantee for a record, and no bound on its "
            "exposure, counts."
        )
    sentences.append(config.risk.note)
    if anonymity_of(config) and config.secrets.source == "seeded":
        sentences.append(
            "Everything hidden can be recomputed from the seed: no deniability against "
            "anybody who holds it."
        )
    return tuple(filter(None, sentences))
