"""How much of an MIA accuracy is nothing but non-members that do not match.

One and the same finished run is attacked with three kinds of non-members; beside each
figure stands the blind baseline, which never sees the model. Where the baseline beats
chance, the figure measures the difference between the two sides and not membership.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from covey.assembly import Assembled, assemble
from covey.config.sections import AuditConfig
from covey.redteam import Figure, Reference, blind_risk, true_risk
from covey.report.reading import group_sizes
from covey.reproduce.shelf import note
from covey.simulation import RunFolder
from covey.simulation.finished import Finished, finished

__all__ = ["KINDS", "Attacked", "attacked"]

NonMembers = Literal["matched", "pooled", "untransformed"]
KINDS: tuple[NonMembers, ...] = get_args(NonMembers)


@dataclass(frozen=True, slots=True)
class Attacked:
    """A group's model, attacked with one kind of non-members.

    Attributes:
        risk: MIA accuracy of the loss threshold, cross-fitted.
        blind: accuracy of the classifier that sees the inputs alone.
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
    run = assemble(folder.config())
    found = finished(run, folder, "An audit")
    return [
        _against(found, _reference(run, kind), kind, group)
        for kind in KINDS
        for group in group_sizes(found.history)
    ]


def _reference(run: Assembled, kind: NonMembers) -> Reference:
    """Return other non-members of the same run: its members stay what they are."""
    audit = AuditConfig(non_members=kind)
    other = assemble(run.config.model_copy(update={"audit": audit}))
    return other.reference


def _against(
    found: Finished, reference: Reference, kind: NonMembers, group: str
) -> Attacked:
    run, assignment = found.run, found.history.assignment
    index = [each.name for each in run.population.groups].index(group)
    own = [assignment[c.handle] for c in run.population.clients if c.group == index]
    home = max(sorted(set(own)), key=own.count)
    members = [c for c in run.population.clients if assignment[c.handle] == home]
    streams = run.streams.at("non-members of other kinds", home)
    model = found.models[home]
    risk = true_risk(run.engine, model, members, reference, streams)
    blind = blind_risk(members, reference, streams)
    return Attacked(kind, group, _risk(risk), _risk(blind))


def _risk(figure: Figure | None) -> float | None:
    return figure.risk if figure else None
