"""What is known of each client, what it accepts and how exposed it is, and of each group's model.

A group's own accuracy (`Summary.accuracy.by_group`) is that of its clients' data, whatever
models they use. IFCA-MIR's minority accuracy is that of the minority's model over the clients
that chose it: clients that left, at a cost, are not in it.

References:
    Jung, Biswas, Palamidessi, IFCA-MIR, 2025, sections 5.2.1 and 5.3.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from covey.base.built_ins import BOUND, LOSS
from covey.base.events import ClientExposed, ModelAttacked
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import History
from covey.base.names import Handle, round_number

NOT_FINISHED = "it is measured when a run ends, and this one has not"


@dataclass(frozen=True, slots=True)
class ClientSummary:
    """What is known of one client.

    Attributes:
        group: None: it is not known.
        cluster: by its latest choice; None: it has made none, or left.
        threshold: the highest risk that it accepts; None: the server does not know it.
        measured: the red team's estimate of its cluster that is in force.
        end: what was measured of it at the end.
        risk: the strongest attack on the model that it ended with, or a bound on any.
        attack: the strongest that was run on its records, where `risk` is a bound.
        exposure: the highest risk of all models that its examples ever reached.
        reached: the clusters of these.
    """

    handle: Handle
    group: str | None
    cluster: int | None
    threshold: float | None
    measured: RiskEstimate | None
    end: ClientExposed | None
    risk: RiskEstimate | None
    attack: RiskEstimate | None
    exposure: Figure
    reached: frozenset[int]

    @property
    def margin(self) -> float | None:
        """How much more it accepts than was measured of its cluster; None: unknown."""
        if self.measured is None or self.threshold is None:
            return None
        return self.threshold - self.measured.risk

    @property
    def is_above(self) -> bool | None:
        """Whether it accepts less than that; None: unknown."""
        return None if self.margin is None else self.margin < 0


def client_summaries(
    history: History, handles: Iterable[Handle] | None = None, by: str | None = None
) -> dict[Handle, ClientSummary]:
    """Return what is known of clients, by their handles.

    Args:
        history: of the run.
        handles: whose; None: of those who were there when the run ended.
        by: of all attacks only this one.
    """
    began, ends = history.started, {fact.handle: fact for fact in history.exposures}
    groups, figures = client_groups(history), history.figures
    thresholds = began.risk_thresholds if began else {}
    strongest_on = {
        j: strongest(estimate for estimate in attacks if by in (None, estimate.source))
        for j, attacks in attacks_on_models(history).items()
    }
    own: dict[Handle, list[RiskEstimate]] = {}  # of records whose weight is a client's own:
    for fact in _final_attacks(history):  # no attack on a whole cluster says more of them
        if fact.client and by is None:
            own.setdefault(fact.client, []).append(fact.estimate)

    def known(handle: Handle) -> ClientSummary:
        cluster, end = history.assignment.get(handle), ends.get(handle)
        reached = {j for j, clients in history.reached.items() if handle in clients}
        reached |= {*history.trained.get(handle, ()), *([end.cluster] if end else [])}
        exposure = end.exposure if end else Figure.unknown(NOT_FINISHED)
        risk, attack = strongest_on.get(end.cluster) if end else None, None
        if end and handle in own:
            bound = strongest(estimate for estimate in own[handle] if estimate.source == BOUND)
            attack = (
                strongest(estimate for estimate in own[handle] if estimate.source != BOUND) or risk
            )
            risk = bound or attack
            exposure = risk.figure if risk else own[handle][0].figure
        elif exposure.value is not None and by != LOSS:
            # the loss threshold is tried on those who trained a model, others on who uses it
            others = filter(None, map(strongest_on.get, reached))
            exposure = max([exposure, *(other.figure for other in others)], key=float)
        return ClientSummary(
            handle=handle,
            group=groups.get(handle),
            cluster=cluster,
            threshold=thresholds.get(handle),
            measured=None if cluster is None else figures.get(cluster),
            end=end,
            risk=risk,
            attack=attack,
            exposure=exposure,
            reached=frozenset(reached),
        )

    return {handle: known(handle) for handle in (ends if handles is None else handles)}


def client_groups(history: History) -> dict[Handle, str]:
    """Return the group's name of every client whose group is known."""
    if history.started is None:
        return {}
    names, groups = history.started.group_names, history.started.groups
    return {handle: names[group] for handle, group in groups.items() if group is not None}


def strongest(attacks: Iterable[RiskEstimate]) -> RiskEstimate | None:
    """Return the attack that succeeds most often; None: no attack has a figure."""
    known = (attack for attack in attacks if attack.is_known)
    return max(known, key=lambda estimate: estimate.risk, default=None)


def attacks_on_models(history: History) -> dict[int, list[RiskEstimate]]:
    """Return per cluster every attack on the model that it ended with; none if it diverged."""
    attacks_of = {audit.cluster: [audit.truth] for audit in history.audits}
    for attack in _final_attacks(history):
        if not attack.client:
            attacks_of.setdefault(attack.cluster, []).append(attack.estimate)
    return {j: [] if j in history.diverged else attacks for j, attacks in attacks_of.items()}


def _final_attacks(history: History) -> Iterator[ModelAttacked]:
    """Yield the attacks on the models that the run ended with, but the loss threshold."""
    now = history.finished.model_hash if history.finished else None
    return (attack for attack in history.attacks if attack.model_hash == now)


def diverged_sentences(history: History) -> list[str]:
    """Return one sentence per cluster whose model is none now, for a person."""
    rounds = history.started.rounds if history.started else None
    return [
        f"round {round_number(event.round_index, rounds)}: the model of cluster {j} {event.reason}"
        for j, event in sorted(history.diverged.items())
    ]


def describe_emptiness(history: History, most: int) -> str:
    """Say that nobody took part in the last `most` rounds, or all; "" otherwise."""
    rounds = history.rounds
    empty = history.empty_rounds if any(row.participants for row in rounds) else len(rounds)
    if not empty or empty < min(most, len(rounds)) or history.diverged:
        return ""
    return f"nobody took part in the last {empty} of {len(rounds)} rounds"


def sits_in_diverged(history: History) -> frozenset[int]:
    """Return the diverged clusters that some client uses."""
    return frozenset(history.diverged.keys() & set(history.assignment.values()))


def why_unknown(history: History, clusters: Collection[int] = ()) -> str:
    """Say why a figure over clients is null: models diverged, or there is no truth.

    `clusters`: those that the figure rests on and that diverged.
    """
    if clusters:
        gone = (f"cluster {j}, which {history.diverged[j].reason}" for j in sorted(clusters))
        return f"it rests on the model of {'; of '.join(gone)}"
    if not history.exposures:
        return NOT_FINISHED
    users = history.clusters_of_clients()
    truths = (audit.truth for audit in history.audits if users[audit.cluster])
    reasons = dict.fromkeys(truth.reason for truth in truths if not truth.is_known)
    return f"no model in use has a true risk: {'; '.join(reasons) or 'none was audited'}"


@dataclass(frozen=True, slots=True)
class GroupModel:
    """The model of a group of clients.

    Attributes:
        cluster: the model's.
        clients: how many use it, of whatever group.
        accuracy: their mean, each on data like its own; None: nobody uses it, or it is not
            known of all of them.
        moved: how many of the group use another model.
    """

    cluster: int
    clients: int
    accuracy: float | None
    moved: int


def group_models(clients: Iterable[ClientSummary], num_clusters: int) -> Mapping[str, GroupModel]:
    """Give every group a model of its own: pi maximises sum_g |{i of group g: j_i = pi(g)}|.

    pi gives no two groups one model, so that a group most of which left for another's model
    still has the one that it left. Of equal ones the first is taken. Empty where fewer models
    than groups are there, or no groups are known.

    Args:
        clients: as they ended.
        num_clusters: how many models there are.
    """
    ended = [(client.group, client.end) for client in clients if client.end is not None]
    counts = Counter((group, end.cluster) for group, end in ended if group is not None)
    groups = sorted({group for group, _ in counts})
    if not 0 < len(groups) <= num_clusters:
        return {}
    from scipy.optimize import linear_sum_assignment

    table = np.array([[counts[group, j] for j in range(num_clusters)] for group in groups])
    own = linear_sum_assignment(table, maximize=True)[1].tolist()
    models: dict[str, GroupModel] = {}
    for group, j, row in zip(groups, own, table, strict=True):
        known = [end.accuracy for _, end in ended if end.cluster == j]
        whole = [value for value in known if value is not None]
        accuracy = fmean(whole) if known and len(whole) == len(known) else None
        models[group] = GroupModel(j, len(known), accuracy, int(row.sum() - row[j]))
    return models
