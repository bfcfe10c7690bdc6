"""How much of an MIA accuracy is nothing but non-members that do not match.

One and the same finished run is attacked with three kinds of non-members; beside each
figure stands the blind baseline, which never sees the model. Where the baseline beats
chance, the figure measures the difference between the two sides and not membership.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from covey.build import BuiltRun, build_run
from covey.engine import Engine, Scored, ScoringJob, TrainingJob
from covey.membership import Reference, RiskEstimate, blind_risk, true_risk
from covey.report import group_sizes
from covey.runtime import CompletedRun, RunFolder, load_completed
from covey.types import Params
from covey_papers.reproduce.run_cache import note

__all__ = ["KINDS", "Attacked", "attacked"]

NonMembers = Literal["matched", "pooled", "untransformed"]
KINDS: tuple[NonMembers, ...] = get_args(NonMembers)


@dataclass(frozen=True, slots=True)
class Attacked:
    """A group's model, attacked with one kind of non-members.

    Attributes:
        risk: MIA accuracy of the loss threshold, cross-fitted.
        blind: accuracy of the classifier that never sees the model.
    """

    non_members: str
    group: str
    risk: float | None
    blind: float | None


def attacked(path: Path) -> tuple[Attacked, ...]:
    """Attack the model of every group of a finished run in all three ways.

    A group's model is the one that most of its clients chose, and its members are all
    that those who chose it trained on. What was measured once is read again.
    """
    kept = path / "mismatch.json"
    if not kept.is_file():
        note(kept, {"attacked": [asdict(each) for each in _measured(path)]})
    known = json.loads(kept.read_text(encoding="utf-8"))["attacked"]
    return tuple(Attacked(**each) for each in known)


def _measured(path: Path) -> list[Attacked]:
    folder = RunFolder.existing(path)
    run = build_run(folder.config())
    references: dict[NonMembers, Reference] = {
        kind: _reference(run, kind) for kind in KINDS
    }
    found = load_completed(
        replace(run, engine=ScoredOnce(run.engine)), folder, "An audit"
    )
    return [
        _against(found, reference, kind, group)
        for kind, reference in references.items()
        for group in group_sizes(found.history)
    ]


class ScoredOnce:
    """An engine that scores nothing twice: members are the same in every comparison."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[int, int], tuple[ScoringJob, Scored]] = {}

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Yield each job's trained params, in the order of the jobs."""
        return self._engine.train(jobs)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Return each job's scores, in the order of the jobs."""
        keys = [(id(job.params), id(job.examples)) for job in jobs]
        fresh = {
            k: job for k, job in zip(keys, jobs, strict=True) if k not in self._known
        }
        scored = self._engine.score(list(fresh.values()))
        # The job is kept as well: what is known by its place in memory must stay there.
        self._known |= dict(
            zip(fresh, zip(fresh.values(), scored, strict=True), strict=True)
        )
        return [self._known[key][1] for key in keys]


def _reference(run: BuiltRun, kind: NonMembers) -> Reference:
    """Return other non-members of the same run: its members stay what they are."""
    audit = type(run.config.audit)(non_members=kind)
    other = build_run(run.config.model_copy(update={"audit": audit}))
    return other.reference


def _against(
    found: CompletedRun, reference: Reference, kind: NonMembers, group: str
) -> Attacked:
    run, assignment = found.run, found.history.assignment
    index = [each.name for each in run.population.groups].index(group)
    own = [assignment[c.handle] for c in run.population.clients if c.group == index]
    home = max(sorted(set(own)), key=own.count)
    members = [c for c in run.population.clients if assignment[c.handle] == home]
    if home in found.history.diverged:
        return Attacked(kind, group, None, None)
    streams = run.streams.at("non-members of other kinds", home)
    model = found.models[home]
    risk = true_risk(run.engine, model, members, reference, streams)
    blind = blind_risk(members, reference, streams)
    return Attacked(kind, group, _risk(risk), _risk(blind))


def _risk(figure: RiskEstimate | None) -> float | None:
    return figure.risk if figure else None
