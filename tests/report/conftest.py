"""Stories told by hand: no training, every number chosen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from covey import History
from covey.base.built_ins import LOSS
from covey.base.events import (
    ClientExposed,
    ClientsAssigned,
    ClusterAbandoned,
    ClusterAudited,
    ClustersCollapsed,
    Event,
    FairnessMeasured,
    GroupsSought,
    ModelsMerged,
    RiskMeasured,
    RiskUnknown,
    RoundMeasured,
    RunFinished,
    SumPerturbed,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import history_of
from covey.base.names import Handle
from covey.report.queries import Reported
from support.events import started

HANDLES: tuple[Handle, ...] = ("h0", "h1", "h2", "h3", "h4", "h5")
THRESHOLDS = (0.60, 0.68, 0.50, 0.60, 0.70, 0.80)
ROUNDS = 3


@dataclass(frozen=True)
class Plot:
    """Six clients; the first two are the minority and end in cluster 0, if there is one.

    With the risks .70 ± .02 and .55 ± .01: above their thresholds are h0, h1 and h2;
    by the lower bounds .661 and .530 only h0 and h2.
    """

    method: str = "ifca-mir"
    clusters: tuple[int, ...] = (0, 0, 1, 1, 1, 1)
    num_clusters: int = 2
    risks: tuple[float | None, ...] = (0.70, 0.55)
    errors: tuple[float, ...] = (0.02, 0.01)
    accuracy: float = 0.9
    minority: float = 0.8
    groups: bool = True
    red_team: bool = True
    finished: bool = True
    noise: float = 0.0
    secrets: str = "os"


def history_from(plot: Plot) -> History:
    rounds: list[tuple[int, list[Event]]] = [
        (t, [*_first(plot, t), *_measured(plot, t), *_played(plot, t)]) for t in range(ROUNDS)
    ]
    if plot.finished:
        rounds.append((ROUNDS, [*_measured(plot, ROUNDS), *_end(plot)]))
    return history_of(rounds)


def reported(name: str, plot: Plot, seed: int = 0, more: str = "") -> Reported:
    choice = "selection = {name = 'threshold'}\n" if plot.method == "ifca-mir" else ""
    config = f"seed = {seed}\n[method]\nname = '{plot.method}'\n{choice}{more}"
    return Reported(name, history_from(plot), config)


def _first(plot: Plot, t: int) -> Sequence[Event]:
    if t > 0:
        return []
    return [
        started(
            method=plot.method,
            num_clusters=plot.num_clusters,
            rounds=ROUNDS,
            group_names=("minority", "majority") if plot.groups else (),
            groups={h: int(i > 1) if plot.groups else None for i, h in _clients()},
            risk_thresholds=dict(zip(HANDLES, THRESHOLDS, strict=True)),
            risk_lifetime=10,
            secrets=plot.secrets,
            notes=("Clients saw the true risk: an oracle.",),
        ),
        GroupsSought({"updates": -1.4}, "updates", "nothing"),
        RiskUnknown((0,)),
        ClusterAbandoned(1),
        ClustersCollapsed(0),
    ]


def _measured(plot: Plot, t: int) -> list[Event]:
    if not plot.red_team or t == 0:
        return []
    return [_figure(j, t) for j in range(plot.num_clusters)]


def _figure(cluster: int, t: int) -> RiskMeasured:
    known = RiskEstimate(Figure(0.6, 0.03), 0.6, 99, 99, rests_on="99 against 99")
    none = RiskEstimate.unknown("too few records")
    estimate = replace(none if t == 1 else known, source="federated", round_index=t)
    return RiskMeasured(cluster, estimate)


def _played(plot: Plot, t: int) -> list[Event]:
    clusters = plot.clusters if t else (0,) * 6
    chosen: dict[Handle, int] = dict(zip(HANDLES, clusters, strict=True))
    noisy = [SumPerturbed(j, 1.0, plot.noise, 1.0) for j in range(plot.num_clusters) if plot.noise]
    played: list[Event] = [
        ClientsAssigned(chosen, "clients"),
        *noisy,
        ModelsMerged("", _sizes(plot)),
        RoundMeasured(0.5 + 0.1 * t, _by_group(plot, 0.4), _sizes(plot)),
    ]
    return played


def audited(cluster: int, risk: float | None, error: float = 0.01) -> ClusterAudited:
    """Return what the audit at the end says of a model with this true risk."""
    truth = RiskEstimate.unknown("refused: they do not match", LOSS)
    if risk is not None:
        figure = Figure(risk, error)
        truth = RiskEstimate(figure, 0.6, 99, 99, rests_on="matched", source=LOSS)
    return ClusterAudited(cluster, truth, truth.figure, truth.figure, 0.5)


def _end(plot: Plot) -> list[Event]:
    audits = [
        audited(j, risk, error)
        for j, risk, error in zip(range(plot.num_clusters), plot.risks, plot.errors, strict=False)
    ]
    exposed = [
        ClientExposed(h, j, 0.5, audits[j].exposed)
        for h, j in zip(HANDLES, plot.clusters, strict=True)
    ]
    gaps = [FairnessMeasured("demographic_parity", Figure(0.1), 0.3, 0.005)] if plot.groups else []
    by_group = _by_group(plot, plot.minority)
    end = RunFinished("0de1", plot.accuracy, by_group, 1.0 if plot.groups else None)
    return [*audits, *gaps, *exposed, end]


def _sizes(plot: Plot) -> tuple[int, ...]:
    return tuple(plot.clusters.count(j) for j in range(plot.num_clusters))


def _by_group(plot: Plot, minority: float) -> dict[str, float]:
    return {"minority": minority, "majority": 0.95} if plot.groups else {}


def _clients() -> Sequence[tuple[int, str]]:
    return list(enumerate(HANDLES))


FEDAVG = Plot(method="fedavg", clusters=(0,) * 6, num_clusters=1, risks=(0.55,))
MANY = Plot(
    method="local",
    clusters=tuple(range(6)),
    num_clusters=40,
    risks=(0.6,) * 40,
    errors=(0.02,) * 40,
)
KINDS = {
    "two clusters": history_from(Plot()),
    "one cluster": history_from(FEDAVG),
    "many clusters": history_from(MANY),
    "own data": history_from(Plot(groups=False)),
    "no red team": history_from(Plot(red_team=False)),
    "refused": history_from(Plot(risks=(None, None))),
    "unfinished": history_from(Plot(finished=False)),
    "not started": History(),
}


@pytest.fixture(scope="session")
def histories() -> dict[str, History]:
    return KINDS


@pytest.fixture(scope="session")
def two_seeds() -> list[Reported]:
    """IFCA-MIR, IFCA and FedAvg with the seeds 0 and 1, on the same data."""
    safer = (0.50, 0.55)  # of the thresholds only h2's is below its model's risk
    plots = {
        "mir": [Plot(accuracy=0.90, minority=0.80), Plot(accuracy=0.94, minority=0.70)],
        "ifca": [Plot(method="ifca", accuracy=0.91)] * 2,
        "fedavg": [replace(FEDAVG, accuracy=0.88), replace(FEDAVG, accuracy=0.90)],
    }
    plots["mir"][1] = replace(plots["mir"][1], risks=safer)
    return [
        reported(f"{name}-{seed}", plot, seed)
        for name, pair in plots.items()
        for seed, plot in enumerate(pair)
    ]


@pytest.fixture(scope="session")
def a_run() -> Callable[..., Reported]:
    return reported


@pytest.fixture(scope="session")
def a_plot() -> type[Plot]:
    return Plot
