"""From settings to who measures the risk of the cluster models, and with what."""

from collections.abc import Sequence
from dataclasses import replace

from covey.aggregation import finite_updates
from covey.algorithms import (
    Strategy,
    loss_counter,
    masked_counts,
    red_teamed,
    self_assessed,
    train_with,
)
from covey.build.aggregators import aggregator_of, noise_on_clients
from covey.build.local_training import recipe_of
from covey.build.parts import (
    Components,
    longer,
)
from covey.build.settled import algorithm_of, estimator_of
from covey.build.user_estimator import user_assessment, user_self_assessment
from covey.components.capability import Capability
from covey.components.registry import is_built_in
from covey.config import Config, claims_of, refuse_conflicts
from covey.data import Client, Examples, Preference
from covey.membership import (
    Assessment,
    Count,
    CountAll,
    PlayRound,
    RedTeam,
    Reference,
    RetrainRecipe,
    RiskContext,
    RiskEstimate,
    SelfAssessment,
    Target,
    masked_loss_counter,
    unless_diverged,
)
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "client_assessment_of",
    "red_team_of",
    "retrain_recipe",
    "with_measured_risk",
]


def with_measured_risk(strategy: Strategy, components: Components) -> Strategy:
    """Return the same strategy, whose clients know the risk that the settings ask for.

    Remote clients measure by themselves where it is theirs to measure.
    """
    config, population = components.config, components.population
    _check_estimator(config)
    every, on_clients = config.redteam.every, estimator_of(config).on_clients
    if on_clients and components.send is not None:
        return strategy
    start = strategy.init(Streams(config.seed)).clusters
    if on_clients:
        judge = client_assessment_of(config, _context(components, start))
        return self_assessed(strategy, judge, every)
    attack = red_team_of(components, start)
    if attack is None:
        return strategy
    by_handle = {client.handle: client for client in population.clients}
    return red_teamed(strategy, attack, every, by_handle, _count_all(components))


def _check_estimator(config: Config) -> None:
    """Refuse a user's own estimator that needs what other settings rule out."""
    name = config.redteam.source
    if not is_built_in("risk_estimator", name):
        refuse_conflicts([*claims_of(config, ("data.name",))])


def red_team_of(components: Components, start: tuple[Params, ...]) -> RedTeam | None:
    """Return the server's red team; None where it has none.

    It gives no estimate of a model that diverged. `start` are the models that the run
    begins with.
    """
    config, estimator = components.config, estimator_of(components.config)
    if estimator.on_clients or Capability.MEASURED_RISK in estimator.rules_out:
        return None
    context, source = _context(components, start), config.redteam.source

    known = is_built_in("risk_estimator", source)
    assess = estimator.assess if known else user_assessment(source, estimator.assess)

    def attack(target: Target, streams: Streams) -> Assessment:
        return assess(target, context, streams)

    return unless_diverged(components.engine, attack, source, start, config.rounds)


def client_assessment_of(config: Config, context: RiskContext) -> SelfAssessment:
    """Return how clients measure for themselves."""
    estimator, source = estimator_of(config), config.redteam.source
    known = is_built_in("risk_estimator", source)
    own = estimator.judge if known else user_self_assessment(source, estimator.judge)

    def judge(
        models: tuple[Params, ...], cohort: Sequence[Client], streams: Streams
    ) -> dict[Handle, list[RiskEstimate | None]]:
        return own(models, cohort, context, streams)

    return judge


def _context(components: Components, start: tuple[Params, ...]) -> RiskContext:
    config, population = components.config, components.population
    return RiskContext(
        engine=components.engine,
        count=_count(components),
        reference=Reference(population.non_members),
        pool=population.pool,
        shifts=tuple(group.shift for group in population.groups),
        start=start,
        play_round=_round_of(components),
        streams=Streams(config.seed),
        population_profile=tuple(
            (c.group or 0, len(c.train)) for c in population.clients
        ),
        shared_rounds=algorithm_of(config).split_round(config.rounds) or 0,
    )


def _count(components: Components) -> Count | None:
    """Return how clients count their losses, where it is not in the open, and here."""
    privacy = components.config.privacy
    if components.send is not None and privacy.secure_sums:
        return masked_counts(components.send, privacy.min_cohort)
    if components.send is not None:
        count_all = loss_counter(components.send)
        return lambda target, streams: count_all([target], lambda _: streams)[0]
    if not privacy.secure_sums:
        return None
    return masked_loss_counter(components.engine, privacy.min_cohort)


def _count_all(components: Components) -> CountAll | None:
    """Return how remote clients of all clusters count at once, where they are to."""
    hidden = components.config.privacy.secure_sums
    counts = estimator_of(components.config).counts
    if components.send is None or hidden or not counts:
        return None
    return loss_counter(components.send)


def retrain_recipe(components: Components) -> RetrainRecipe:
    """Return how an auditor plays this run's recipe again."""
    config = components.config
    return RetrainRecipe(
        components.init, _round_of(components), recipe_of(config), config.rounds
    )


def _round_of(components: Components) -> PlayRound:
    """Return a round of this run's own steps, for data that the server holds."""
    config, population, engine = (
        components.config,
        components.population,
        components.engine,
    )
    records, algorithm = components.records, algorithm_of(config)
    own = None if records is None else algorithm.reference_round(records)
    if own is not None:
        return own
    usual = replace(recipe_of(config), personal=None)  # shared models alone
    private = config.privacy.client_noise > 0
    aggregate = aggregator_of(config, len(population.clients))
    split_round = algorithm.split_round(config.rounds)
    accounted = noise_on_clients(config)

    def play_round(
        index: int, params: Params, sets: tuple[Examples, ...], streams: Streams
    ) -> Params:
        recipe = longer(usual) if index == split_round else usual
        recipe = recipe.at(index, config.rounds)
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


def _pseudo_client(index: int, examples: Examples) -> Client:
    name, nothing = f"shadow-{index}", examples.first(0)
    return Client(name, name, None, examples, nothing, Preference(0.0, 1.0))
