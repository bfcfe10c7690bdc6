"""Figures and facts in words: a number that is not known is never 0 and never blank."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covey.events import (
    AnswerRefused,
    ClusterAbandoned,
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
from covey.history import History
from covey.types import round_number

__all__ = [
    "by_attacks",
    "early_end_told",
    "estimate",
    "happenings",
    "interval",
    "number",
    "spread",
]

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


def estimate(
    value: float | None, standard_error: float | None, reason: str = ""
) -> str:
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
    return (
        f"{mean:.3f} ± {deviation:.3f}"
        if isinstance(deviation, float)
        else f"{mean:.3f}"
    )


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
    verdict = (
        "the clients fall into groups" if clear else "the clients hardly show groups"
    )
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
