"""From settings to what makes the next models out of updates, and what it keeps apart.

Whether what a cluster's clients send can reach another cluster's model: a user's own code is
believed where its own class says so (`Component.declares`).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import nn

from covey.aggregation.anonymity import AnonymitySets, HiddenSet
from covey.aggregation.base import (
    AnonymityTerms,
    BeginRound,
    ClientUpdate,
    ClusterwiseAggregation,
    FederationInfo,
)
from covey.aggregation.mean import (
    ArrivedMeans,
    Mean,
    NoisyMeans,
    PostProcess,
    clipped,
    masked_means,
    noised,
)
from covey.aggregation.privacy import PrivacyPlan
from covey.aggregation.server import Models
from covey.algorithms.own_steps import checked_aggregation
from covey.base.components import Component, OwnFunction, components_in
from covey.base.errors import ConfigError
from covey.base.events import FROZEN, ComponentsUsed
from covey.base.names import Handle, SummedUp
from covey.base.own_code import source_hash
from covey.base.rng import Streams
from covey.models.build import held_hash
from covey.models.linear_head import FrozenFeatures
from covey.settings.load import CHANGES_NOTHING, Config
from covey.settings.schema import Sections


def post_processors_of(
    plan: PrivacyPlan, exposures: Mapping[Handle, float] = MappingProxyType({})
) -> tuple[PostProcess, ...]:
    """Return what each update passes between training and aggregation, in this order.

    Bounds come first: the noise on a sum hides a client only if no other one adds more than a
    clip. Where clients add noise, all of it is theirs to do before they send anything.

    Args:
        plan: how updates are hidden.
        exposures: C_i / C of the clients for whom it is below 1.
    """
    if plan.sums_gradients or not plan.noise:
        return ()

    def weight(update: ClientUpdate) -> float:
        return exposures.get(update.handle, 1.0)

    bounded = clipped(plan.clip, weight)
    return (bounded, noised(plan.clip, plan.noise)) if plan.by == "local" else (bounded,)


def aggregation_of(
    config: Config, clients: int, rate: float, *, repeats: bool = False
) -> BeginRound:
    """Return how the aggregation of updates that a server sees, or of noisy sums, begins.

    Args:
        config: the settings.
        clients: how many the federation has.
        rate: of the steps in the round.
        repeats: whether clients can be trained once more in a round.
    """
    plan, aggregation = config.privacy_plan, config.aggregation
    noisy = partial(NoisyMeans, clip=plan.bound(rate), unit=plan.unit)
    if plan.server_adds_noise:
        q = plan.sampling
        return partial(noisy, noise_multiplier=plan.noise, sampling=q, clients=clients)
    if shares := plan.update_shares(rate):  # what comes of the shares of so many
        return partial(noisy, noise_multiplier=shares.std(clients) / shares.bound)
    return checked_aggregation(aggregation, _federation(config, clients, repeats=repeats))


def masked_aggregation_of(config: Config, rate: float) -> BeginRound:
    """Return how the aggregation of updates that are sent under masks begins, at this rate.

    Raises:
        ConfigError: there is none.
    """
    plan = config.privacy_plan
    least, shares = plan.min_cohort, plan.update_shares(rate)
    if type(config.aggregation).begin is not Mean.begin:
        raise ConfigError(
            f"aggregation.name must be 'mean' under privacy.secure_sums, found "
            f"{config.aggregation.name!r}: set it, or secure_sums = false."
        )
    if config.engine.is_remote:
        return partial(ArrivedMeans, min_cohort=least, shares=shares)
    return masked_means(least, shares)


def hidden_sets(
    config: Config, clients: int, models: Models, updates: Sequence[ClientUpdate], streams: Streams
) -> tuple[HiddenSet, ...]:
    """Return the anonymity sets of a round of a federation of so many clients; () without any."""
    if type(config.aggregation) is not AnonymitySets:
        return ()
    return config.aggregation.sets_of(_federation(config, clients), models, updates, streams)


def anonymity_of(config: Config) -> AnonymityTerms | None:
    """Return how the aggregation hides clients among each other; None: it does not.

    A user's own is believed where its class says so (`Aggregation.hides_members`).
    """
    terms = config.aggregation.anonymity()
    return terms if config.aggregation.declares("hides_members") else None


def noise_on_clients(config: Config) -> bool:
    """Say whether the aggregation adds noise whose guarantee counts on every client."""
    terms = anonymity_of(config)
    return config.privacy_plan.noise > 0 or (terms is not None and terms.accounted)


def reported_delta(config: Config) -> float:
    """Return at which delta an epsilon of a run is reported."""
    terms = anonymity_of(config)
    return terms.delta if terms and terms.accounted else config.privacy_plan.delta


def _federation(config: Config, clients: int, *, repeats: bool = False) -> FederationInfo:
    def noise_multiplier(epsilon: float, delta: float, sizes: Sequence[int]) -> float:
        # the accountants take seconds to load, and a client never needs them
        from covey.dp.run_guarantees import representative_noise

        return representative_noise(epsilon, delta, config.rounds, tuple(sizes))

    return FederationInfo(
        clients=clients,
        rounds=config.rounds,
        participation=config.train.participation,
        shared=config.method.num_models == 1,
        repeats=repeats,
        noise_multiplier=noise_multiplier,
    )


def mixes_clusters(config: Config) -> bool:
    """Say whether a user's own code may carry one cluster's clients into another.

    It may, unless it is known not to. What built-in components carry is recorded as it
    happens.
    """
    method, aggregation = config.method, config.aggregation
    clusterwise = isinstance(aggregation, ClusterwiseAggregation) and all(
        getattr(type(aggregation), name) is getattr(ClusterwiseAggregation, name)
        for name in ("begin", "_fitting")
    )  # it is only ever shown the updates of one cluster at a time
    parts = (method, *(() if clusterwise else (aggregation,)), aggregation.server_optimizer)
    own = [part for part in parts if part.is_own]
    return not all(component.declares("keeps_clusters_apart") for component in own)


def components_used(config: Config, module: nn.Module) -> tuple[ComponentsUsed, ...]:
    """Return the fact which components are a user's own or have settings, if any do.

    Fixed features and frozen parameters in the model are reported always, with what their
    numbers hash to.
    """
    components = {
        f"model.{path}": {
            "name": part.map.name,
            "options": part.map.options,
            "source": part.map.source,
            "tensors": part.map.tensors,
            **({"public": part.public_hash} if part.public else {}),
        }
        for path, part in module.named_modules()
        if isinstance(part, FrozenFeatures)
    }
    if held := held_hash(module, config.model.personal):
        components[FROZEN] = {"name": FROZEN, "options": {}, "source": "", "tensors": held}
    for setting, (component, options) in recorded_parts(config).items():
        if setting not in components:
            maker = component.function if isinstance(component, OwnFunction) else type(component)
            source = source_hash(maker) if component.is_own else ""
            components[setting] = {"name": component.name, "options": options, "source": source}
    return (ComponentsUsed(components, mixes_clusters(config)),) if components else ()


def recorded_parts(config: Config) -> Mapping[str, tuple[Component, Mapping[str, Any]]]:
    """Return the parts of a run that can change a model and are not as usual, by setting.

    They are a user's own, or have options, which stand beside them.
    """
    usual = dict(components_in(Sections()))
    parts: dict[str, tuple[Component, Mapping[str, Any]]] = {}
    for key, component in components_in(config):
        nested = {name for name, value in component if isinstance(value, Component)}
        options = {
            name: value
            for name, value in component.own_settings().items()
            if name not in nested and not f"{key}.{name}".startswith(CHANGES_NOTHING)
        }
        own = component.is_own and component != usual.get(key)
        if key not in ("metrics", "tracking") and (options or own):
            parts[key if "." in key else f"{key}.name"] = component, options
    return parts


def summed_up(config: Config) -> frozenset[SummedUp]:
    """Return what of clients' a server needs sums of, for these settings."""
    of = "sums" if config.method.traits.subtracts else "updates"
    counts = config.risk.measures and not config.risk.on_clients
    return frozenset((of, "counts") if counts else (of,))
