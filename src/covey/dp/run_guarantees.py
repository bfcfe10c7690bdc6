"""From the events of a run to what it guarantees, before and after it is played; it fails closed.

What was released is paid for as `covey.dp.releases` says. A merge without noise, or an event
that this version does not know, leaves no guarantee.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Literal, NamedTuple

from covey.aggregation.privacy import Masks, PrivacyPlan
from covey.base import events
from covey.base.component_names import find, is_known
from covey.base.guarantee import NoGuarantee, Term
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
from covey.dp.releases import (
    OPEN,
    Adversary,
    Release,
    aggregations_of,
    is_accounted_for,
    own_code,
    releases_in,
)
from covey.dp.status import Guarantee

RELATION: Mapping[tuple[Unit, Relation], Term] = {
    ("client", "contributes or not"): Term.CLIENT_COUNTS,
    ("client", "replaced by another"): Term.CLIENT_REPLACED,
    ("record", "contributes or not"): Term.RECORD_COUNTS,
    ("record", "replaced by another"): Term.RECORD_REPLACED,
}
COVERS: Mapping[Adversary, Term] = {
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
ALWAYS_OPEN = (Term.DECISIONS, Term.RECORD_OF_RUN, Term.TIMES)


class _Aggregation(NamedTuple):
    """The events up to an aggregation, and what they released."""

    facts: tuple[events.Event, ...]
    released: tuple[Release, ...]


class _Nothing(NamedTuple):
    """Why nothing is guaranteed, and of which event, merge or cluster that is so."""

    code: NoGuarantee
    where: str = ""


Cases = list[list[Mechanism]]
"""For everybody who may be worst off, the releases that concern it."""


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
    merges = [_Aggregation(part, tuple(releases_in(part))) for part in aggregations_of(facts)]
    released = list(_released(merges))
    unknown = {type(fact).__name__ for fact in facts if not is_accounted_for(fact)}
    nothing = None if secret else _Nothing(NoGuarantee.SEEDED)
    if unknown and not nothing:
        nothing = _Nothing(NoGuarantee.UNKNOWN_EVENT, min(unknown))

    def guarantee(unit: Unit, hidden: Sequence[Release], relation: Relation) -> Guarantee:
        views: set[Adversary] = {release.adversary for release in hidden}
        view = views.pop() if len(views) == 1 else Term.SEES_MODELS  # the weakest
        cost = nothing or _cost(unit, view, merges, relation, delta)
        bound, none = (None, cost) if isinstance(cost, _Nothing) else (cost, None)
        return Guarantee(
            epsilon=bound.epsilon if bound else None,
            reason=": ".join(filter(None, none)) if none else "",
            delta=delta,
            unit=unit,
            relation=RELATION[unit, bound.relation if bound else relation],
            adversary=view,
            covers=_covered(view, merges),
            does_not_cover=_uncovered(unit, view, merges),
            holds_if=(
                Term.DRAWS_HIDDEN,
                *HOLDS_IF[view],
                *(ALONE if unit == "client" and view == Term.SEES_UPDATES else ()),
                *((Term.RECIPE_KEPT,) if _sums_of_records(merges) else ()),
                *((Term.PUBLIC_EXAMPLES,) if _is_whitened_by_examples(merges) else ()),
            ),
            accountant=bound.accountant if bound else None,
            noise_multiplier=min(release.multiplier for release in hidden),
            reason_code=none.code if none else None,
        )

    relations: tuple[Relation, ...] = ("contributes or not", "replaced by another")
    return tuple(
        guarantee(unit, hidden, relation)
        for unit in UNITS
        if (hidden := [release for release in released if release.unit == unit])
        for relation in (
            relations if all(release.bounds_both for release in hidden) else relations[:1]
        )
    )


def _cost(
    unit: Unit, view: Adversary, merges: Sequence[_Aggregation], relation: Relation, delta: float
) -> EpsilonBound | _Nothing:
    """Return what the client, or the record, pays that is worst off."""
    apart = 2.0 if relation == "replaced by another" else 1.0  # so many clips, at most
    paid = _own_cost if view == Term.SEES_UPDATES else _sums_cost
    cases = paid(unit, merges, apart)
    if isinstance(cases, _Nothing):
        return cases
    choices = _most_choices(merges)
    costs = [epsilon_bound([*case, *choices], delta) for case in cases]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return _Nothing(NoGuarantee.NOT_ADDED_UP)
    dearest = max(known, key=lambda guarantee: guarantee.epsilon)
    return dearest if apart == 1 else replace(dearest, relation=relation)


def _sums_cost(unit: Unit, merges: Sequence[_Aggregation], apart: float) -> Cases | _Nothing:
    """Return the dearest release of every merge: a client is in one cluster at a time.

    Noise on sums over clients hides their records, too.
    """
    if unit == "record" and any(r.own is not None and r.unit == unit for r in _released(merges)):
        return _Nothing(NoGuarantee.BOTH)
    paid: list[Mechanism] = []
    for number, (facts, released) in enumerate(merges):
        sums = [r for r in released if r.own is None and unit in ("record", r.unit)]
        hidden = {r.cluster for r in sums if r.mechanism != "counts"}
        hidden |= {fact.cluster for fact in of_kinds(facts, events.ClusterWaited)}
        took = (enumerate(fact.participants) for fact in of_kinds(facts, events.ModelsMerged))
        if bare := {j for one in took for j, clients in one if clients} - hidden:
            return _Nothing(NoGuarantee.BARE, f"merge {number}, cluster {min(bare)}")
        for kind in sorted({r.mechanism for r in sums}):
            paid.append(_dearest([r for r in sums if r.mechanism == kind], apart))
    return [paid]


def _dearest(releases: Sequence[Release], apart: float) -> Mechanism:
    """Return what is no cheaper than any of these: least noise, surest draw, fewest members."""
    least = min(release.multiplier for release in releases)
    match releases[0].mechanism:
        case "updates" | "counts":
            return shares(least / apart)
        case "representative":
            least = min(
                aggregate_multiplier(release.multiplier, release.sizes) for release in releases
            )
            return representative(least, min(min(release.sizes) for release in releases))
        case _:
            return gaussian(least / apart, max(release.sampling for release in releases))


def aggregate_multiplier(noise_multiplier: float, sizes: Sequence[int]) -> float:
    """Return the multiplier of a weighted mean of noisy representatives, at its least.

    z_c = z sqrt(sum_b p_b^2) / p_c

    A client is in one set c, in which its representative counts p_c, while the noise of
    all sets adds up. Exact for the heaviest set, more for any other.
    """
    return noise_multiplier * math.hypot(*sizes) / max(sizes)


def _own_cost(unit: Unit, merges: Sequence[_Aggregation], apart: float) -> Cases | _Nothing:
    """Return every client's noisy steps, or updates; clients with the same are one case."""
    spent: dict[Handle, Counter[Mechanism]] = {}
    for number, (facts, released) in enumerate(merges):
        own = [(r.multiplier, r.own) for r in released if r.own is not None and r.unit == unit]
        chosen = [f.clusters for f in of_kinds(facts, events.ClientsAssigned) if f.by != "final"]
        bare = set().union(*chosen).difference(*(clients for _, clients in own))
        # after the last aggregation no client trains
        if bare and any(of_kinds(facts, events.ModelsMerged)):
            return _Nothing(NoGuarantee.BARE_STEPS, f"merge {number}")
        for z, clients in own:
            for handle, (times, sampling) in clients.items():
                counted = spent.setdefault(handle, Counter())
                counted[gaussian(z / apart, sampling)] += times
    cases = {frozenset(counted.items()): counted for counted in spent.values()}
    if not cases:
        return _Nothing(NoGuarantee.NOT_ACCOUNTED)
    return [[*counted.elements()] for counted in cases.values()]


def _most_choices(merges: Sequence[_Aggregation]) -> tuple[Mechanism, ...]:
    """Return the noisy choices of the client that chose most often."""
    counted: dict[Handle, Counter[float]] = {}
    for release in _released(merges):
        for handle in release.own or () if release.mechanism == "choice" else ():
            counted.setdefault(handle, Counter())[release.multiplier] += 1
    most: Counter[float] = Counter()
    for own in counted.values():
        most |= own
    return tuple(choice(epsilon) for epsilon in most.elements())


def _released(merges: Sequence[_Aggregation]) -> Iterator[Release]:
    return chain.from_iterable(merge.released for merge in merges)


def _sums_of_records(merges: Sequence[_Aggregation]) -> bool:
    """Say whether clients sent sums of clipped gradients."""
    return any(release.unit == "record" and release.own is None for release in _released(merges))


def _is_whitened_by_examples(merges: Sequence[_Aggregation]) -> bool:
    """Say whether public examples are behind the features."""
    used = of_kinds(chain.from_iterable(merge.facts for merge in merges), events.ComponentsUsed)
    return any("public" in fact.components.get(events.FEATURES, {}) for fact in used)


def _counts_are_noisy(merges: Sequence[_Aggregation]) -> bool:
    """Say whether clients add noise to counts of losses: then they do it to all of them."""
    return any(release.mechanism == "counts" for release in _released(merges))


def _choices_are_open(merges: Sequence[_Aggregation]) -> bool:
    """Say whether a client chose among several clusters without noise."""
    return any(
        fact.by in ("clients", "final", "groups", "split")
        for facts, _ in merges
        if not any(of_kinds(facts, events.ChoicesPerturbed))
        for fact in of_kinds(facts, events.ClientsAssigned)
    )


def _may_choose(method: str) -> bool:
    """Say whether this algorithm leaves clients a choice, as a user's own may."""
    known = ":" not in method and is_known("algorithm", method)
    return not known or find("algorithm", method, "method.name").traits.chooses_clusters


def _covered(view: Adversary, merges: Sequence[_Aggregation]) -> tuple[Term, ...]:
    chosen = _most_choices(merges) and not _choices_are_open(merges)
    return (
        COVERS[view],
        *([Term.EVERY_COUNT] if _counts_are_noisy(merges) else []),
        *([Term.NOISY_CHOICES] if chosen else []),
    )


def _uncovered(unit: Unit, view: Adversary, merges: Sequence[_Aggregation]) -> tuple[Term, ...]:
    facts = [fact for merge in merges for fact in merge.facts]
    opened = dict.fromkeys(OPEN[type(fact)] for fact in facts if type(fact) in OPEN)
    if _counts_are_noisy(merges):
        opened.pop(Term.RISKS, None)
    formed = of_kinds(facts, events.AnonymitySetsFormed, events.DistancesSketched)
    wide = any(diameter is not None for fact in formed for diameter in fact.diameters)
    began = list(of_kinds(facts, events.RunStarted))
    chosen = all(f.num_clusters > 1 and _may_choose(f.method) for f in began)
    stored = any(fact.updates_stored for fact in began)
    used = [*of_kinds(facts, events.ComponentsUsed)]
    losses = [fact.components.get("train.loss", {}).get("options", {}) for fact in used]
    balanced = any(options.get("class_weights") == "balanced" for options in losses)
    data = [fact.components.get("data.name", {}).get("options", {}) for fact in used]
    scaled = any(options.get("standardise") == "client" for options in data)
    own_features = any(events.FEATURES in own_code(fact) for fact in used)
    return (
        *([Term.SERVER] if view == Term.SEES_MODELS else []),
        *([Term.EXPECTED_RECORDS] if _sums_of_records(merges) else []),
        *([Term.COUNTS] if unit == "record" and view == Term.SEES_UPDATES else []),
        *([Term.CLASS_COUNTS] if balanced else []),
        *([Term.CHOICES] if chosen and _choices_are_open(merges) else []),
        *([Term.OWN_SCALES] if scaled and unit == "record" else []),
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

    def at(self, noise_multiplier: float) -> PrivacyPlan:
        """Return how updates, or sums of gradients, are hidden in it."""
        return PrivacyPlan(
            unit="record" if self.noise == "record" else "client",
            noise=noise_multiplier,
            by=self.noise if self.noise in ("distributed", "local") else "central",
            masks=Masks(self.clients) if self.noise == "distributed" else None,
            rounds=self.rounds,
            sampling=self.sampling,
            delta=self.delta,
        )


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
        return multiplier_for(
            epsilon,
            *(plan.delta, plan.rounds),
            lambda z: shares(plan.at(z).hidden_by(plan.coordinates)),
        )
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
    costs = {name: epsilon_bound([view] * plan.rounds, plan.delta) for name, view in views.items()}
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
    hidden, sizes = plan.at(z), (plan.set_size,) * plan.sets
    shares = "updates", 0, 1.0, hidden.hidden_by(plan.coordinates), plan.clients
    noise: Mapping[str, events.Event] = {
        "sound": events.RepresentativesPerturbed(0, sizes, 1.0, z),
        "distributed": events.SharesPerturbed(*shares),
        "local": events.UpdatesPerturbed(1.0, z, ("",)),
        "steps": events.StepsPerturbed(z, {"": plan.steps}, {"": plan.sampling}),
    }
    on_sums = events.SumPerturbed(0, 1.0, z, plan.sampling, hidden.unit)
    assigned, merged = events.ClientsAssigned({"": 0}, "shared"), (plan.clients,)
    return [assigned, noise.get(plan.noise, on_sums), events.ModelsMerged("", merged)]
