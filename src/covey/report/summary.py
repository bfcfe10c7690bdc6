"""A run as one summary that every reader is shown, and its facts in words."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import numpy as np

from covey.base import events
from covey.base.as_json import HIDDEN, INLINE
from covey.base.built_ins import BOUND
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import History
from covey.base.names import Handle, round_number
from covey.dp.status import GuaranteeStatus, guarantee_status
from covey.leaving.deniability import DeniabilityBudget, budget
from covey.leaving.plan import at_risk
from covey.ledger.participation import participation_of
from covey.report.clients import (
    NOT_FINISHED,
    ClientSummary,
    GroupModel,
    attacks_on_models,
    client_groups,
    client_summaries,
    group_models,
    sits_in_diverged,
    strongest,
    why_unknown,
)

STABLE_AFTER = 5
"""The round after which a move is no longer part of finding one's place."""

NO_GROUPS = "the clients have no known groups"
NO_GAPS = "no gap was measured: that takes two groups or more, with test examples and classes"
NO_HOLDOUT = "no client has examples that it never trained on"
NO_SETS = "updates were not hidden in anonymity sets: no participation can be denied"
STORED = "raw updates are stored beside the anonymity sets: no participation can be denied"
PROMISE = (
    "Choosing a cluster by its risk does not lower any model's risk: it changes which model a "
    "client ends in. Whether fewer then end in one that is riskier than they accept, the "
    "violations say, beside those of FedAvg."
)


UNITS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))

FIGURES = {
    "lowest-accuracy": "the lowest accuracy of a group",
    "highest-risk": "the highest risk of a cluster",
    "over": "the clients above what they accept",
}


@dataclass(frozen=True, slots=True)
class Utility:
    """How good models are on unseen data, each client under the one that it uses.

    Attributes:
        overall: the mean over clients; None: it is not known, or models are judged by the
            other of accuracy and squared error.
        by_group: only of groups that are known.
        reported: by how many clients, each of its own; 0: it was measured here.
    """

    overall: float | None
    by_group: Mapping[str, float]
    reported: int = field(default=0, kw_only=True)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a cluster's clients accept, beside the figure that the red team has of it now.

    Attributes:
        above: clients that accept less than the figure; None: it is unknown, or they are.
        above_lower: clients that accept less than its 95% lower bound.
    """

    lowest: float | None
    middle: float | None
    above: int | None
    above_lower: int | None


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """One cluster model and its risk, as measured and as it truly is.

    Attributes:
        clients: how many use the model now.
        groups: how many of each known group.
        risk: of `measured`, where that is calibrated; None: unknown.
        true_risk: of `truth`; None: unknown.
        auc: of the attack behind `true_risk`.
        blind_auc: of a classifier that never sees the model.
        calibrated: whether `measured` is; if not, nothing counts it, and clients act on it
            only where it `steers`.
        reason: what `measured` rests on, or why there is none.
        measured: the red team's estimate that is in force.
        truth: a loss threshold at the end, on real members.
        strongest_attack: of all on this model at the end or since, the one that succeeds
            most often; None: no attack has a figure.
        exposed_risk: the true risk of everybody that ever trained this model.
        traced_risk: of those whose examples reached it by pooling alone.
        pooling: how far the model is drawn to the others' mean, from 0 to 1.
        abandoned: no client uses it.
        accepted: by the clients that use it.
    """

    cluster: int
    clients: int
    groups: Mapping[str, int]
    risk: float | None
    true_risk: float | None
    auc: float | None
    blind_auc: float | None
    calibrated: bool
    reason: str
    measured: RiskEstimate
    truth: RiskEstimate
    strongest_attack: RiskEstimate | None
    exposed_risk: Figure
    traced_risk: Figure
    pooling: float
    abandoned: bool
    accepted: Accepted = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Violations:
    """How many clients end in a model whose risk is above what they accept.

    Attributes:
        count: by point estimate, as the papers do; None: `reason` says why.
        count_lower: only where the 95% lower bound risk - 1.96 SE is above.
        count_exposed: by the highest risk of all models that a client's examples reached.
        by_group: of `count`.
        clients: their handles.
        attacks: those that were counted with, the strongest on each model.
        unknown: of how many clients it is not known.
        unknown_by_group: of `unknown`.
    """

    count: int | None = None
    count_lower: int | None = None
    count_exposed: int | None = None
    by_group: Mapping[str, int] | None = None
    clients: Sequence[Handle] | None = None
    attacks: Sequence[str] = ()
    unknown: int = 0
    unknown_by_group: Mapping[str, int] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The highest risk of all models that a client's examples reached, over clients."""

    mean: Figure
    maximum: Figure


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves between clusters after round 5, and what stays of them.

    Attributes:
        moves_after_round_5: in all, the last choice included.
        moved_clients: how many clients made them.
        most_moves_of_one_client: by the most restless.
        moved_and_exposed: clients that moved at any time away from a model riskier than the
            one that they ended in; None where one of those that moved has its examples in
            a model that diverged.
    """

    moves_after_round_5: int
    moved_clients: int
    most_moves_of_one_client: int
    moved_and_exposed: int | None


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """What a metric of the settings says of the models at the end, on unseen examples.

    Attributes:
        over: what `overall` is of: all of them together, or a mean over how many clients, each
            by how many examples it was measured on.
        lowest, highest: of a client, of a mean; None: of no client it is known.
    """

    overall: Figure
    by_group: Mapping[str, float | None]
    by_cluster: Sequence[float | None]
    over: str
    lowest: float | None
    highest: float | None


@dataclass(frozen=True, slots=True)
class Deniability:
    """How many more clients can be denied, and how likely the next one cannot.

    Attributes:
        budget: at worst, whichever clients leave, and if every client is as likely to ask as
            any other; None: `budget_reason` says why.
    """

    budget: DeniabilityBudget | None
    budget_reason: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run, with every figure and what it rests on: what every reader is shown.

    Attributes:
        rounds: how many were played.
        ended_early: why; empty: it did not.
        model_hash: SHA-256 of all final models; None: not finished.
        accuracy: of clients by the group of their data, whatever models they use.
        group_models: by group, the model that is the group's, with the accuracy of those who
            chose it: what IFCA-MIR prints. Empty before the end, and where fewer models than
            groups are there.
        diverged: clusters without a model; figures that rest on one are unknown.
        fairness: by gap; None: `fairness_reason` says why.
        metrics: those that the settings name, by what they are called.
        confusion: true by predicted classes, of all clients, and of each group and cluster.
        adjusted_rand_index: of clusters against groups, 1 the same; None: not known.
        components: by setting, those that are a user's own or have options.
        left: how many clients, by the answer that they got.
        notes: what a reader has to know.
    """

    method: str | None
    rounds: int
    finished: bool
    ended_early: str
    model_hash: str | None
    accuracy: Utility
    squared_error: Utility
    group_models: Mapping[str, GroupModel]
    clusters: Sequence[ClusterSummary]
    diverged: Sequence[events.ModelDiverged]
    violations: Violations
    exposure: Exposure
    moves: Moves = field(metadata=INLINE)
    fairness: Mapping[str, events.FairnessMeasured] | None
    fairness_reason: str
    metrics: Mapping[str, MetricSummary]
    confusion: Mapping[str, events.Table]
    adjusted_rand_index: float | None
    privacy: GuaranteeStatus = field(metadata=INLINE)
    deniability: Deniability = field(metadata=INLINE)
    components: Mapping[str, Mapping[str, Any]]
    left: Mapping[str, int]
    notes: Sequence[str]


def summary(history: History) -> Summary:
    """Return what is known of a run."""
    started, finished = history.started, history.finished
    end = finished or events.RunFinished("", None, {}, None)
    gaps = {fairness.gap: fairness for fairness in history.fairness}
    ends = list(client_summaries(history).values())
    notes = [*(started.notes if started else ()), PROMISE]
    if gone := history.left_since_end:
        notes[-1:-1] = [
            f"Accuracies, metrics, risks and gaps of the end were measured with {gone} "
            f"client{'s' if gone > 1 else ''} more, who left after it and whose answer "
            f"changed no model."
        ]
    return Summary(
        method=started.method if started else None,
        rounds=len(history.rounds),
        finished=finished is not None,
        ended_early=describe_early_end(history.ended_early),
        model_hash=end.model_hash or None,
        accuracy=reported_accuracy(history) or Utility(end.accuracy, end.accuracy_by_group),
        squared_error=Utility(end.squared_error, end.squared_error_by_group),
        group_models=group_models(ends, started.num_clusters if started else 0),
        clusters=_clusters(history),
        diverged=[divergence for _, divergence in sorted(history.diverged.items())],
        violations=_violations(history, ends),
        exposure=_exposure(history, ends),
        moves=_moves(history, ends),
        fairness=gaps or None,
        fairness_reason="" if gaps else _why_no_gaps(history),
        metrics={metric.metric: _metric(metric) for metric in history.metrics if not metric.counts},
        confusion=next((metric.counts for metric in history.metrics if metric.counts), {}),
        adjusted_rand_index=end.adjusted_rand_index,
        privacy=guarantee_status(history),
        deniability=deniability(history),
        components=history.components.components if history.components else {},
        left=Counter(leaver.answer for leaver in history.left),
        notes=notes,
    )


def reported_accuracy(history: History) -> Utility | None:
    """Return the mean of what remote clients last reported; None: none did."""
    values = [*history.reported.accuracy.values()] if history.reported else []
    return Utility(fmean(values), {}, reported=len(values)) if values else None


def _clusters(history: History) -> list[ClusterSummary]:
    """Return a line for each model, whose truth is not known before the end."""
    users, groups = history.clusters_of_clients(), client_groups(history)
    inside: list[list[Handle]] = [[] for _ in users]
    for handle, j in history.assignment.items():
        inside[j].append(handle)
    none, attacks = RiskEstimate.unknown(NOT_FINISHED), attacks_on_models(history)
    unknown = (events.ClusterAudited(j, none, none.figure, none.figure) for j in range(len(users)))
    last = {fact.cluster: fact.estimate for fact in history.measured}
    clusters: list[ClusterSummary] = []
    for audit in history.audits or (unknown if history.rounds else ()):
        j, own = audit.cluster, inside[audit.cluster]
        measured = history.in_force.get(j)
        if diverged := history.diverged.get(j):
            measured = RiskEstimate.of_diverged(diverged.reason)
        elif measured is None:
            reason = last[j].reason if j in last else "no red team looked at it"
            expired = j in last and last[j].counts
            measured = RiskEstimate.unknown("its last figure counts no more" if expired else reason)
        clusters.append(
            ClusterSummary(
                cluster=j,
                clients=users[j],
                groups=dict(sorted(Counter(groups[h] for h in own if h in groups).items())),
                risk=measured.figure.value if measured.calibrated else None,
                true_risk=audit.truth.figure.value,
                auc=audit.truth.auc,
                blind_auc=audit.blind_auc,
                calibrated=measured.calibrated,
                reason=measured.reason,
                measured=measured,
                truth=audit.truth,
                strongest_attack=strongest(attacks.get(j, ())),
                exposed_risk=audit.exposed,
                traced_risk=audit.traced,
                pooling=history.pooling[j] if history.pooling else 0.0,
                abandoned=users[j] == 0,
                accepted=_accepted(history, measured, own),
            )
        )
    return clusters


def _accepted(history: History, measured: RiskEstimate, inside: Sequence[Handle]) -> Accepted:
    taus = history.started.risk_thresholds if history.started else {}
    known = sorted(taus[handle] for handle in inside if handle in taus)
    is_known = measured.calibrated and bool(history.assignment) and len(known) == len(inside)
    return Accepted(
        lowest=known[0] if known else None,
        middle=median(known) if known else None,
        above=bisect_left(known, measured.risk) if is_known else None,
        above_lower=bisect_left(known, measured.figure.lower_bound) if is_known else None,
    )


def violations(history: History, by: str | None = None) -> Violations:
    """Count the clients whose final model's risk is above what they accept.

    The risk is of the strongest attack that was run on the model, or of the attack `by`
    alone, which makes runs comparable.

    Where clients keep what they accept to themselves, those are counted that report: each
    by one bit about the figure that it has, and not about the truth.

    As soon as one client uses a model that diverged, nothing is counted, and `reason` says
    so; the counts over exposures already where its examples ever reached one.
    """
    return _violations(history, list(client_summaries(history, by=by).values()))


def _violations(history: History, ends: Sequence[ClientSummary]) -> Violations:
    groups = client_groups(history)

    def by_group(handles: Iterable[Handle]) -> Mapping[str, int]:
        return Counter(groups[handle] for handle in handles if handle in groups)

    if sits := sits_in_diverged(history):
        everybody = history.assignment.keys()
        return Violations(
            unknown=len(everybody),
            unknown_by_group=by_group(everybody),
            reason=why_unknown(history, sits),
        )
    if history.reported is not None:
        reports = history.reported.above
        over = [handle for handle, is_above in reports.items() if is_above]
        silent = history.assignment.keys() - reports.keys()
        return Violations(
            count=len(over) if reports else None,
            by_group=by_group(over),
            clients=over,
            unknown=len(silent),
            unknown_by_group=by_group(silent),
            reason="" if reports else "no client reports whether a risk is above its own",
        )
    known = [
        (end, end.risk, end.threshold)
        for end in ends
        if end.risk is not None and end.threshold is not None
    ]
    above = [client for client, risk, tau in known if risk.risk > tau]
    unknown = {client.handle for client in ends} - {client.handle for client, _, _ in known}
    exposed = [float(end.exposure) > end.threshold for end in ends if end.threshold is not None]
    reached = _reached(history, ends)
    return Violations(
        count=len(above) if known else None,
        count_lower=sum(risk.figure.lower_bound > tau for _, risk, tau in known) if known else None,
        count_exposed=sum(exposed) if known and not reached else None,
        by_group=by_group(client.handle for client in above),
        clients=[client.handle for client in above],
        attacks=sorted({risk.source for _, risk, _ in known}),
        unknown=len(unknown),
        unknown_by_group=by_group(unknown),
        reason=why_unknown(history, reached) if reached or not known else "",
    )


def _reached(history: History, ends: Iterable[ClientSummary]) -> Sequence[int]:
    """Return the diverged clusters, if some client's examples ever reached one."""
    gone = history.diverged.keys()
    return () if all(gone.isdisjoint(end.reached) for end in ends) else list(gone)


def _exposure(history: History, ends: Sequence[ClientSummary]) -> Exposure:
    known = [end.exposure for end in ends if end.exposure.value is not None]
    reached = _reached(history, ends)
    if reached or not known:
        unknown = Figure.unknown(why_unknown(history, reached))
        return Exposure(unknown, unknown)
    return Exposure(Figure(float(np.mean([*map(float, known)]))), max(known, key=float))


def _moves(history: History, ends: Sequence[ClientSummary]) -> Moves:
    late = [sum(t > STABLE_AFTER for t in rounds) for rounds in history.moves.values()]
    movers = [end for end in ends if end.handle in history.moves]
    exposed = [mover for mover in movers if mover.risk and float(mover.exposure) > mover.risk.risk]
    return Moves(
        moves_after_round_5=sum(late),
        moved_clients=sum(count > 0 for count in late),
        most_moves_of_one_client=max(late, default=0),
        moved_and_exposed=None if _reached(history, movers) else len(exposed),
    )


def _why_no_gaps(history: History) -> str:
    if sits := sits_in_diverged(history):
        return why_unknown(history, sits)
    if history.finished is None:
        return NOT_FINISHED
    return NO_GAPS if client_groups(history) else NO_GROUPS


def _metric(measured: events.MetricMeasured) -> MetricSummary:
    values = [value for value in measured.clients.values() if value is not None]
    reason = ""
    if measured.value is None:
        known = measured.clients or any(measured.by_cluster)
        reason = "no client's is known, or some model's is not finite" if known else NO_HOLDOUT
    over = f"the mean over {len(values)} of {len(measured.clients)} clients"
    return MetricSummary(
        overall=Figure(measured.value, reason=reason),
        by_group=measured.by_group,
        by_cluster=measured.by_cluster,
        over="all unseen examples together" if measured.pooled else over,
        lowest=min(values, default=None),
        highest=max(values, default=None),
    )


def deniability(history: History) -> Deniability:
    """Return how many more clients can be denied, or why none can."""
    started = history.started
    x = started.deniability_threshold if started else None
    if started is None or x is None:
        return Deniability(None, NO_SETS)
    if started.updates_stored:
        return Deniability(None, STORED)
    left = participation_of([*history.hidden, *((None, leaver) for leaver in history.left)])
    return Deniability(
        budget(
            remaining_sizes=(hidden.members_left(frozenset(left.left)) for hidden in left.sets),
            x=x,
            at_risk=len(at_risk(left, x)),
            clients=len(history.clients),
        )
    )


def age(seconds: float | None) -> str:
    """Return how long ago something was, in its largest unit."""
    if seconds is None:
        return "unknown"
    for length, unit in UNITS:
        if (count := int(seconds // length)) >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def describe_violations(violations: Violations) -> str:
    """Return the count in a line, with the attacks, and of how many clients it is unknown."""
    if violations.count is None:
        of = f" for {violations.unknown} clients" if violations.unknown else ""
        return f"violations: unknown{of}: {violations.reason}"
    clients = f"{violations.count} client{'' if violations.count == 1 else 's'}"
    unknown = f", {violations.unknown} unknown" if violations.unknown else ""
    lower = violations.count_lower
    surely = "" if lower is None else f" ({lower} by the 95% lower bound)"
    return f"violations: {clients} above the accepted risk{unknown}{by_attacks(violations)}{surely}"


def by_attacks(violations: Violations) -> str:
    """Name the attacks that violations are counted with; "" where clients only report."""
    if list(violations.attacks) == [BOUND]:
        return ", by a bound on every attack"
    named = " and ".join(violations.attacks)
    return f", by the strongest attack: {named}" if named else ""


def spread(row: Mapping[str, Any]) -> Figure:
    """Return a mean over seeds with its standard deviation, as `means` gives them."""
    return Figure(row["mean"], row["deviation"], reason=row["reason"])


def describe_early_end(ended: events.RunEndedEarly | None) -> str:
    """Say that a run ended early, and why; "" where it did not. No full stop."""
    if ended is None:
        return ""
    figure = FIGURES.get(ended.figure, ended.figure)
    why = {
        "figure": f"no improvement of {figure} for {ended.patience} rounds",
        "target": f"an accuracy of {ended.accuracy:.3f} reaches stopping.target = {ended.target:g}",
        "budgets": f"budgets are spent, and {ended.clients} clients are left",
        "participants": f"nobody took part in {ended.patience} rounds in a row",
    }
    return f"ended early after round {ended.rounds} of {ended.planned}: {why[ended.reason]}"


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth knowing of how the rounds went.

    Attributes:
        event: the last of those that are alike.
        rounds: in which these were, rising; what is recorded of the end is of the last.
        count: how many there were.
    """

    event: events.Event
    rounds: Sequence[int]
    count: int

    @property
    def kind(self) -> str:
        """The name of the event's class."""
        return type(self.event).__name__

    @property
    def when(self) -> str:
        """The rounds as a reader counts them, those in a row as one span."""
        spans: list[tuple[int, int]] = []
        for t in map(round_number, self.rounds):
            in_a_row = bool(spans) and spans[-1][1] == t - 1
            spans[-1:] = [(spans[-1][0], t)] if in_a_row else [*spans[-1:], (t, t)]
        texts = [f"{a} to {b}" if b > a else f"{a}" for a, b in spans]
        return f"Round{'s' if len(self.rounds) > 1 else ''} {', '.join(texts)}"


def happenings(history: History) -> list[Happening]:
    """Return what is worth knowing of how the rounds went, what is alike together."""
    last = max(0, history.started.rounds - 1) if history.started else None
    alike: dict[tuple[int, Any], list[tuple[int, events.Event]]] = {}
    for t, event in history.notable:
        match event:
            case events.ModelDiverged(cluster=j):
                key = (0, j)
            case events.AnswerRefused():
                key = (1, 0)
            case events.RiskUnknown(clusters=clusters):
                key = (3, clusters)
            case _:
                key = (2, len(alike))
        alike.setdefault(key, []).append((t if last is None else min(t, last), event))
    return [
        Happening(same[-1][1], sorted({t for t, _ in same}), len(same))
        for _, same in sorted(alike.items(), key=lambda pair: pair[0])
    ]
