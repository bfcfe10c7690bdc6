"""From settings to what a run's ledger must agree with (`covey.runs.grammar`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from covey.aggregation.anonymity import AnonymitySets
from covey.aggregation.partition import public_random, set_sizes
from covey.algorithms.redteam import estimate_lifetime
from covey.algorithms.selection import choice_epsilon
from covey.base import events
from covey.base.components import UnloadedComponent
from covey.base.events import Event
from covey.base.rng import Streams
from covey.engine.protocol import num_steps
from covey.runs.round_grammar import Agrees, RoundTerms, SetTerms
from covey.settings.aggregation import mixes_clusters, recorded_parts, reported_delta
from covey.settings.load import Config, settings_hash
from covey.settings.schema import recipe_of


def terms_of(config: Config) -> RoundTerms:
    """Return what a ledger must agree with; a user's own code is not called for it."""
    aggregation, method, train = config.aggregation, config.method, config.train
    remote, limits = _is_remote(config), bool(config.population.epsilon_limits)
    is_simple = not remote and not limits
    secret_coins = config.privacy_plan.server_adds_noise and config.secrets.source == "os"
    return RoundTerms(
        started=_started(config),
        parts=_parts(config),
        is_remote=remote,
        own_rounds=method.is_own,
        own_sets=aggregation.is_own,
        sets=_sets(config, aggregation) if isinstance(aggregation, AnonymitySets) else None,
        noise=_noise(config),
        everybody=is_simple and train.participation == 1 and train.cohort_size == 0,
        repeats=is_simple and train.cohort_size == 0 and not secret_coins,
        cohort_size=train.cohort_size if is_simple else 0,
        subtracts=None if method.is_own else method.traits.subtracts,
        mixes_clusters=config.is_unread or mixes_clusters(config),
    )


def _is_remote(config: Config) -> bool:
    """Say whether clients may be on machines of their own."""
    return isinstance(config.engine, UnloadedComponent) or config.engine.is_remote


def own_parts(config: Config) -> Mapping[str, str]:
    """Return the parts that a user wrote and that can change a model: their names, by setting."""
    parts = recorded_parts(config).items()
    return {setting: component.name for setting, (component, _) in parts if component.is_own}


def _parts(config: Config) -> Mapping[str, Mapping[str, Any]]:
    """Return what is recorded of parts; of a user's own, which may not be read, the name."""
    return {
        setting: {"name": component.name}
        | ({} if component.is_own else {"options": options, "source": ""})
        for setting, (component, options) in recorded_parts(config).items()
    }


def _started(config: Config) -> Mapping[str, Any]:
    """Return the fields of the start that follow from settings alone."""
    aggregation, method = config.aggregation, config.method
    fields: dict[str, Any] = {
        "method": method.name,
        "config_hash": settings_hash(config),
        "rounds": config.rounds,
        "updates_stored": config.leaving.store_updates > 0,
        "secrets": config.secrets.source,
    }
    if not config.risk.is_own:
        fields["risk_lifetime"] = estimate_lifetime(config.risk.every)
    if not method.is_own and method.num_models:
        fields["num_clusters"] = method.num_models
    if not aggregation.is_own:
        fields["delta"] = reported_delta(config)
    return fields


def _sets(config: Config, sets: AnonymitySets) -> SetTerms | None:
    if sets.is_own:
        return None

    def drawn(t: int, cluster: int, clients: int) -> Sequence[Sequence[int]]:
        streams = Streams(config.seed).at("round", t).at("merge").at("partition", cluster)
        return public_random(clients, sets.min_anonymity, streams.generator())

    is_public = sets.partition == "public-random"
    return SetTerms(sets.min_anonymity, sets.limit_sets, drawn if is_public else None)


def _noise(config: Config) -> Mapping[type[Event], Agrees]:
    """Return the kinds of noise that these settings add, and which noise it is."""
    plan, sets = config.privacy_plan, config.aggregation
    noise: dict[type[Event], Agrees] = {}
    if plan.server_adds_noise:
        noise[events.SumPerturbed] = lambda e, _: (
            (e.noise_multiplier, e.sampling, e.unit) == (plan.noise, plan.sampling, plan.unit)
            and (plan.sums_gradients or e.clip == plan.clip)
        )
    if shares := plan.shares():
        noise[events.SharesPerturbed] = lambda e, _: (
            e.noise_multiplier <= plan.noise
            and e.honest == shares.honest
            and e.unit == ("client" if e.of == "counts" else plan.unit)
        )
    elif plan.clients_add_noise:
        own = plan.clip, plan.noise
        noise[events.UpdatesPerturbed] = lambda e, _: (e.clip, e.noise_multiplier) == own
    if plan.noise and (plan.exposure != 1 or plan.weighs_by_budget):
        noise[events.ExposuresLimited] = lambda e, _: all(v < 1 for v in e.exposures.values())
    if plan.step_noise:
        noise[events.StepsPerturbed] = lambda e, _: (
            e.noise_multiplier == plan.step_noise and _takes_all_steps(config, e)
        )
    if plan.choice_noise:
        epsilon = choice_epsilon(plan.choice_noise)
        noise[events.ChoicesPerturbed] = lambda e, _: e.epsilon == epsilon
    if isinstance(sets, AnonymitySets) and sets.noise == "sound" and not sets.is_own:
        noise[events.RepresentativesPerturbed] = lambda e, clients: (
            e.radius == sets.radius and e.noise_multiplier == _multiplier(config, sets, clients)
        )
    return noise


def _multiplier(config: Config, sets: AnonymitySets, clients: int) -> float:
    from covey.dp.run_guarantees import representative_noise  # seconds: the accountants

    together = config.method.num_models == 1 and config.train.participation == 1
    sizes = set_sizes(clients, sets.min_anonymity) if together else (sets.min_anonymity,)
    return representative_noise(sets.epsilon, sets.delta, config.rounds, sizes)


def _takes_all_steps(config: Config, event: events.StepsPerturbed) -> bool:
    """Say whether clients took as many steps as their examples ask for, at least.

    How many examples a client has follows from its sampling rate, where that is below 1.
    """
    recipe = recipe_of(config)
    return event.steps.keys() == event.sampling.keys() and all(
        event.steps[handle] >= num_steps(max(1, round(recipe.batch_size / q)), recipe)
        for handle, q in event.sampling.items()
        if 0 < q < 1
    )
