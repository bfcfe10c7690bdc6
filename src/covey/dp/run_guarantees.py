"""From the facts of a run to what it guarantees, before and after it is played; it fails closed.

Every fact is looked at. One that says how noise was added is paid for; one that releases
something without noise is named as not covered; a merge without noise, or a fact that this
version does not know, leaves no guarantee.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Literal

from covey.base import events
from covey.base.component_names import find, is_known
from covey.base.history import of_kinds
from covey.base.names import UNITS, Handle, Unit
from covey.dp.accountant import (
    EpsilonBound,
    Mechanism,
    Relation,
    choice,
    epsilon_bound,
    gaussian,
    multiplier_for,
    representative,
    shares,
)
from covey.dp.budget import RoundCost
from covey.dp.current_guarantee import NOISE, Guarantee, aggregations_of, hides
from covey.secure_sums.noise import NoiseShares
from covey.unlearning.guarantee import NoGuarantee, Term

Noisy = events.SumPerturbed | events.SharesPerturbed | events.RepresentativesPerturbed
Own = events.StepsPerturbed | events.UpdatesPerturbed
"""Noise that is in whatever a client sends."""

Adversary = Literal[Term.SEES_MODELS, Term.SEES_SUMS, Term.SEES_UPDATES]
RELATION: Mapping[tuple[Unit, Relation], Term] = {
    ("client", "contributes or not"): Term.CLIENT_COUNTS,
    ("client", "replaced by another"): Term.CLIENT_REPLACED,
    ("record", "contributes or not"): Term.RECORD_COUNTS,
    ("record", "replaced by another"): Term.RECORD_REPLACED,
}
RELEASES: Mapping[Adversary, Term] = {
    Term.SEES_MODELS: Term.EVERY_MODEL,
    Term.SEES_SUMS: Term.EVERY_SUM,
    Term.SEES_UPDATES: Term.EVERY_UPDATE,
}
HOLDS_IF: Mapping[Adversary, tuple[Term, ...]] = {
    Term.SEES_MODELS: (Term.GOOD_DRAWS, Term.ONE_NAME),
    Term.SEES_SUMS: (
        *(Term.GOOD_BITS, Term.DRAWS_APART, Term.MASKS_HOLD, Term.ALL_RECORDED),
        Term.ONE_NAME,
    ),
    Term.SEES_UPDATES: (Term.GOOD_DRAWS, Term.DRAWS_APART, Term.RECIPE_KEPT),
}
ALONE = Term.ALL_RECORDED, Term.ONE_NAME
OPEN: Mapping[type[events.Event], Term] = {
    events.RiskMeasured: Term.RISKS,
    events.GroupsSought: Term.GROUPS,
    events.PricesSet: Term.PRICES,
    events.ModelsPooled: Term.POOLING,
    events.AnswerRefused: Term.REFUSED_ANSWERS,
    events.WeightReduced: Term.WEIGHTS,
    events.ModelDiverged: Term.DIVERGED,
    events.ClientsReported: Term.REPORTS,
    events.RoundMeasured: Term.CLUSTER_SIZES,
    events.ClusterAudited: Term.AUDITED,
    events.ModelAttacked: Term.AUDITED,
    events.ClientExposed: Term.AUDITED,
    events.FairnessMeasured: Term.AUDITED,
    events.MetricMeasured: Term.AUDITED,
}
"""Events that are published without noise, and how a guarantee says that."""

ALWAYS_OPEN = (Term.DECISIONS, Term.RECORD_OF_RUN, Term.TIMES)


FEATURES = "model.features"
KNOWN = (
    *OPEN,
    events.AnswersMissing,
    events.BudgetSpent,
    events.ClientsJoined,
    *NOISE,
    events.ChoicesPerturbed,
    events.AnonymitySetsFormed,
    events.ClientsOutsideSets,
    events.DistancesSketched,
    events.ExposuresLimited,
    events.ClientsAssigned,
    events.ModelsMerged,
    # What these reveal of anybody another one reveals too, or it is always named as open.
    events.ClientLeft,
    events.ClusterAbandoned,
    events.ClusterWaited,
    events.ClustersCollapsed,
    events.CohortSampled,
    events.HeadsSolved,
    events.LeaveRequested,
    events.ClientsWaited,
    events.RiskUnknown,
    events.RunFinished,
    events.RunRolledBack,
    events.RunStarted,
    events.SumGivenUp,
    events.ThresholdChanged,
)


def is_known_fact(fact: events.Event) -> bool:
    """Say whether a guarantee accounts for a fact, or names it."""
    if isinstance(fact, events.ComponentsUsed):  # of covey's own it records options alone
        return _own_code(fact) <= {FEATURES}
    by_budgets = isinstance(fact, events.RunEndedEarly) and fact.clients is not None
    return by_budgets or isinstance(fact, KNOWN)


def _own_code(fact: events.ComponentsUsed) -> set[str]:
    """Return the settings behind which code stands that covey does not bring."""
    return {key for key, used in fact.components.items() if used.get("source") != ""}


def _may_choose(method: str) -> bool:
    """Say whether this algorithm leaves clients a choice, as a user's own may."""
    known = ":" not in method and is_known("algorithm", method)
    return not known or find("algorithm", method, "method.name").chooses_clusters


def guarantees(
    facts: Sequence[events.Event], delta: float, *, secret: bool
) -> tuple[Guarantee, ...]:
    """Return what a run guarantees to a client, and to a record, where noise was added.

    Args:
        facts: of all rounds ever played, in order. Rounds that were rolled back count:
            what was released stays released.
        delta: the slack that is added to every probability.
        secret: whether no one can recompute what was drawn (secrets.source = "os").

    Returns:
        None, one or two guarantees, that of the client first. Of noise that clients add by
        themselves, and of sums of all clients' gradients, two of each, as somebody
        contributes or not, and is replaced. One with `epsilon` None says in its `reason` why
        nothing holds.
    """
    reason = None if secret else NoGuarantee.SEEDED
    relations: tuple[Relation, ...] = ("contributes or not", "replaced by another")
    return tuple(
        _guarantee(unit, facts, delta, reason, relation)
        for unit in UNITS
        if any(hides(fact, unit) for fact in facts)
        for relation in (relations if _bounds_replacing(facts, unit) else relations[:1])
    )


def _bounds_replacing(facts: Sequence[events.Event], unit: Unit) -> bool:
    """Say whether the noise is accounted for where somebody is replaced, too."""
    if unit == "client":
        return any(of_kinds(facts, events.UpdatesPerturbed))
    sums = [f for f in of_kinds(facts, events.SumPerturbed) if f.unit == "record"]
    shared = any(f.unit == "record" for f in of_kinds(facts, events.SharesPerturbed))
    return shared or bool(sums and all(fact.sampling == 1 for fact in sums))


def _adversary(unit: Unit, facts: Sequence[events.Event]) -> Adversary:
    """Return from whom the noise hides: the weakest of all kinds that there are decides."""
    noise = [fact for fact in of_kinds(facts, *NOISE) if hides(fact, unit)]
    if all(isinstance(fact, Own) for fact in noise):
        return Term.SEES_UPDATES
    if all(isinstance(fact, events.SharesPerturbed) for fact in noise):
        return Term.SEES_SUMS
    return Term.SEES_MODELS


def aggregate_multiplier(noise_multiplier: float, sizes: Sequence[int]) -> float:
    """Return the multiplier of a weighted mean of noisy representatives, at its least.

    z_c = z sqrt(sum_b p_b^2) / p_c

    A client is in one set c, in which its representative counts p_c, while the noise of
    all sets adds up. Exact for the heaviest set, more for any other.
    """
    return noise_multiplier * math.hypot(*sizes) / max(sizes)


def _guarantee(
    unit: Unit,
    facts: Sequence[events.Event],
    delta: float,
    reason: NoGuarantee | None,
    relation: Relation,
) -> Guarantee:
    merges = list(aggregations_of(facts))
    view = _adversary(unit, facts)
    unknown = {type(fact).__name__ for fact in facts if not is_known_fact(fact)}
    where = ""
    if not reason and unknown:
        reason, where = NoGuarantee.UNKNOWN_EVENT, min(unknown)
    cost: EpsilonBound | None = None
    if not reason:
        alone = view == Term.SEES_UPDATES
        charged = _own_cost(merges, unit, relation) if alone else _sums_cost(merges, unit, relation)
        choices = _choices(merges)
        costs = [epsilon_bound([*each, *choices], delta) for each in charged.mechanisms]
        reason, where = charged.unaccounted, charged.where
        known = [each for each in costs if each is not None]
        if not reason and len(known) < len(costs):
            reason = NoGuarantee.NOT_ADDED_UP
        if not reason:
            cost = max(known, key=lambda each: each.epsilon)
            if relation == "replaced by another":
                cost = replace(cost, relation=relation)
    hidden = _choices(merges) and not _choices_are_open(merges)
    return Guarantee(
        epsilon=cost.epsilon if cost else None,
        reason=f"{reason or ''}{': ' if where else ''}{where}",
        delta=delta,
        unit=unit,
        relation=RELATION[unit, cost.relation if cost else relation],
        adversary=view,
        covers=(
            RELEASES[view],
            *([Term.EVERY_COUNT] if _counts_are_noisy(facts) else []),
            *([Term.NOISY_CHOICES] if hidden else []),
        ),
        does_not_cover=_uncovered(unit, facts, merges),
        holds_if=(
            Term.DRAWS_HIDDEN,
            *HOLDS_IF[view],
            *(ALONE if unit == "client" and view == Term.SEES_UPDATES else ()),
            *((Term.RECIPE_KEPT,) if _sums_of_records(facts) else ()),
        ),
        accountant=cost.accountant if cost else None,
        noise_multiplier=min(
            fact.noise_multiplier
            for fact in facts
            if isinstance(fact, Noisy | Own) and hides(fact, unit)
        ),
        reason_code=reason,
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """What has to be paid for, or why it cannot be.

    Attributes:
        mechanisms: for everybody who may be worst off, the releases that concern it.
        unaccounted: why it cannot be; None: it can.
        where: the merge, and the cluster, of which that is so.
    """

    mechanisms: tuple[tuple[Mechanism, ...], ...]
    unaccounted: NoGuarantee | None = None
    where: str = ""


def _sums_cost(merges: Sequence[tuple[events.Event, ...]], unit: Unit, relation: Relation) -> Cost:
    """Return the dearest release of every merge, as often as a client may be in one.

    A client is in one cluster at a time. Noise on sums over clients hides their records, too.
    Two gradients, or updates, are up to 2 C apart.
    """
    if unit == "record" and any(of_kinds(chain.from_iterable(merges), events.StepsPerturbed)):
        return Cost((), NoGuarantee.BOTH)
    apart = 2.0 if relation == "replaced by another" else 1.0
    paid: list[Mechanism] = []
    for number, merge in enumerate(merges):
        noisy = [
            fact
            for fact in merge
            if isinstance(fact, Noisy) and (unit == "record" or hides(fact, unit))
        ]
        waiting = {fact.cluster for fact in of_kinds(merge, events.ClusterWaited)}
        shared = list(of_kinds(noisy, events.SharesPerturbed))
        counts = [fact for fact in shared if fact.of == "counts"]
        hidden = {fact.cluster for fact in noisy if fact not in counts}
        took = (enumerate(fact.participants) for fact in of_kinds(merge, events.ModelsMerged))
        bare = {j for one in took for j, clients in one if clients} - waiting - hidden
        if bare:
            return Cost((), NoGuarantee.BARE, f"merge {number}, cluster {min(bare)}")
        sums = list(of_kinds(noisy, events.SumPerturbed))
        sets = list(of_kinds(noisy, events.RepresentativesPerturbed))
        if sums:
            least = min(fact.noise_multiplier for fact in sums)
            paid.append(gaussian(least / apart, max(fact.sampling for fact in sums)))
        for of in sorted({fact.of for fact in shared}):
            least = min(f.noise_multiplier for f in shared if f.of == of)
            paid.append(shares(least / apart))
        if sets:  # dearer than that of any: least noise in the model, fewest members
            least = min(aggregate_multiplier(f.noise_multiplier, f.sizes) for f in sets)
            paid.append(representative(least, min(min(fact.sizes) for fact in sets)))
    return Cost((tuple(paid),))


def _own_cost(merges: Sequence[tuple[events.Event, ...]], unit: Unit, relation: Relation) -> Cost:
    """Return every client's noisy steps, or updates; clients with the same are one case."""
    spent: dict[Handle, Counter[Mechanism]] = {}
    for number, merge in enumerate(merges):
        noisy = [f for f in merge if isinstance(f, Own) and hides(f, unit)]
        chosen = (f.clusters for f in of_kinds(merge, events.ClientsAssigned) if f.by != "final")
        releases = [(h, *each) for fact in noisy for h, each in _releases(fact, relation)]
        bare = {*chain.from_iterable(chosen)} - {handle for handle, _, _ in releases}
        # after the last aggregation no client trains
        if bare and any(of_kinds(merge, events.ModelsMerged)):
            return Cost((), NoGuarantee.BARE_STEPS, f"merge {number}")
        for handle, mechanism, times in releases:
            spent.setdefault(handle, Counter())[mechanism] += times
    cases = {frozenset(counted.items()): counted for counted in spent.values()}
    return Cost(tuple(tuple(counted.elements()) for counted in cases.values()))


def _releases(fact: Own, relation: Relation) -> Iterator[tuple[Handle, tuple[Mechanism, int]]]:
    """Yield what each client released, and how often."""
    z = fact.noise_multiplier
    if isinstance(fact, events.UpdatesPerturbed):  # two updates are up to 2 C apart
        own = gaussian(z / 2 if relation == "replaced by another" else z)
        yield from ((handle, (own, 1)) for handle in fact.clients)
    else:
        for handle, times in fact.steps.items():
            yield handle, (gaussian(z, fact.sampling[handle]), times)


def _choices(merges: Sequence[tuple[events.Event, ...]]) -> tuple[Mechanism, ...]:
    """Return the noisy choices of the client that chose most often."""
    counted: dict[Handle, Counter[float]] = {}
    for fact in of_kinds(chain.from_iterable(merges), events.ChoicesPerturbed):
        for handle in fact.handles:
            counted.setdefault(handle, Counter())[fact.epsilon] += 1
    most: Counter[float] = Counter()
    for own in counted.values():
        most |= own
    return tuple(choice(epsilon) for epsilon in most.elements())


def _sums_of_records(facts: Sequence[events.Event]) -> bool:
    """Say whether clients sent sums of clipped gradients."""
    sums = of_kinds(facts, events.SumPerturbed, events.SharesPerturbed)
    return any(fact.unit == "record" for fact in sums)


def _counts_are_noisy(facts: Sequence[events.Event]) -> bool:
    """Say whether clients add noise to counts of losses: then they do it to all of them."""
    return any(fact.of == "counts" for fact in of_kinds(facts, events.SharesPerturbed))


def _choices_are_open(merges: Sequence[tuple[events.Event, ...]]) -> bool:
    """Say whether a client chose among several clusters without noise."""
    return any(
        fact.by in ("clients", "final", "groups", "split")
        for merge in merges
        if not any(of_kinds(merge, events.ChoicesPerturbed))
        for fact in of_kinds(merge, events.ClientsAssigned)
    )


def _uncovered(
    unit: Unit, facts: Sequence[events.Event], merges: Sequence[tuple[events.Event, ...]]
) -> tuple[Term, ...]:
    opened = dict.fromkeys(OPEN[type(fact)] for fact in facts if type(fact) in OPEN)
    formed = of_kinds(facts, events.AnonymitySetsFormed, events.DistancesSketched)
    wide = any(diameter is not None for fact in formed for diameter in fact.diameters)
    began = list(of_kinds(facts, events.RunStarted))
    chosen = all(f.num_clusters > 1 and _may_choose(f.method) for f in began)
    stored = any(fact.updates_stored for fact in began)
    used = [*of_kinds(facts, events.ComponentsUsed)]
    losses = [fact.components.get("train.loss", {}).get("options", {}) for fact in used]
    balanced = any(options.get("class_weights") == "balanced" for options in losses)
    own_features = any(FEATURES in _own_code(fact) for fact in used)
    view = _adversary(unit, facts)
    if _counts_are_noisy(facts):
        opened.pop(Term.RISKS, None)
    return (
        *([Term.SERVER] if view == Term.SEES_MODELS else []),
        *([Term.EXPECTED_RECORDS] if _sums_of_records(facts) else []),
        *([Term.COUNTS] if unit == "record" and view == Term.SEES_UPDATES else []),
        *([Term.CLASS_COUNTS] if balanced else []),
        *([Term.CHOICES] if chosen and _choices_are_open(merges) else []),
        *([Term.DIAMETERS] if wide else []),
        *([Term.OWN_FEATURES] if own_features else []),
        *([Term.STORED] if stored and unit == "client" else []),
        *opened,
        *ALWAYS_OPEN,
    )


Noise = Literal["sound", "client", "distributed", "local", "record", "steps"]
"""What is noisy: anonymity sets (`aggregation.noise`); clients' updates, by the server's noise,
by shares, or by each client's own (`privacy.noise_model`); the sum of all records' gradients;
or each client's steps (DP-SGD)."""


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """A run to come.

    Attributes:
        rounds: T; of each, `steps` gradient steps where these are noisy.
        set_size: k, the members of an anonymity set, at least.
        sets: of equal size, behind each released model.
        clients: in every released model; of shares, those that are counted on in every sum.
        sampling: chance that a client takes part in a round, or an example in a step.
        coordinates: of the model, each of which is rounded where shares are added.
    """

    noise: Noise
    rounds: int
    delta: float
    set_size: int = 1
    sets: int = 1
    clients: int = 1
    sampling: float = 1.0
    steps: int = 1
    coordinates: int = 1

    def cost(self, noise_multiplier: float) -> RoundCost:
        """Return what a client releases in a round."""
        if self.noise == "distributed":
            shares = NoiseShares(1.0, noise_multiplier, self.clients)
            return RoundCost("distributed", noise_multiplier, shares.rounding(self.coordinates))
        return RoundCost("local" if self.noise == "local" else "central", noise_multiplier)


def forecast(plan: NoisePlan, noise_multiplier: float) -> Guarantee:
    """Return what a run with these settings guarantees, if its secret stays one."""
    facts = _facts(plan, noise_multiplier) * plan.rounds
    both = guarantees(facts, plan.delta, secret=True)  # the dearest relation is last
    guarantee = both[-1 if plan.noise == "local" else 0]
    return replace(guarantee, holds_if=(*guarantee.holds_if, Term.AS_PLANNED))


def multiplier(plan: NoisePlan, epsilon: float) -> float:
    """Return the least noise multiplier with which the run stays below epsilon."""
    if plan.noise == "sound":
        sizes = (plan.set_size,) * plan.sets
        return representative_noise(epsilon, plan.delta, plan.rounds, sizes)
    if plan.noise == "local":  # two updates are up to 2 C apart
        return 2 * multiplier_for(epsilon, plan.delta, plan.rounds, gaussian)
    if plan.noise == "distributed":
        return multiplier_for(epsilon, plan.delta, plan.rounds, lambda z: plan.cost(z).over(1)[0])
    return multiplier_for(
        epsilon, plan.delta, plan.rounds * plan.steps, lambda z: gaussian(z, plan.sampling)
    )


@cache
def representative_noise(
    epsilon: float, delta: float, rounds: int, sizes: tuple[int, ...]
) -> float:
    """Return the least z that keeps noisy representatives of such sets below epsilon.

    A representative's noise has standard deviation 2 z Delta, and only the mean of all
    is released.
    """
    fewest = min(sizes)
    alone = multiplier_for(epsilon, delta, rounds, lambda z: representative(z, fewest))
    return alone / aggregate_multiplier(1.0, sizes)


def adversary_views(plan: NoisePlan, noise_multiplier: float) -> Mapping[str, float | None]:
    """Return the epsilon of `sound` noise for adversaries who see more than is published.

    Every representative or only the mean of all, and knowing or not who spoke for a set.
    """
    together = aggregate_multiplier(noise_multiplier, (plan.set_size,) * plan.sets)
    views: dict[str, Mechanism] = {
        "each representative, and who it is": gaussian(noise_multiplier),
        "their mean, and who they are": gaussian(together),
        "each representative": representative(noise_multiplier, plan.set_size),
        "their mean": representative(together, plan.set_size),
    }
    costs = {name: epsilon_bound([each] * plan.rounds, plan.delta) for name, each in views.items()}
    return {name: cost.epsilon if cost else None for name, cost in costs.items()}


def noise_norm(plan: NoisePlan, noise_multiplier: float, bound: float, coordinates: int) -> float:
    """Return the expected L2 norm of the noise in one release, in a model of so many parameters.

    `bound` is the largest norm of one client's update; the mean of many is shorter.
    """
    if plan.noise == "sound":
        std = 2 * bound * noise_multiplier / math.sqrt(plan.sets)
    elif plan.noise == "local":
        std = bound * noise_multiplier / math.sqrt(plan.clients)
    else:
        std = bound * noise_multiplier / (plan.clients * plan.sampling)
    return std * math.sqrt(coordinates)


def _facts(plan: NoisePlan, z: float) -> list[events.Event]:
    """Return what one round would record."""
    merged = events.ModelsMerged("", (plan.clients,))
    if plan.noise == "sound":
        sizes = (plan.set_size,) * plan.sets
        return [events.RepresentativesPerturbed(0, sizes, 1.0, z), merged]
    if plan.noise in ("client", "record"):
        unit: Unit = "record" if plan.noise == "record" else "client"
        return [events.SumPerturbed(0, 1.0, z, plan.sampling, unit), merged]
    somebody, assigned = {"": plan.steps}, events.ClientsAssigned({"": 0}, "shared")
    if plan.noise == "distributed":
        effective = plan.cost(z).hidden_by()
        return [events.SharesPerturbed("updates", 0, 1.0, effective, plan.clients), merged]
    if plan.noise == "local":
        return [assigned, events.UpdatesPerturbed(1.0, z, ("",)), merged]
    return [assigned, events.StepsPerturbed(z, somebody, {"": plan.sampling}), merged]
