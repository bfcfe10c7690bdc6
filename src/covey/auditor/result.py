"""What an audit of a model found: figures, controls, and what is withheld and why."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtri

from covey.base.arguments import in_range, place, usable
from covey.base.components import Share
from covey.base.errors import ConfigError
from covey.base.figure import Figure
from covey.membership.attacks import Knowledge
from covey.membership.audit import AttackFigures
from covey.membership.controls import blind_figure
from covey.membership.references import ExposedCounts, top_share
from covey.report.comparison_figures import roc_figure
from covey.report.figures import svg
from covey.report.page import rendered, write

RATES = ("auc", "balanced_accuracy", "advantage", "tpr_at_1_percent", "tpr_at_01_percent")
KNOWS: Mapping[Knowledge, str] = {
    "outputs": "answers, of this and of similar models",
    "weights": "the model itself",
    "all-others": "the model, and all other members",
}
"""What an attacker has, the least first."""

_PLAIN = ("reason", "members", "non_members", "background", "shared", "references")
VIEW = (
    "The auditor's view: it has the members, gets the model's class scores, and compares "
    "them with references where there are any. Intervals (95%) are over records: another training "
    "of the same model would be one more draw. What these attacks do not find, a stronger one may."
)


_MOST_CLASSES = 20

_CONTROLS = {
    "blind": "A classifier of inputs and labels, without the model",
    "unseen": "The loss attack between two halves of the non-members",
}


@dataclass(frozen=True, slots=True)
class Control:
    """An attack that must find nothing, or the others are not believed.

    Attributes:
        accuracy: (TPR + TNR) / 2; 0.5 is a coin toss.
        holds: whether it found nothing.
    """

    accuracy: Figure
    auc: float | None
    holds: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModelAudit:
    """An audit of one model.

    Attributes:
        members, non_members: how many of each are judged.
        background: members without a partner among the non-members.
        shared: records left out because both sides hold them.
        references: how many reference models there were.
        reason: why there are no figures at all; "" where there are.
        withheld: per attack without figures, why.
        controls: "blind": a classifier that never sees the model distinguishes the sides;
            "unseen": the loss attack on two halves of the non-members.
        accuracies: of the model on members and non-members; of the references on what
            they trained on, and on the rest.
        attacks: the figures of each.
        knows: what each attack's attacker has.
        knowledge: what the attackers that the verdict and a limit are about have at most.
        exposures: per member, as they came: the chance that an attack which has its
            references says rightly whether it was learnt; NaN where it was not judged.
            None with fewer than 4 references, or without some on both sides of every
            record. Neither JSON nor page names a record.
        tail: the share of non-members whose loss is higher than those of 99% of the members:
            the larger, the more the best attacks find at a low rate of false accusations.
        exposed: how exposed the most exposed 1% are, judged by other references than
            those that say which these are; None where that cannot be.
    """

    members: int
    non_members: int
    shared: int
    background: int = 0
    references: int = 0
    reason: str = ""
    withheld: Mapping[str, str] = field(default_factory=dict[str, str])
    controls: Mapping[str, Control] = field(default_factory=dict[str, Control])
    accuracies: Mapping[str, float] = field(default_factory=dict[str, float])
    attacks: Mapping[str, AttackFigures] = field(default_factory=dict[str, AttackFigures])
    knows: Mapping[str, Knowledge] = field(default_factory=dict[str, Knowledge])
    knowledge: Knowledge = "outputs"
    tail: Figure = field(default_factory=lambda: Figure.unknown("there are no figures"))
    exposures: Float[ndarray, " all"] | None = None
    exposed: ExposedCounts | None = None

    @property
    def refused(self) -> bool:
        """Whether there is no figure: then nothing is known, least of all privacy."""
        return not self.attacks

    @property
    def counted(self) -> tuple[str, ...]:
        """The attacks whose attackers have no more than `knowledge`."""
        levels = list(KNOWS)
        most = levels.index(self.knowledge)
        return tuple(a for a in self.attacks if levels.index(self.knows[a]) <= most)

    @property
    def strongest(self) -> str | None:
        """The attack with the highest AUC, of those that count."""
        return max(self.counted, key=self._area, default=None)

    @property
    def blind_auc(self) -> Figure:
        """The AUC of a classifier that never sees the model: what a shift of the sides gives."""
        control = self.controls.get("blind")
        return blind_figure(control.auc if control else None, self.reason)

    @property
    def verdict(self) -> str:
        """What was found, or why nothing is known, and what attackers who know more find.

        An AUC counts as above 0.5 by as many SE as make a false alarm of any of the
        attacks as rare as 2.5% (Bonferroni).
        """
        if self.refused:
            return f"No figures: {self.reason or '; '.join(self.withheld.values())}"
        beyond = set(self.attacks).difference(self.counted)
        name = max(beyond, key=lambda a: (self._area(a), a), default="")
        more = name and (
            f". Not counted: {name}, of an attacker who has {KNOWS[self.knows[name]]}: AUC "
            f"{self.figure(name, 'auc')}"
        )
        return f"{self._finding}{more}"

    @property
    def _finding(self) -> str:
        """What the attacks that count found."""
        if (name := self.strongest) is None:
            return (
                f"Nothing is known: no attack was run whose attacker has {KNOWS[self.knowledge]} "
                f"and no more"
            )
        area = self.figure(name, "auc")
        if area.value is None:
            return f"Nothing is known ({name}: AUC unknown: {area.reason})"
        strongest = f"{name}: AUC {area}"
        reach = float(ndtri(1 - 0.025 / len(self.counted)))
        if self._area(name) - 0.5 > reach * (area.error or 0.0):
            return f"Members can be distinguished from non-members ({strongest})"
        return f"No attack here distinguished members from non-members (strongest {strongest})"

    @property
    def least_fpr(self) -> float:
        """The lowest rate of false accusations that so many non-members show: 10 of them."""
        return min(1.0, 10 / max(1, self.non_members))

    @property
    def worst(self) -> tuple[str, str, Figure] | None:
        """The class or group that the strongest attack surely finds most of, and how much.

        By the lower bound of balanced accuracy: of many parts, some are high by chance.
        """
        best = self.attacks.get(self.strongest or "")
        kinds = {"class": best.by_class, "group": best.by_group} if best else {}
        parts = [
            (kind, name, risk.balanced_accuracy)
            for kind, named in kinds.items()
            for name, risk in named.items()
            if name and risk.balanced_accuracy.value is not None
        ]
        return max(parts, key=lambda part: part[2].lower_bound, default=None)

    def exceeds(self, limit: float) -> bool:
        """Say whether the strongest attack's AUC is above this; what is unknown is above any.

        Raises:
            ConfigError: the limit is none in [0, 1].
        """
        limit = in_range("limit", limit, Share)
        area = None if self.strongest is None else self.figure(self.strongest, "auc").value
        return area is None or area > limit

    def figure(self, attack: str, rate: str) -> Figure:
        """Return one figure of an attack; `rate` is one of `RATES`.

        Of an attack that was withheld it is unknown, with the reason.

        Raises:
            ConfigError: there is no such attack here, or no such rate.
        """
        for what, value, known in (
            ("rate", rate, RATES),
            ("attack", attack, (*self.attacks, *self.withheld)),
        ):
            if value not in known:
                raise ConfigError(
                    f"{what} must be one of {', '.join(known) or 'none, as there are no figures'}, "
                    f"found {value!r}: correct the name."
                )
        if attack in self.withheld:
            return Figure.unknown(self.withheld[attack])
        overall = self.attacks[attack].overall
        if rate != "advantage":
            return getattr(overall, rate)
        accuracy = overall.balanced_accuracy  # TPR - FPR = 2 accuracy - 1
        ends = {name: getattr(accuracy, name) for name in ("value", "low", "high")}
        ends = {name: None if end is None else 2 * end - 1 for name, end in ends.items()}
        return replace(accuracy, **ends, error=accuracy.error and 2 * accuracy.error)

    def most_exposed(self, share: float = 0.01) -> list[int]:
        """Return the places, among the members as they came, of the most exposed ones.

        Of the members that are judged this share, the most exposed first; empty where
        exposures are not known. Their figures are the highest by chance as well: how
        exposed such records are, `exposed` says.

        Raises:
            ConfigError: the share is none in [0, 1].
        """
        share = in_range("share", share, Share)
        if self.exposures is None:
            return []
        judged = np.flatnonzero(np.isfinite(self.exposures))
        top = judged[top_share(self.exposures[judged], share)]
        return [int(i) for i in top[np.argsort(-self.exposures[top], kind="stable")]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        unknown = {self.figure(a, rate).reason for a in self.attacks for rate in RATES}
        exposed = None if self.exposed is None else asdict(self.exposed)
        if exposed is not None:
            del exposed["held"]  # by one holder
        return {
            "view": VIEW,
            "verdict": self.verdict,
            "refused": self.refused,
            **{name: getattr(self, name) for name in _PLAIN},
            "withheld": dict(self.withheld),
            "unknown": sorted(filter(None, unknown)),
            "knowledge": self.knowledge,
            "blind_auc": asdict(self.blind_auc),
            "controls": {name: asdict(control) for name, control in self.controls.items()},
            "accuracies": dict(self.accuracies),
            "exposed": exposed,
            "tail": asdict(self.tail),
            "least_fpr": self.least_fpr,
            "worst": self._worst_dict(),
            "attacks": {name: self._attack_dict(name) for name in self.attacks},
        }

    def to_json(self) -> str:
        """Return `to_dict` as text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def write_html(self, path: str | Path, title: str = "Audit of a model") -> Path:
        """Write a page that needs nothing beside it, and return its path."""
        out = place("path", path)
        pictures = {"roc": svg(_roc(self))} if self.attacks else {}
        with usable(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            write(out, rendered("model_audit.html", pictures, {"title": title, **_view(self)}))
        return out

    def __repr__(self) -> str:
        sides = f"{self.members:,} members against {self.non_members:,}"
        return f"ModelAudit({sides}: {self.verdict})"

    def _repr_html_(self) -> str:
        return rendered("model_audit_notebook.html", {}, _view(self)).decode()

    def _area(self, attack: str) -> float:
        value = self.attacks[attack].overall.auc.value
        return 0.0 if value is None else value

    def _worst_dict(self) -> dict[str, Any] | None:
        if self.worst is None:
            return None
        kind, name, accuracy = self.worst
        return {"kind": kind, "name": name, "balanced_accuracy": asdict(accuracy)}

    def _attack_dict(self, attack: str) -> dict[str, Any]:
        content: dict[str, Any] = asdict(self.attacks[attack])
        content["by_group"].pop("", None)  # everybody is in no group
        content["knows"] = self.knows[attack]
        content["overall"]["advantage"] = asdict(self.figure(attack, "advantage"))
        return json.loads(json.dumps(content))


def rows(audit: ModelAudit) -> list[dict[str, str]]:
    """Return the overall figures as texts, one row per attack, the strongest first."""
    by_area = sorted(audit.attacks, key=lambda a: audit.figure(a, "auc").value or 0.0, reverse=True)
    return [
        {"attack": name}
        | {rate: audit.figure(name, rate).cell for rate in RATES}
        | {"knows": KNOWS[audit.knows[name]]}
        for name in by_area
    ]


def _view(audit: ModelAudit) -> dict[str, Any]:
    best = audit.attacks.get(audit.strongest or "")
    classes = list(best.by_class) if best else []
    if best and len(classes) > _MOST_CLASSES:  # of too many the most exposed first
        risks = {name: risk.balanced_accuracy.value or 0.0 for name, risk in best.by_class.items()}
        classes = sorted(risks, key=risks.__getitem__, reverse=True)[:_MOST_CLASSES]
    return {
        "difficulties": list(best.by_difficulty) if best else [],
        "classes": classes,
        "groups": [name for name in best.by_group if name] if best else [],
        "audit": audit.to_dict(),
        "rows": rows(audit),
        "strongest": audit.strongest,
        "control_names": _CONTROLS,
    }


def _roc(audit: ModelAudit) -> Any:  # noqa: ANN401 - a figure of matplotlib
    title = f"{audit.members:,} members against {audit.non_members:,} non-members"
    curves = {
        f"{name}, AUC {audit.figure(name, 'auc').value or 0.0:.3f}": figures.roc
        for name, figures in audit.attacks.items()
    }
    return roc_figure(title, curves, audit.members)
