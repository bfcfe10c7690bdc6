"""Runs whose ledgers are written by hand: every number chosen, nothing trained."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from covey import Config
from covey.base.events import (
    AnonymitySetsFormed,
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelsMerged,
    RiskMeasured,
    RoundMeasured,
    kind_and_body,
)
from covey.base.figure import Figure, RiskEstimate
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.settings.load import settings_hash
from support.events import started

INERT = "<script>alert('x')</script>"
HOSTILE_FOLDER = INERT.replace("/", "\u2215")
"""The same as a folder's name, which holds no slash."""


@dataclass(frozen=True)
class Scenario:
    """How a run goes on; `hostile`: names hold what a browser must not run."""

    rounds: int = 12
    clients: int = 20
    clusters: int = 3
    sets: bool = False
    hostile: bool = False

    @property
    def groups(self) -> tuple[str, ...]:
        return (f"few{INERT}", f"many{INERT}") if self.hostile else ("few", "many")

    def name(self, index: int) -> str:
        return f"client-{index:05d}{INERT if self.hostile else ''}"


class Writer:
    """Plays a story into a folder, a round at a time."""

    def __init__(self, scenario: Scenario, ledger: Ledger, config: Config) -> None:
        self.scenario, self.ledger, self.config = scenario, ledger, config
        self.random = np.random.default_rng(0)
        self.handles = [f"{value:016x}" for value in self._bits(scenario.clients)]
        self.chosen = {h: int(c) for h, c in zip(self.handles, self._any(), strict=True)}
        self.played = 0

    def _bits(self, count: int) -> list[int]:
        return self.random.integers(0, 2**62, count).tolist()

    def _any(self) -> list[int]:
        return self.random.integers(0, self.scenario.clusters, self.scenario.clients).tolist()

    def enrol(self) -> None:
        names = {h: self.scenario.name(i) for i, h in enumerate(self.handles)}
        self.ledger.enrol(names)

    def play(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            t = self.played
            events = [*(self._begin() if t == 0 else []), *self._round(t)]
            self.ledger.append(t, [Record(t, *kind_and_body(e)) for e in events])
            self.played += 1

    def _begin(self) -> Iterator[Event]:
        scenario = self.scenario
        accepts = 0.55 + 0.3 * self.random.random(scenario.clients)
        yield started(
            config_hash=settings_hash(self.config),
            num_clusters=scenario.clusters,
            rounds=scenario.rounds,
            group_names=scenario.groups,
            groups={h: int(i % 5 > 0) for i, h in enumerate(self.handles)},
            risk_thresholds={h: float(tau) for h, tau in zip(self.handles, accepts, strict=True)},
            risk_lifetime=10,
            notes=(INERT,) if scenario.hostile else (),
            secrets="os",
            deniability_threshold=2 if scenario.sets else None,
        )

    def _round(self, t: int) -> Iterator[Event]:
        scenario = self.scenario
        if t % 5 == 0:
            yield from map(self._risk, range(scenario.clusters), [t] * scenario.clusters)
        cohort = self.handles
        for handle in cohort[:: 4 + 2 * t]:
            self.chosen[handle] = (self.chosen[handle] + 1) % scenario.clusters
        yield CohortSampled(tuple(cohort))
        yield ClientsAssigned({h: self.chosen[h] for h in cohort}, "clients")
        if scenario.sets:
            for j in range(scenario.clusters):
                own = tuple(sorted(h for h in cohort if self.chosen[h] == j))
                yield AnonymitySetsFormed(j, (own,), (None,))
        sizes = np.bincount(list(self.chosen.values()), minlength=scenario.clusters)
        counted = tuple(int(n) for n in sizes)
        yield ModelsMerged(f"{t:064x}", counted)
        accuracy = 0.9 - 0.6 * math.exp(-t / 6) + 0.01 * math.sin(t)
        by_group = {scenario.groups[0]: accuracy - 0.1, scenario.groups[1]: accuracy + 0.02}
        yield RoundMeasured(accuracy, by_group, counted)

    def _risk(self, cluster: int, t: int) -> Event:
        risk = 0.55 + 0.06 * cluster + 0.05 * math.exp(-t / 9)
        estimate = RiskEstimate(
            Figure(risk, 0.012),
            auc=risk,
            members=500,
            non_members=500,
            calibrated=t > 0,
            rests_on="500 against 500",
            source="federated",
            round_index=t,
        )
        return RiskMeasured(cluster, estimate)


def ticking(began: datetime) -> Callable[[], str]:
    """Return a clock that is 20 seconds later whenever it is asked."""
    at = [began]

    def now() -> str:
        at[0] += timedelta(seconds=20)
        return at[0].isoformat(timespec="milliseconds")

    return now


@contextmanager
def written(path: Path, scenario: Scenario, *, live: bool = False) -> Iterator[Writer]:
    """Lend the writer of a new run in a folder; `live`: by the real clock."""
    config = Config.of(
        {
            "rounds": scenario.rounds,
            "method": {"name": "ifca-mir", "num_clusters": scenario.clusters},
        }
    )
    folder = RunFolder.create(path, config)
    began = datetime.now(UTC) - timedelta(seconds=20 * scenario.rounds + 20)
    clock = (lambda: datetime.now(UTC).isoformat()) if live else ticking(began)
    with Ledger.create(folder.ledger_path, clock) as ledger:
        writer = Writer(scenario, ledger, config)
        writer.enrol()
        yield writer


def audit_of(cluster: int) -> str:
    """Return an audit.json of one cluster."""
    known = {"value": 0.61, "low": 0.55, "high": 0.67}
    rates = ("balanced_accuracy", "auc", "tpr_at_1_percent", "tpr_at_01_percent")
    rated = {**dict.fromkeys(rates, known), "members": 70, "non_members": 70}
    figures = {
        "overall": rated,
        "roc": [[0.5, 0.6]],
        "by_group": {f"few{INERT}": rated},
        "by_difficulty": {},
        "by_class": {},
    }
    cluster_audit = {
        "cluster": cluster,
        "clients": 7,
        "members": 70,
        "non_members": 70,
        "background": 0,
        "blind_auc": {"value": 0.5},
        "reason": "",
        "unknown": [],
        "exposed": None,
        "accuracies": {"members": 0.9, "non_members": 0.8},
        "attacks": {f"loss{INERT}": figures},
    }
    audit = {"view": "The auditor's view.", "references": 4, "clusters": [cluster_audit]}
    return json.dumps({**audit, "source": None, "source_reason": "not chosen"})
