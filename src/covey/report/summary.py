"""A run as one JSON object, and figures and facts in words."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from covey.base import events
from covey.base.history import History
from covey.base.names import round_number
from covey.base.risk import DIVERGED
from covey.dp.status import guarantee_status
from covey.report.attacks import (
    NOT_FINISHED,
    attacks_on,
    diverged_models,
    final_exposure,
    final_risk,
    reaches_diverged,
    sits_in_diverged,
    strongest,
    why_unknown,
)
from covey.unlearning.participation import budget, participation_of
from covey.unlearning.plan import at_risk

SETTLED_AFTER = 5
"""The round after which a move is no longer part of finding one's place."""

NO_GROUPS = "the clients have no known groups"
NO_GAPS = "no gap was measured: that takes two groups or more, with test examples and classes"
NO_HOLDOUT = "no client has examples that it never trained on"
NO_SETS = "updates were not hidden in anonymity sets: no participation can be denied"
STORED = "raw updates are stored beside the anonymity sets: no participation can be denied"
PROMISE = (
    "Choosing a cluster by its risk lowers the risk of no model: it changes which model a "
    "client ends in. Whether fewer then end in one that is riskier than they accept, the "
    "violations say, beside those of FedAvg."
)


def summary(history: History) -> dict[str, Any]:
    """Return what `covey run --json` prints about the run itself.

    A figure that is not known is None and comes with a reason.
    """
    started, finished = history.started, history.finished
    return {
        "method": started.method if started else None,
        "rounds": len(history.rounds),
        "finished": finished is not None,
        "ended_early": early_end_told(history.ended_early),
        "model_hash": finished.model_hash if finished else None,
        "accuracy": {
            "overall": finished.accuracy if finished else None,
            "by_group": dict(finished.accuracy_by_group) if finished else {},
        },
        "squared_error": {
            "overall": finished.squared_error if finished else None,
            "by_group": dict(finished.squared_error_by_group) if finished else {},
        },
        "clusters": [_cluster(history, audit) for audit in history.audits],
        "diverged": diverged_models(history),
        "violations": violations(history),
        "exposure": _exposure(history),
        **moves(history),
        "prices": list(history.prices[-1][1].prices) if history.prices else None,
        **_fairness(history),
        "metrics": {each.metric: _metric(each) for each in history.metrics},
        "adjusted_rand_index": finished.adjusted_rand_index if finished else None,
        **guarantee_of(history),
        **budget_of(history),
        # those that are a user's own or have options; "" for the source of covey's own
        "components": {k: dict(v) for k, v in history.components.components.items()}
        if history.components
        else {},
        "left": dict(Counter(each.answer for each in history.left)),
        "notes": _notes(history),
    }


def _notes(history: History) -> list[str]:
    notes = list(history.started.notes) if history.started else []
    if gone := history.left_since_end:
        notes.append(
            f"Accuracies, metrics, risks and gaps of the end were measured with {gone} "
            f"client{'s' if gone > 1 else ''} more, who left after it and whose answer "
            f"changed no model."
        )
    return [*notes, PROMISE]


def _cluster(history: History, audit: events.ClusterAudited) -> dict[str, Any]:
    j = audit.cluster
    clients, groups = history.clusters_of_clients()[j], client_groups(history)
    inside = Counter(groups[h] for h, own in history.assignment.items() if own == j and h in groups)
    attack = strongest(attacks_on(history, j))
    return {
        "cluster": j,
        "clients": clients,
        "groups": dict(sorted(inside.items())),
        **_measured_risk(history, j),
        "true_risk": audit.true_risk,
        "true_risk_standard_error": audit.standard_error,
        "true_risk_reason": audit.reason,
        "true_risk_tpr_at_1": audit.tpr_at_1,
        "true_risk_worst_client": audit.worst_client,
        "strongest_attack": attack._asdict() if attack else None,
        "auc": audit.auc,
        "blind_auc": audit.blind_auc,
        "exposed_risk": audit.exposed_risk,
        "traced_risk": audit.traced_risk,
        "pooling": history.pooling[j] if history.pooling else 0.0,
        "abandoned": clients == 0,
    }


def _measured_risk(history: History, cluster: int) -> dict[str, Any]:
    """Return the red team's figure of a cluster that is in force, or why there is none."""
    figure = history.figures.get(cluster)
    last = next((m for m in reversed(history.measured) if m.cluster == cluster), None)
    reason = last.reason if last else "no red team looked at it"
    if figure is None and last and last.calibrated:
        reason = "its last figure counts no more"
    if diverged := history.diverged.get(cluster):
        reason = f"{DIVERGED}: {diverged.reason}"
    return {
        "risk": figure.risk if figure else None,
        "risk_standard_error": figure.standard_error if figure else None,
        "risk_round": figure.round_index if figure else None,
        "source": figure.source if figure else None,
        "calibrated": figure is not None,
        "reason": reason,
    }


def client_groups(history: History) -> dict[str, str]:
    """Return the group's name of every client whose group is known."""
    if history.started is None:
        return {}
    names, groups = history.started.group_names, history.started.groups
    return {handle: names[group] for handle, group in groups.items() if group is not None}


def violations(history: History, by: str | None = None) -> dict[str, Any]:
    """Count the clients whose final model's risk is above what they accept.

    The risk is of the strongest attack that was run on the model, or of the attack `by`
    alone, which makes runs comparable; `attacks` names those that were counted with.

    `count` by point estimate, as the papers do; `count_lower` only where the 95% lower
    bound risk - 1.96 SE is above; by group; and the same for exposure, the highest risk
    of all models that a client ever trained.

    Where clients keep what they accept to themselves, `count` is of those that tell: each
    by one bit about the figure that it knows, and not about the truth.

    As soon as one client uses a model that diverged, nothing is counted, and `reason` says
    so; the counts over exposures already where its examples ever reached one.
    """
    counts: dict[str, Any] = {
        **dict.fromkeys(("count", "count_lower", "count_exposed", "by_group", "clients")),
        "attacks": [],
        "unknown": len(history.assignment),
        "reason": "",
    }
    if sits := sits_in_diverged(history):
        return counts | {"reason": why_unknown(history, sits)}
    if history.reported is not None:
        reports = history.reported.above
        over = [handle for handle, is_above in reports.items() if is_above]
        return counts | {
            "count": len(over) if reports else None,
            "by_group": {},
            "clients": over,
            "unknown": len(history.assignment.keys() - reports.keys()),
            "reason": "" if reports else "no client tells whether a risk is above its own",
        }
    thresholds = history.started.risk_thresholds if history.started else {}
    ends = {each.handle: final_risk(history, each, by) for each in history.exposures}
    known = {handle: end for handle, end in ends.items() if end is not None}
    above = [h for h, end in known.items() if end.risk > thresholds[h]]
    lower = [h for h, end in known.items() if end.lower_bound() > thresholds[h]]
    exposures = [(each.handle, final_exposure(history, each, by)) for each in history.exposures]
    exposed = [h for h, risk in exposures if risk is not None and risk > thresholds[h]]
    groups, reached = client_groups(history), _reached(history)
    return {
        "count": len(above) if known else None,
        "count_lower": len(lower) if known else None,
        "count_exposed": len(exposed) if known and not reached else None,
        "by_group": dict(Counter(groups[h] for h in above if h in groups)),
        "clients": above,
        "attacks": sorted({each.attack for each in known.values()}),
        "unknown": len(ends) - len(known),
        "reason": why_unknown(history, reached) if reached or not known else "",
    }


def _reached(history: History) -> Sequence[int]:
    """Return the diverged clusters, if some client's examples ever reached one."""
    exposed = any(reaches_diverged(history, each) for each in history.exposures)
    return list(history.diverged) if exposed else ()


def _exposure(history: History) -> dict[str, float | str | None]:
    exposures = (final_exposure(history, each) for each in history.exposures)
    known, reached = [each for each in exposures if each is not None], _reached(history)
    if reached or not known:
        return {"mean": None, "maximum": None, "reason": why_unknown(history, reached)}
    return {"mean": float(np.mean(known)), "maximum": max(known), "reason": ""}


def moves(history: History) -> dict[str, int | None]:
    """Count the moves between clusters after round 5, and what stays of them.

    `moves_after_round_5` in all, the last choice included; `moved_clients` made them,
    the most restless of them `most_moves_of_one_client`. `moved_and_exposed` are clients
    that moved at any time away from a model riskier than the one that they ended in; None
    where one of those that moved has its examples in a model that diverged.
    """
    late = [sum(t > SETTLED_AFTER for t in rounds) for rounds in history.moves.values()]
    movers = [each for each in history.exposures if each.handle in history.moves]
    risks = [(final_risk(history, each), final_exposure(history, each)) for each in movers]
    exposed = [end for end, most in risks if end and most is not None and most > end.risk]
    unknown = any(reaches_diverged(history, each) for each in movers)
    return {
        "moves_after_round_5": sum(late),
        "moved_clients": sum(count > 0 for count in late),
        "most_moves_of_one_client": max(late, default=0),
        "moved_and_exposed": None if unknown else len(exposed),
    }


def _fairness(history: History) -> dict[str, Any]:
    """Return each gap between groups, or why there is none."""
    keys = ("mean", "maximum", "p_value", "low", "high")
    gaps = {each.gap: {key: getattr(each, key) for key in keys} for each in history.fairness}
    if gaps:
        reason = ""
    elif sits := sits_in_diverged(history):
        reason = why_unknown(history, sits)
    elif history.finished is None:
        reason = NOT_FINISHED
    else:
        reason = NO_GAPS if client_groups(history) else NO_GROUPS
    return {"fairness": gaps or None, "fairness_reason": reason}


def _metric(measured: events.MetricMeasured) -> dict[str, Any]:
    """Return what a metric says of the clients together, or why that is unknown."""
    values = [value for value in measured.clients.values() if value is not None]
    reason = ""
    if measured.value is None:
        reason = "it is not finite for some client" if measured.clients else NO_HOLDOUT
    return {
        "overall": measured.value,
        "by_group": dict(measured.by_group),
        "lowest": min(values, default=None),
        "highest": max(values, default=None),
        "reason": reason,
    }


def guarantee_of(history: History) -> dict[str, Any]:
    """Return the strongest guarantee that holds, and all that noise was added for."""
    status = guarantee_status(history)
    return {
        "guarantee": asdict(status.holds) if status.holds else None,
        "guarantee_reason": status.reason,
        "guarantees": [asdict(each) for each in status.guarantees],
    }


def budget_of(history: History) -> dict[str, Any]:
    """Return how many more clients can be denied, and how likely the next one cannot.

    `denials_left` at worst, whichever clients ask; `next_forces_rollback` if every client
    is as likely to ask as any other.
    """
    started = history.started
    x = started.deniability_threshold if started else None
    if started is None or x is None:
        return {"budget": None, "budget_reason": NO_SETS}
    if started.updates_stored:
        return {"budget": None, "budget_reason": STORED}
    left = participation_of([*history.hidden, *((None, each) for each in history.left)])
    counted = budget(
        remaining_sizes=(each.counted(each.members.difference(left.left)) for each in left.sets),
        x=x,
        at_risk=len(at_risk(left, x)),
        clients=len(history.clients),
    )
    return {
        "budget": {"denials_left": counted.worst_case, "next_forces_rollback": counted.next_forces},
        "budget_reason": "",
    }


def number(value: float | None, reason: str = "") -> str:
    """Return three decimals, or that the number is unknown and why."""
    if value is None:
        return f"unknown: {reason}" if reason else "unknown"
    return f"{value:.3f}"


def estimate(value: float | None, standard_error: float | None, reason: str = "") -> str:
    """Return a measured number with its standard error, or why there is none."""
    if value is None:
        return number(value, reason)
    if standard_error is None:
        return f"{value:.3f} (standard error unknown)"
    return f"{value:.3f} ± {standard_error:.3f}"


def interval(estimate: Mapping[str, Any]) -> str:
    """Return an estimate with its interval; "unknown" where there is none."""
    if estimate["value"] is None:
        return "unknown"
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


UNITS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def age(seconds: float | None) -> str:
    """Return how long ago something was, in its largest unit."""
    if seconds is None:
        return "unknown"
    for length, unit in UNITS:
        if (count := int(seconds // length)) >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def size(count: int) -> str:
    """Return a number of bytes as a person reads it."""
    value, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 1000 and unit != "TB":
        value, unit = value / 1000, next(units)
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def by_attacks(violations: Mapping[str, Any]) -> str:
    """Name the attacks that violations are counted with; "" where clients only tell."""
    named = " and ".join(violations["attacks"])
    return f", by the strongest attack: {named}" if named else ""


def spread(row: Mapping[str, float | str | None] | None) -> str:
    """Return a mean over seeds with its standard deviation, as `means` gives them."""
    if row is None:
        return "not compared"
    mean, deviation = row["mean"], row["deviation"]
    if not isinstance(mean, float):
        return f"unknown: {row['reason']}"
    return f"{mean:.3f} ± {deviation:.3f}" if isinstance(deviation, float) else f"{mean:.3f}"


FIGURES = {
    "lowest-accuracy": "the lowest accuracy of a group",
    "highest-risk": "the highest risk of a cluster",
    "over": "the clients above what they accept",
}


def early_end_told(ended: events.RunEndedEarly | None) -> str:
    """Say that a run ended early, and why; "" where it did not. No full stop."""
    if ended is None:
        return ""
    figure = FIGURES.get(ended.figure, ended.figure)
    return (
        f"ended early after round {ended.rounds} of {ended.planned}: no improvement of "
        f"{figure} for {ended.patience} rounds"
    )


GROUPS_SHOW = 2.0
"""Gap from which on a split is more than k-means finds in one cloud."""


def happenings(history: History) -> list[str]:
    """Return what is worth knowing of how the rounds went, one sentence each."""
    # what is recorded of the end is said of the last round
    last = max(0, history.started.rounds - 1) if history.started else None
    diverged: dict[int, dict[int, str]] = {}
    blind: dict[tuple[int, ...], list[int]] = {}
    refused: list[int] = []
    sentences: list[str] = []
    for noted, event in history.notable:
        t = noted if last is None else min(noted, last)
        match event:
            case events.ModelDiverged():
                diverged.setdefault(event.cluster, {})[t] = event.reason
            case events.AnswerRefused():
                refused.append(t)
            case events.RiskUnknown():
                blind.setdefault(event.clusters, []).append(t)
            case _:
                sentences.append(_sentence(event, f"Round {round_number(t)}"))
    many = "answers were" if len(refused) > 1 else "answer was"
    return [
        *(
            f"{_rounds(reasons)}: the model of cluster {j} diverged; in the last of these, "
            f"{list(reasons.values())[-1]}."
            for j, reasons in sorted(diverged.items())
        ),
        *([f"{_rounds(set(refused))}: {len(refused)} {many} refused."] if refused else []),
        *filter(None, sentences),
        *(
            f"{_rounds(rounds)}: clients chose while {_clusters(clusters)} had no risk "
            f"figure, or an expired one."
            for clusters, rounds in blind.items()
        ),
    ]


def _sentence(event: events.Event, at: str) -> str:
    match event:
        case events.ClustersCollapsed(cluster):
            said = (
                f"collapse. Every client sits in cluster {cluster}; there is nothing "
                f"personalised left."
            )
        case events.ClusterWaited(cluster, clients, least):
            few = (
                f"fewer than the {least} that its aggregation needs"
                if clients < least
                else "of fewer organisations than aggregation.min_organisations asks for"
            )
            said = f"cluster {cluster} waited. Its {clients} clients are {few}."
        case events.MovesWaited():
            said = (
                f"{len(event.clients)} clients wait, as with fewer than {event.min_cohort} who "
                f"move alike their sums would stand out between two rounds."
            )
        case events.NewcomersWaited():
            said = (
                f"{event.newcomers} clients from elsewhere chose cluster {event.cluster}, "
                f"beside {event.founders} of its own. {event.waiting} of them sat out "
                f"(method.max_newcomers)."
            )
        case events.SumGivenUp(clients, reason):
            said = (
                f"the sums of {len(clients)} clients came to nothing ({reason}), and are asked "
                f"for again."
            )
        case events.ClusterAbandoned(cluster):
            said = (
                f"cluster {cluster} was abandoned by its last client. It is frozen, and offered "
                f"no more."
            )
        case events.GroupsSought():
            gaps = ", ".join(f"{name} {gap:.1f}" for name, gap in event.gaps.items())
            clear = event.gaps.get(event.chosen, 0.0) >= GROUPS_SHOW
            said = (
                f"the server split the clients by their {event.chosen} (gap statistic: {gaps}; "
                f"above about {GROUPS_SHOW:g} there are groups): the clients "
                f"{'fall into groups' if clear else 'hardly show groups'}. Beyond its update "
                f"each client sent: {event.sent or 'nothing'}."
            )
        case _:
            return ""
    return f"{at}: {said}"


def _clusters(clusters: Sequence[int]) -> str:
    if len(clusters) > 8:
        return f"{len(clusters)} clusters"
    return f"cluster{'s' if len(clusters) > 1 else ''} {', '.join(map(str, clusters))}"


def _rounds(rounds: Iterable[int]) -> str:
    """Name rounds as a reader counts them, those in a row as one span."""
    spans: list[tuple[int, int]] = []
    numbers = sorted(map(round_number, rounds))
    for t in numbers:
        in_a_row = bool(spans) and spans[-1][1] == t - 1
        spans[-1:] = [(spans[-1][0], t)] if in_a_row else [*spans[-1:], (t, t)]
    texts = [f"{a} to {b}" if b > a else f"{a}" for a, b in spans]
    return f"Round{'s' if len(numbers) > 1 else ''} {', '.join(texts)}"
