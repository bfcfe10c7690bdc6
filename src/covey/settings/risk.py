"""From settings to who measures the risk of the cluster models, and with what."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import compress, starmap

from torch import nn

from covey.aggregation.base import finite_updates
from covey.algorithms.algorithm import Subtractable
from covey.algorithms.client_requests import Send
from covey.algorithms.federation import longer
from covey.algorithms.own_steps import checked_assess, checked_judge
from covey.algorithms.redteam import RedTeamed, RiskMeasurement, SelfAssessed
from covey.algorithms.remote import loss_counter, masked_counts
from covey.algorithms.simulated import Simulated
from covey.base.names import Params
from covey.base.rng import Streams
from covey.data.examples import Client, Examples, Preference
from covey.data.population import Population
from covey.engine.fixed_features import LocalRecords
from covey.engine.protocol import Engine
from covey.engine.recipe import Recipe
from covey.membership.estimators import COUNTS_NORM, Count, RiskContext, masked_loss_counter
from covey.membership.references import PlayRound, RetrainRecipe
from covey.membership.truth import Reference, SelfAssessment, divergence
from covey.models.build import held_hash
from covey.settings.aggregation import noise_on_clients, shares_of, transformed_aggregator_of
from covey.settings.clients import ClientBackend
from covey.settings.load import Config
from covey.settings.schema import recipe_of


@dataclass(frozen=True, eq=False, kw_only=True)
class Components:
    """What a run is composed of, beside the steps of its method.

    Attributes:
        init: draws a fresh model.
        module: the architecture, and what is frozen in it; its other weights are unused.
        client_backend: where the clients are remote, the way to them.
        records: clients' records as fixed features, where the model has them; where they
            are remote, what is known of these features.
    """

    config: Config
    population: Population
    engine: Engine
    init: Callable[[Streams], Params]
    module: nn.Module | None = None
    client_backend: ClientBackend | None = None
    records: LocalRecords | None = None

    @property
    def send(self) -> Send | None:
        """How remote clients get requests, whose frozen parameters are the server's; None: not."""
        if self.client_backend is None:
            return None
        ask, personal = self.client_backend.ask, self.config.model.personal
        frozen = held_hash(self.module, personal) if self.module else ""
        return lambda request, cohort: ask(replace(request, frozen=frozen), cohort)


def risk_measurement(components: Components, start: tuple[Params, ...]) -> RiskMeasurement | None:
    """Return what measures the risk that clients receive; None: it is not measured here.

    Remote clients measure by themselves where it is theirs to measure. `start` are the
    models that the run begins with.
    """
    config, estimator, engine = components.config, components.config.risk, components.engine
    remote, hidden = components.send, components.config.privacy.secure_sums
    if not estimator.measures or (estimator.on_clients and remote is not None):
        return None
    context = _context(components, start)
    if estimator.on_clients:
        return SelfAssessed(client_assessment_of(config, context), estimator.every)
    assess = checked_assess(estimator)
    # remote clients of all clusters count at once, where they count in the open
    at_once = remote is not None and estimator.counts and not hidden
    return RedTeamed(
        attack=lambda target, streams: assess(target, context, streams),
        every=estimator.every,
        members={client.handle: client for client in components.population.clients},
        count=loss_counter(remote) if remote and at_once else None,
        source=estimator.name,
        divergence=lambda target: divergence(engine, target, start, config.rounds),
        shares=shares_of(config, COUNTS_NORM) if estimator.counts else None,
    )


def client_assessment_of(config: Config, context: RiskContext) -> SelfAssessment:
    """Return how clients measure for themselves."""
    judge = checked_judge(config.risk)
    return lambda models, cohort, streams: judge(models, cohort, context, streams)


def _context(components: Components, start: tuple[Params, ...]) -> RiskContext:
    config, population = components.config, components.population
    return RiskContext(
        engine=components.engine,
        count=_count(components),
        shares=shares_of(config, COUNTS_NORM),
        reference=Reference(population.non_members),
        pool=population.pool,
        shifts=tuple(group.shift for group in population.groups),
        start=start,
        init=components.init,
        recipe=_recipe_by_round(config),
        play_round=_round_of(components),
        streams=Streams(config.seed),
        population_profile=tuple((c.group or 0, len(c.train)) for c in population.clients),
        shared_rounds=config.method.opening(config.rounds).split_round or 0,
    )


def _count(components: Components) -> Count | None:
    """Return how clients count their losses, where it is not in the open, and here."""
    privacy, send = components.config.privacy, components.send
    shares = shares_of(components.config, COUNTS_NORM)
    if send is None:
        masked = masked_loss_counter(components.engine, privacy.min_cohort, shares)
        return masked if privacy.secure_sums else None
    if privacy.secure_sums:
        return masked_counts(send, privacy.min_cohort, shares)
    count_all = loss_counter(send)
    return lambda target, streams: count_all([target], lambda _: streams)[0]


def retrain_recipe(components: Components) -> RetrainRecipe:
    """Return how an auditor plays this run's recipe again."""
    config = components.config
    return RetrainRecipe(components.init, _round_of(components), recipe_of(config), config.rounds)


def _recipe_by_round(config: Config) -> Callable[[int], Recipe]:
    """Return how clients train their shared model, by the index of the round."""
    usual = replace(recipe_of(config), personal=None)
    split_round = config.method.opening(config.rounds).split_round

    def recipe(index: int) -> Recipe:
        whole = longer(usual) if index == split_round else usual
        return whole.at(index, config.rounds)

    return recipe


def _round_of(components: Components) -> PlayRound:
    """Return a round of this run's own steps, for data that the server holds."""
    config, population, engine = components.config, components.population, components.engine
    records, algorithm = components.records, config.method
    own = isinstance(algorithm, Subtractable) and records and algorithm.reference_round(records)
    if own:
        return own
    recipe = _recipe_by_round(config)
    private = config.privacy.client_noise > 0
    aggregate = transformed_aggregator_of(config, len(population.clients))
    accounted = noise_on_clients(config)

    def play_round(
        index: int, params: Params, sets: tuple[Examples, ...], streams: Streams
    ) -> Params:
        federation = Simulated(engine, recipe(index), config.aggregation.weights)
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
