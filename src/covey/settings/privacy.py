"""From settings to how a run hides clients or records: the one place that reads them for it."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from covey.aggregation.privacy import Masks, PrivacyPlan
from covey.base.components import UnloadedComponent
from covey.base.names import Handle
from covey.data.examples import Client
from covey.dp.exposure import exposure_within
from covey.membership.estimators import count_of_counts

if TYPE_CHECKING:
    from covey.settings.schema import Sections


def plan_of(config: "Sections") -> PrivacyPlan:
    """Return what the settings ask for."""
    privacy, risk = config.privacy, config.risk
    local = privacy.noise_model == "local"
    sums_gradients = privacy.record_clip > 0 and not local
    noise = privacy.record_noise if sums_gradients else privacy.client_noise
    shared = noise > 0 and privacy.noise_model == "distributed" and privacy.secure_sums
    counts = shared and not isinstance(risk, UnloadedComponent) and risk.counts
    return PrivacyPlan(
        unit="record" if sums_gradients else "client",
        noise=noise,
        by=privacy.noise_model,
        clip=privacy.client_clip,
        record_clip=privacy.record_clip,
        step_noise=privacy.record_noise if local and privacy.record_clip > 0 else 0.0,
        choice_noise=privacy.selection_noise,
        masks=Masks(privacy.min_cohort, privacy.colluders) if privacy.secure_sums else None,
        exposure=privacy.exposure,
        releases=privacy.releases * config.rounds,
        weighs_by_budget=privacy.weigh_by_budget,
        expected_records=privacy.expected_records,
        rounds=config.rounds,
        sampling=config.train.participation,
        counts=count_of_counts(None) if counts else 0,
        counts_every=risk.every if counts else 1,
        delta=privacy.delta,
    )


def budget_weight(plan: PrivacyPlan, coordinates: int, limit: float | None) -> float:
    """Return the weight of a client with this budget, in updates with so many coordinates."""
    if not plan.weighs_by_budget or limit is None or plan.sums_gradients or not plan.noise:
        return 1.0
    from covey.dp.budget import weight_within  # loads the accountants: only where budgets are

    return weight_within(plan, coordinates, limit)


def exposures_of(
    plan: PrivacyPlan, clients: Iterable[Client], coordinates: int
) -> Mapping[Handle, float]:
    """Return C_i / C of the clients for whom it is below 1.

    By the risk that each accepts (`privacy.exposure`), and by its budget
    (`privacy.weigh_by_budget`), in models with so many coordinates.
    """
    if not plan.noise:
        return {}
    terms = plan.releases, plan.noise, plan.rounding(coordinates)

    def exposure(client: Client) -> float:
        own, accepted = client.preference, plan.exposure
        accepted = own.risk_threshold if accepted == "accepted" else accepted
        by_budget = budget_weight(plan, coordinates, own.epsilon_limit)
        return min(by_budget, exposure_within(accepted, *terms))

    exposures = {client.handle: exposure(client) for client in clients}
    return {handle: value for handle, value in exposures.items() if value < 1}
