"""A finished run as one JSON object, and figures and facts in words."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from covey.base.events import (
    AnswerRefused,
    ClusterAbandoned,
    ClusterAudited,
    ClustersCollapsed,
    ClusterWaited,
    Event,
    GroupsSought,
    ModelDiverged,
    MovesWaited,
    NewcomersWaited,
    RiskUnknown,
    RunEndedEarly,
    SumGivenUp,
)
from covey.base.history import History
from covey.base.names import round_number
from covey.base.risk import DIVERGED
from covey.dp.current_guarantee import guarantee_status
from covey.report.attacks import (
    NOT_FINISHED,
    Attacked,
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

FIGURES = {
    "lowest-accuracy": "the lowest accuracy of a group",
    "highest-risk": "the highest risk of a cluster",
    "over": "the clients above what they accept",
}

GROUPS_SHOW = 2.0
"""Gap from which on a split is more than k-means finds in one cloud."""


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


def early_end_told(ended: RunEndedEarly | None) -> str:
    """Say that a run ended early, and why; "" where it did not. No full stop."""
    if ended is None:
        return ""
    figure = FIGURES.get(ended.figure, ended.figure)
    return (
        f"ended early after round {ended.rounds} of {ended.planned}: no improvement of "
        f"{figure} for {ended.patience} rounds"
    )


def happenings(history: History) -> list[str]:
    """Return what is worth knowing of how the rounds went, one sentence each."""
    if history.started is not None:  # what is told of the end is told of the last round
        last = max(0, history.started.rounds - 1)
        notable = [(min(t, last), event) for t, event in history.notable]
        history = replace(history, notable=notable)
    sentences = [
        sentence
        for round_index, event in history.notable
        for sentence in _sentences(round_index, event)
    ]
    blind: dict[tuple[int, ...], list[int]] = {}
    for round_index, event in history.notable:
        if isinstance(event, RiskUnknown):
            blind.setdefault(event.clusters, []).append(round_index)
    return [*_diverged(history), *sentences] + [
        f"{_rounds(rounds)}: clients chose while {_clusters(clusters)} had no risk "
        f"figure, or an expired one."
        for clusters, rounds in blind.items()
    ]


def _diverged(history: History) -> Iterator[str]:
    """Say which models diverged in which rounds, and how many answers were refused."""
    rounds: dict[int, dict[int, str]] = {}
    refused: list[int] = []
    for t, event in history.notable:
        if isinstance(event, ModelDiverged):
            rounds.setdefault(event.cluster, {})[t] = event.reason
        elif isinstance(event, AnswerRefused):
            refused.append(t)
    for cluster, reasons in sorted(rounds.items()):
        latest = list(reasons.values())[-1]
        yield (
            f"{_rounds(list(reasons))}: the model of cluster {cluster} diverged; in the "
            f"last of these, {latest}."
        )
    if refused:
        many = "answers were" if len(refused) > 1 else "answer was"
        yield f"{_rounds(sorted(set(refused)))}: {len(refused)} {many} refused."


def _sentences(round_index: int, event: Event) -> Iterator[str]:
    number = round_number(round_index)
    match event:
        case ClustersCollapsed(cluster):
            yield (
                f"Round {number}: collapse. Every client sits in cluster {cluster}; "
                f"there is nothing personalised left."
            )
        case ClusterWaited(cluster, clients, least) if clients >= least:
            yield (
                f"Round {number}: cluster {cluster} waited. Its {clients} clients are "
                f"of fewer organisations than merge.min_organisations asks for."
            )
        case ClusterWaited(cluster, clients, least):
            yield (
                f"Round {number}: cluster {cluster} waited. Its {clients} clients are "
                f"fewer than the {least} that its aggregation needs."
            )
        case MovesWaited() | NewcomersWaited():
            yield _movers(number, event)
        case SumGivenUp(clients, reason):
            yield (
                f"Round {number}: the sums of {len(clients)} clients came to nothing "
                f"({reason}), and are asked for again."
            )
        case ClusterAbandoned(cluster):
            yield (
                f"Round {number}: cluster {cluster} was abandoned by its last "
                f"client. It is frozen, and offered no more."
            )
        case GroupsSought():
            yield _sought(number, event)
        case _:
            return


def _movers(number: int, event: MovesWaited | NewcomersWaited) -> str:
    if isinstance(event, MovesWaited):
        return (
            f"Round {number}: {len(event.clients)} clients wait, as with fewer "
            f"than {event.min_cohort} who move alike their sums would stand out between "
            f"two rounds."
        )
    return (
        f"Round {number}: {event.newcomers} clients from elsewhere chose cluster "
        f"{event.cluster}, beside {event.founders} of its own. {event.waiting} of them sat "
        f"out (method.max_newcomers)."
    )


def _sought(number: int, event: GroupsSought) -> str:
    gaps = ", ".join(f"{name} {gap:.1f}" for name, gap in event.gaps.items())
    clear = event.gaps.get(event.chosen, 0.0) >= GROUPS_SHOW
    verdict = "the clients fall into groups" if clear else "the clients hardly show groups"
    return (
        f"Round {number}: the server split the clients by their {event.chosen} "
        f"(gap statistic: {gaps}; above about {GROUPS_SHOW:g} there are groups): "
        f"{verdict}. Beyond its update each client sent: {event.sent or 'nothing'}."
    )


def _clusters(clusters: Sequence[int]) -> str:
    if len(clusters) > 8:
        return f"{len(clusters)} clusters"
    names = ", ".join(str(j) for j in clusters)
    return f"cluster{'s' if len(clusters) > 1 else ''} {names}"


def _rounds(rounds: Sequence[int]) -> str:
    numbers = list(map(round_number, rounds))
    spans = [f"{a} to {b}" if b > a else f"{a}" for a, b in _spans(numbers)]
    return f"Round{'s' if len(rounds) > 1 else ''} {', '.join(spans)}"


def _spans(rounds: Iterable[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for t in rounds:
        if spans and spans[-1][1] == t - 1:
            spans[-1] = (spans[-1][0], t)
        else:
            spans.append((t, t))
    return spans


SETTLED_AFTER = 5
"""The round after which a move is no longer part of finding one's place."""

NO_GROUPS = "the clients have no known groups"
NO_GAPS = "no gap was measured: that takes two groups or more, with test examples and classes"
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
        "fairness": fairness_gaps(history),
        "fairness_reason": fairness_reason(history),
        "adjusted_rand_index": finished.adjusted_rand_index if finished else None,
        **guarantee_of(history),
        **budget_of(history),
        "components": components(history),
        "left": dict(Counter(each.answer for each in history.left)),
        "notes": [*(started.notes if started else ()), *since_the_end(history), PROMISE],
    }


def since_the_end(history: History) -> list[str]:
    """Say which figures were measured with clients that have left since."""
    gone = history.left_since_end
    if not gone:
        return []
    return [
        f"Accuracies, risks and gaps of the end were measured with "
        f"{gone} client{'s' if gone > 1 else ''} more, who left after it and whose answer "
        f"changed no model."
    ]


def components(history: History) -> dict[str, Any]:
    """Return the components that are a user's own or have options, by their setting.

    Each with name, options, and the SHA-256 of its source ("": covey's own, or
    unknown).
    """
    used = history.components
    return {} if used is None else {key: dict(c) for key, c in used.components.items()}


def guarantee_of(history: History) -> dict[str, Any]:
    """Return the strongest guarantee that holds, and all that noise was added for."""
    found = guarantee_status(history)
    return {
        "guarantee": asdict(found.holds) if found.holds else None,
        "guarantee_reason": found.reason,
        "guarantees": [asdict(each) for each in found.guarantees],
    }


def budget_of(history: History) -> dict[str, Any]:
    """Return how many more clients can be denied, and how likely the next one cannot.

    `denials_left` at worst, whoever asks; `next_forces_rollback` if anybody is as likely
    to ask as anybody else.
    """
    started = history.started
    x = started.deniability_threshold if started else None
    if started is None or x is None:
        return {"budget": None, "budget_reason": NO_SETS}
    if started.updates_stored:
        return {"budget": None, "budget_reason": STORED}
    facts = [(t, each) for t, each in history.hidden]
    found = participation_of([*facts, *((None, each) for each in history.left)])
    counted = budget(
        remaining_sizes=(each.counted(each.members.difference(found.left)) for each in found.sets),
        x=x,
        at_risk=len(at_risk(found, x)),
        clients=len(history.clients),
    )
    return {
        "budget": {"denials_left": counted.worst_case, "next_forces_rollback": counted.next_forces},
        "budget_reason": "",
    }


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
    if sits := sits_in_diverged(history):
        return _unknown_violations(history, why_unknown(history, sits))
    if history.reported is not None:
        return _told_violations(history, history.reported.above)
    thresholds = history.started.risk_thresholds if history.started else {}
    groups = client_groups(history)

    def above(risks: Mapping[str, float | None]) -> list[str]:
        return [h for h, risk in risks.items() if risk is not None and risk > thresholds[h]]

    ends = {each.handle: final_risk(history, each, by) for each in history.exposures}
    known = {handle: each for handle, each in ends.items() if each is not None}
    now = above({handle: each.risk for handle, each in known.items()})
    lower = above({handle: each.lower_bound() for handle, each in known.items()})
    exposed = above({each.handle: final_exposure(history, each, by) for each in history.exposures})
    reached = _reached(history)
    return {
        "count": len(now) if known else None,
        "count_lower": len(lower) if known else None,
        "count_exposed": len(exposed) if known and not reached else None,
        "by_group": dict(Counter(groups[h] for h in now if h in groups)),
        "clients": now,
        "attacks": sorted({each.attack for each in known.values()}),
        "unknown": len(history.exposures) - len(known),
        "reason": why_unknown(history, reached) if reached or not known else "",
    }


def _unknown_violations(history: History, reason: str) -> dict[str, Any]:
    return {
        "count": None,
        "count_lower": None,
        "count_exposed": None,
        "by_group": None,
        "clients": None,
        "attacks": [],
        "unknown": len(history.assignment),
        "reason": reason,
    }


def _told_violations(history: History, above: Mapping[str, bool]) -> dict[str, Any]:
    over = [handle for handle, is_above in above.items() if is_above]
    return {
        "count": len(over) if above else None,
        "count_lower": None,
        "count_exposed": None,
        "by_group": {},
        "clients": over,
        "attacks": [],
        "unknown": len(history.assignment.keys() - above.keys()),
        "reason": "" if above else "no client tells whether a risk is above its own",
    }


def _reached(history: History) -> Collection[int]:
    """Return the diverged clusters that some client's examples ever reached."""
    exposed = any(reaches_diverged(history, each) for each in history.exposures)
    return history.diverged if exposed else ()


def moves(history: History) -> dict[str, int | None]:
    """Count the moves between clusters after round 5, and what stays of them.

    `moves_after_round_5` in all, the last choice included; `moved_clients` made them,
    the most restless of them `most_moves_of_one_client`. `moved_and_exposed` are clients
    that moved at any time away from a model riskier than the one that they ended in; None
    where one of those that moved has its examples in a model that diverged.
    """
    late = [sum(t > SETTLED_AFTER for t in rounds) for rounds in history.moves.values()]
    exposed = [
        each.handle
        for each in history.exposures
        if each.handle in history.moves
        and (risk := final_risk(history, each)) is not None
        and (exposure := final_exposure(history, each)) is not None
        and exposure > risk.risk
    ]
    movers = (each for each in history.exposures if each.handle in history.moves)
    unknown = any(reaches_diverged(history, each) for each in movers)
    return {
        "moves_after_round_5": sum(late),
        "moved_clients": sum(count > 0 for count in late),
        "most_moves_of_one_client": max(late, default=0),
        "moved_and_exposed": None if unknown else len(exposed),
    }


def fairness_gaps(history: History) -> dict[str, Any] | None:
    """Return each gap between groups: its mean, with p-value and interval, and maximum."""
    if not history.fairness:
        return None
    return {
        each.gap: {
            "mean": each.mean,
            "maximum": each.maximum,
            "p_value": each.p_value,
            "low": each.low,
            "high": each.high,
        }
        for each in history.fairness
    }


def fairness_reason(history: History) -> str:
    """Say why there are no gaps between groups; "" where there are."""
    if history.fairness:
        return ""
    if sits := sits_in_diverged(history):
        return why_unknown(history, sits)
    if history.finished is None:
        return NOT_FINISHED
    return NO_GAPS if client_groups(history) else NO_GROUPS


def measured_risk(history: History, cluster: int) -> dict[str, Any]:
    """Return the red team's figure of a cluster that is in force, or why there is none."""
    figure = history.figures.get(cluster)
    last = [m for m in history.measured if m.cluster == cluster][-1:]
    latest = [m.reason for m in last]
    if figure is None and any(m.calibrated for m in last):
        latest = ["its last figure counts no more"]
    if diverged := history.diverged.get(cluster):
        latest = [f"{DIVERGED}: {diverged.reason}"]
    return {
        "risk": figure.risk if figure else None,
        "risk_standard_error": figure.standard_error if figure else None,
        "risk_round": figure.round_index if figure else None,
        "source": figure.source if figure else None,
        "calibrated": figure is not None,
        "reason": latest[0] if latest else "no red team looked at it",
    }


def _cluster(history: History, audit: ClusterAudited) -> dict[str, Any]:
    clients = history.clusters_of_clients()[audit.cluster]
    return {
        "cluster": audit.cluster,
        "clients": clients,
        "groups": _composition(history, audit.cluster),
        **measured_risk(history, audit.cluster),
        "true_risk": audit.true_risk,
        "true_risk_standard_error": audit.standard_error,
        "true_risk_reason": audit.reason,
        "true_risk_tpr_at_1": audit.tpr_at_1,
        "true_risk_worst_client": audit.worst_client,
        "strongest_attack": attack_figure(strongest(attacks_on(history, audit.cluster))),
        "auc": audit.auc,
        "blind_auc": audit.blind_auc,
        "exposed_risk": audit.exposed_risk,
        "traced_risk": audit.traced_risk,
        "pooling": history.pooling[audit.cluster] if history.pooling else 0.0,
        "abandoned": clients == 0,
    }


def _composition(history: History, cluster: int) -> dict[str, int]:
    groups = client_groups(history)
    inside = [h for h, j in history.assignment.items() if j == cluster and h in groups]
    return dict(sorted(Counter(groups[handle] for handle in inside).items()))


def client_groups(history: History) -> dict[str, str]:
    """Return the group's name of every client whose group is known."""
    if history.started is None:
        return {}
    names = history.started.group_names
    return {
        handle: names[group]
        for handle, group in history.started.groups.items()
        if group is not None
    }


def attack_figure(found: Attacked | None) -> dict[str, Any] | None:
    """Return an attack's name, risk and standard error; None: there is no figure."""
    return None if found is None else found._asdict()


def _exposure(history: History) -> dict[str, float | str | None]:
    reached, exposures = _reached(history), history.exposures
    found = [final_exposure(history, each) for each in exposures]
    known = [each for each in found if each is not None]
    if reached or not known:
        reason = why_unknown(history, reached)
        return {"mean": None, "maximum": None, "reason": reason}
    return {"mean": float(np.mean(known)), "maximum": max(known), "reason": ""}
