"""From settings to who measures the risk of the cluster models, and with what."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, starmap

from covey.aggregation.base import finite_updates
from covey.algorithms.algorithm import Subtractable
from covey.algorithms.client_requests import Send
from covey.algorithms.federation import longer
from covey.algorithms.redteam import RedTeamed, RiskMeasurement, SelfAssessed
from covey.algorithms.remote import loss_counter, masked_counts
from covey.algorithms.simulated import Simulated
from covey.base.errors import ConfigError
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Handle, Params
from covey.base.rng import Streams
from covey.build.aggregators import noise_on_clients, transformed_aggregator_of
from covey.build.training import user_function
from covey.config.sections import recipe_of
from covey.config.settings import Config
from covey.data.examples import Client, Examples, Preference
from covey.data.population import Population
from covey.engine.fixed_features import LocalRecords
from covey.engine.protocol import Engine
from covey.membership.estimators import Count, CountAll, RiskContext, masked_loss_counter
from covey.membership.references import PlayRound, RetrainRecipe
from covey.membership.truth import Assessment, Reference, SelfAssessment, Target, divergence

Assess = Callable[[Target, RiskContext, Streams], Assessment]
Judged = dict[Handle, list[RiskEstimate | None]]
Judge = Callable[[tuple[Params, ...], Sequence[Client], RiskContext, Streams], Judged]


def user_assessment(name: str, assess: Assess) -> Assess:
    """Return the assessment of a user's own, which finds a number with an error, or none.

    Its errors, and what else it returns, become ConfigErrors that name it.
    """
    measure = user_function(f"risk estimator {name}", assess)

    def assessed(target: Target, context: RiskContext, streams: Streams) -> Assessment:
        found = measure(target, context, streams)
        return found._replace(estimate=_checked(name, found.estimate))

    return assessed


def user_self_assessment(name: str, judge: Judge) -> Judge:
    """Return the same where clients measure for themselves."""
    measure = user_function(f"risk estimator {name}", judge)

    def checked(
        models: tuple[Params, ...], cohort: Sequence[Client], context: RiskContext, streams: Streams
    ) -> Judged:
        found: Mapping[Handle, list[RiskEstimate | None]] = measure(
            models, cohort, context, streams
        )
        return {handle: [fit(each) for each in row] for handle, row in found.items()}

    def fit(each: RiskEstimate | None) -> RiskEstimate | None:
        fits = None if each is None else _checked(name, each)
        return fits if fits and fits.is_known else None

    return checked


def _checked(name: str, found: object) -> RiskEstimate:
    """Return what was found, in plain numbers; refuse what nobody can act on."""
    if not isinstance(found, RiskEstimate):
        raise ConfigError(
            f"Your risk estimator {name} must return a covey.RiskEstimate of a covey.Figure, or "
            f"covey.RiskEstimate.unknown with a reason, found a {type(found).__name__}. Correct it."
        )
    if not found.is_known:
        return RiskEstimate.unknown(found.figure.reason)
    risk, error = found.risk, found.standard_error
    if not (0 <= risk <= 1 and 0 <= error < math.inf):
        raise ConfigError(
            f"Your risk estimator {name} must return a risk from 0 to 1 with a standard "
            f"error of 0 or more, found {risk:g} with {error:g}. Return "
            f"covey.RiskEstimate.unknown where there is no estimate."
        )
    auc = None if found.auc is None else float(found.auc)
    return replace(found, figure=Figure(float(risk), float(error)), auc=auc)


@dataclass(frozen=True, slots=True, eq=False)
class Components:
    """What a method is composed of, beside its own steps.

    Attributes:
        init: draws a fresh model.
        send: how clients are asked that are remote; None: a simulation.
        records: clients' records as fixed features, where the model has them; where they
            are remote, what is known of these features.
    """

    config: Config
    population: Population
    engine: Engine
    init: Callable[[Streams], Params]
    send: Send | None = None
    records: LocalRecords | None = None


def risk_measurement(components: Components, start: tuple[Params, ...]) -> RiskMeasurement | None:
    """Return who measures the risk that clients know; None: nobody does here.

    Remote clients measure by themselves where it is theirs to measure. `start` are the
    models that the run begins with.
    """
    config = components.config
    if not config.risk.on_clients:
        return red_team_of(components, start)
    if components.send is not None:
        return None
    assess = client_assessment_of(config, _context(components, start))
    return SelfAssessed(assess, config.risk.every)


def red_team_of(components: Components, start: tuple[Params, ...]) -> RedTeamed | None:
    """Return the server's red team; None where it has none.

    `start` are the models that the run begins with.
    """
    config, estimator = components.config, components.config.risk
    if estimator.on_clients or not estimator.measures:
        return None
    context, engine = _context(components, start), components.engine
    assess = estimator.assess
    if estimator.is_own:
        assess = user_assessment(estimator.name, estimator.assess)
    return RedTeamed(
        attack=lambda target, streams: assess(target, context, streams),
        every=estimator.every,
        members={client.handle: client for client in components.population.clients},
        count=_count_all(components),
        source=estimator.name,
        divergence=lambda target: divergence(engine, target, start, config.rounds),
    )


def client_assessment_of(config: Config, context: RiskContext) -> SelfAssessment:
    """Return how clients measure for themselves."""
    estimator = config.risk
    judge = estimator.judge
    if estimator.is_own:
        judge = user_self_assessment(estimator.name, estimator.judge)
    return lambda models, cohort, streams: judge(models, cohort, context, streams)


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
        population_profile=tuple((c.group or 0, len(c.train)) for c in population.clients),
        shared_rounds=config.method.opening(config.rounds).split_round or 0,
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
    counts = components.config.risk.counts
    if components.send is None or hidden or not counts:
        return None
    return loss_counter(components.send)


def retrain_recipe(components: Components) -> RetrainRecipe:
    """Return how an auditor plays this run's recipe again."""
    config = components.config
    return RetrainRecipe(components.init, _round_of(components), recipe_of(config), config.rounds)


def _round_of(components: Components) -> PlayRound:
    """Return a round of this run's own steps, for data that the server holds."""
    config, population, engine = (components.config, components.population, components.engine)
    records, algorithm = components.records, config.method
    own = isinstance(algorithm, Subtractable) and records and algorithm.reference_round(records)
    if own:
        return own
    usual = replace(recipe_of(config), personal=None)  # shared models alone
    private = config.privacy.client_noise > 0
    aggregate = transformed_aggregator_of(config, len(population.clients))
    split_round = algorithm.opening(config.rounds).split_round
    accounted = noise_on_clients(config)

    def play_round(
        index: int, params: Params, sets: tuple[Examples, ...], streams: Streams
    ) -> Params:
        recipe = longer(usual) if index == split_round else usual
        recipe = recipe.at(index, config.rounds)
        federation = Simulated(engine, recipe, config.aggregation.weights)
        # a cohort of a fixed size has clients that are none of these, too
        draws = max(len(sets), len(population.clients))
        coins = streams.at("cohort").generator().random(draws).tolist()
        drawn = config.train.takes_part(coins)[: len(sets)]
        cohort = tuple(starmap(_pseudo_client, compress(enumerate(sets), drawn)))
        only = {client.handle: 0 for client in cohort}
        trained = federation.train((params,), cohort, only, streams)
        updates = finite_updates(trained, as_zero=accounted)
        alike = transformed_aggregator_of(config, len(sets)) if private else aggregate
        return alike((params,), updates, streams.at("merge")).clusters[0]

    return play_round


def _pseudo_client(index: int, examples: Examples) -> Client:
    name, nothing = f"shadow-{index}", examples.first(0)
    return Client(name, name, None, examples, nothing, Preference(0.0, 1.0))
