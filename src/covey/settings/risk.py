"""From settings to who measures the risk of the cluster models, and with what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import compress, starmap
from statistics import fmean

from torch import nn

from covey.aggregation.mean import count_of_numbers
from covey.algorithms.client_requests import Send
from covey.algorithms.own_steps import checked_assess, checked_judge
from covey.algorithms.redteam import RedTeamed, RiskMeasurement, SelfAssessed
from covey.algorithms.remote import loss_counter, masked_counts
from covey.algorithms.ridge import Ridge
from covey.algorithms.round import RoundSteps, aggregate_round
from covey.algorithms.simulated import Simulated
from covey.algorithms.start import SPLIT_STEPS
from covey.algorithms.state import initial_state
from covey.base.errors import ConfigError
from covey.base.events import ClientsAssigned
from covey.base.names import Handle, Params, round_number
from covey.base.rng import Streams
from covey.data.examples import Client, Examples, Preference
from covey.data.population import Population
from covey.engine.fixed_features import LocalRecords
from covey.engine.kinds import faster_for_many
from covey.engine.protocol import Engine
from covey.engine.recipe import TASKS, Recipe
from covey.membership.estimators import COUNTS_NORM, CountFunction, RiskContext, masked_loss_counter
from covey.membership.references import PlayRound, RetrainRecipe
from covey.membership.truth import NonMembers, SelfAssessment, divergence
from covey.models.build import held_hash
from covey.settings.aggregation import aggregation_of, noise_on_clients, post_processors_of
from covey.settings.clients import ClientBackend
from covey.settings.load import Config
from covey.settings.privacy import exposures_of
from covey.settings.schema import recipe_for


@dataclass(frozen=True, eq=False, kw_only=True)
class RunParts:
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

    def recipe(self, round_index: int) -> Recipe:
        """Return how clients train in a round.

        A sum of gradients is divided by a public number of records: the mean over clients is
        of sums at the rate eta / (expected records per client).

        Raises:
            ConfigError: it is not known how many records to expect, or the rate is 0.
        """
        clients = self.population.clients
        recipe = recipe_for(self.config, self.population).at(round_index, self.config.rounds)
        if not recipe.sums_gradients:
            return recipe
        if recipe.learning_rate == 0:
            raise ConfigError(
                f"A schedule must stay above 0 under privacy.record_noise, found 0 in round "
                f"{round_number(round_index)}: raise it."
            )
        announced = float(f"{sum(len(client.train) for client in clients):.1e}")
        expected = self.config.privacy_plan.expected_records or announced
        if not expected:
            raise ConfigError(
                "privacy.expected_records must be above 0 for remote clients, found 0: set it."
            )
        return replace(recipe, learning_rate=recipe.learning_rate * len(clients) / expected)

    @cached_property
    def exposures(self) -> Mapping[Handle, float]:
        """C_i / C of the clients for whom it is below 1, as far as the server knows.

        What a remote client accepts is known to its node alone: it counts as 1 here.
        """
        start = Streams(self.config.seed).at("initial model", 0)
        unknown = self.send is not None and self.config.privacy_plan.exposure == "accepted"
        if unknown or not self.config.privacy_plan.noise:
            return {}
        coordinates = count_of_numbers(self.init(start)) - 1
        return exposures_of(self.config.privacy_plan, self.population.clients, coordinates)

    @property
    def send(self) -> Send | None:
        """How remote clients get requests, whose frozen parameters are the server's; None: not."""
        if self.client_backend is None:
            return None
        send, personal = self.client_backend.send, self.config.model.personal
        frozen = held_hash(self.module, personal) if self.module else ""
        return lambda request, cohort: send(replace(request, frozen=frozen), cohort)


def risk_measurement(components: RunParts, start: tuple[Params, ...]) -> RiskMeasurement | None:
    """Return what measures the risk that clients receive; None: it is not measured here.

    Remote clients measure by themselves where it is theirs to measure. `start` are the
    models that the run begins with.
    """
    config, estimator, engine = components.config, components.config.risk, components.engine
    remote, plan = components.send, components.config.privacy_plan
    if not estimator.measures or (estimator.on_clients and remote is not None):
        return None
    context = _context(components, start)
    if estimator.on_clients:
        return SelfAssessed(client_assessment_of(config, context), estimator.every)
    assess = checked_assess(estimator)
    # remote clients of all clusters count at once, where they count in the open
    at_once = remote is not None and estimator.counts and not plan.masks
    return RedTeamed(
        attack=lambda target, streams: assess(target, context, streams),
        every=estimator.every,
        members={client.handle: client for client in components.population.clients},
        count=loss_counter(remote) if remote and at_once else None,
        source=estimator.name,
        divergence=lambda target: divergence(engine, target, start, config.rounds),
        shares=plan.shares(COUNTS_NORM) if estimator.counts else None,
    )


def client_assessment_of(config: Config, context: RiskContext) -> SelfAssessment:
    """Return how clients measure for themselves."""
    judge = checked_judge(config.risk)
    return lambda models, cohort, streams: judge(models, cohort, context, streams)


def _context(components: RunParts, start: tuple[Params, ...]) -> RiskContext:
    config, population = components.config, components.population
    return RiskContext(
        engine=components.engine,
        count=_count(components),
        shares=components.config.privacy_plan.shares(COUNTS_NORM),
        reference=NonMembers(population.non_members),
        pool=population.pool,
        shifts=tuple(group.shift for group in population.groups),
        start=start,
        init=components.init,
        recipe=_recipe_by_round(components),
        play_round=_round_of(components, components.engine),
        streams=Streams(config.seed),
        population_profile=tuple((c.group or 0, len(c.train)) for c in population.clients),
        shared_rounds=config.method.opening(config.rounds).split_round or 0,
    )


def _count(components: RunParts) -> CountFunction | None:
    """Return how clients count their losses, where it is not in the open, and here."""
    plan, send = components.config.privacy_plan, components.send
    shares, least = plan.shares(COUNTS_NORM), plan.min_cohort
    if send is None:
        return masked_loss_counter(components.engine, least, shares) if least else None
    if least:
        return masked_counts(send, least, shares)
    count_all = loss_counter(send)
    return lambda target, streams: count_all([target], lambda _: streams)[0]


def retrain_recipe(components: RunParts) -> RetrainRecipe:
    """Return how an auditor plays this run's recipe again."""
    config, recipe = components.config, components.recipe(0)
    task = TASKS[config.model.task]
    engine = faster_for_many(components.engine, components.module, recipe, task)
    return RetrainRecipe(components.init, _round_of(components, engine), recipe, config.rounds)


def _recipe_by_round(components: RunParts) -> Callable[[int], Recipe]:
    """Return how clients train their shared model, by the index of the round."""
    config = components.config
    split_round = config.method.opening(config.rounds).split_round

    def recipe(index: int) -> Recipe:
        usual = replace(components.recipe(index), personal=None)
        return replace(usual, least_steps=SPLIT_STEPS) if index == split_round else usual

    return recipe


def _round_of(components: RunParts, engine: Engine) -> PlayRound:
    """Return a round of this run's own steps, for data that the server holds."""
    config, population = components.config, components.population
    records, algorithm = components.records, config.method
    own = isinstance(algorithm, Ridge) and records and algorithm.reference_round(records)
    if own:
        return own
    recipe, accounted = _recipe_by_round(components), noise_on_clients(config)
    exposures, plan, usual = components.exposures, components.config.privacy_plan, 1.0
    if exposures:
        usual = fmean(exposures.get(client.handle, 1.0) for client in population.clients)

    def play_round(
        index: int, params: Params, sets: tuple[Examples, ...], streams: Streams
    ) -> Params:
        now = recipe(index)
        # a cohort of a fixed size has clients that are none of these, too
        draws = max(len(sets), len(population.clients))
        coins = streams.at("cohort").generator().random(draws).tolist()
        drawn = config.train.takes_part(coins)[: len(sets)]
        cohort = tuple(starmap(_pseudo_client, compress(enumerate(sets), drawn)))
        only = {client.handle: 0 for client in cohort}
        clips = dict.fromkeys(only, usual)
        noisy, weights = plan.clients_add_noise, config.aggregation.weights
        federation = Simulated(engine, now, weights, exposures=clips, adds_noise=noisy)
        train = partial(federation.train, (params,), assignment=only, streams=streams)
        number = len(sets if plan.noise else population.clients)
        begin = aggregation_of(config, number, now.learning_rate)
        steps = RoundSteps(begin, post_processors_of(plan), dp_accounted=accounted)
        before, chosen = initial_state((params,)), ClientsAssigned(only, "shared")
        played = aggregate_round(steps, before, chosen, cohort, train, streams)
        return played.state.clusters[0]

    return play_round


def _pseudo_client(index: int, examples: Examples) -> Client:
    name, nothing = f"shadow-{index}", examples.first(0)
    return Client(name, name, None, examples, nothing, Preference(0.0, 1.0))
