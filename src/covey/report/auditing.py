"""What an audit found: one JSON object, a page, and a ROC figure per cluster."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.membership import DIVERGED, ClusterAuditResult, Estimate
from covey.report import figures
from covey.report.page import rendered, write
from covey.report.wording import interval
from covey.runtime import Audit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["VIEW", "audit_rows", "write_audit"]

VIEW = (
    "The auditor's view, in a simulation: it knows the real members, and replays the "
    "run's recipe on random halves of them and of matched non-members. A server holds "
    "neither and could not do this. Intervals (95%) are over records."
)
NO_SOURCE = "nobody asked for it, or fewer than two clusters are in use"
RATES = ("balanced_accuracy", "auc", "tpr_at_1_percent", "tpr_at_01_percent")


def write_audit(audit: Audit, run: Path) -> dict[str, Any]:
    """Write `audit/` into the run's folder, and return what audit.json holds.

    audit.json  audit.html  roc-cluster-J.png  roc-cluster-J.svg
    """
    folder = run / "audit"
    folder.mkdir(exist_ok=True)
    pictures: dict[str, bytes] = {}
    for each in audit.clusters:
        if each.attacks:
            figure = _roc(each)
            name = f"roc-cluster-{each.cluster}"
            pictures[str(each.cluster)] = figures.png(figure)
            write(folder / f"{name}.png", pictures[str(each.cluster)])
            write(folder / f"{name}.svg", figures.svg(figure))
    text = json.dumps(_answer(audit), indent=1, allow_nan=False)
    answer = json.loads(text)
    told = {"name": run.name, "audit": answer, "rows": audit_rows(answer)}
    write(folder / "audit.html", rendered("audit.html", pictures, told))
    write(folder / "audit.json", text.encode())
    return answer


def audit_rows(answer: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the overall figures as texts, one row per cluster and attack."""
    return [
        {"cluster": str(each["cluster"]), "attack": name}
        | {rate: interval(attack["overall"][rate]) for rate in RATES}
        for each in answer["clusters"]
        for name, attack in each["attacks"].items()
    ]


def _answer(audit: Audit) -> dict[str, Any]:
    return {
        "view": VIEW,
        "references": audit.references,
        "clusters": [_cluster(each, audit.groups) for each in audit.clusters],
        "source": asdict(audit.source) if audit.source else None,
        "source_reason": "" if audit.source else _no_source(audit),
    }


def _no_source(audit: Audit) -> str:
    gone = [c.cluster for c in audit.clusters if c.reason.startswith(DIVERGED)]
    if not gone:
        return NO_SOURCE
    names = ", ".join(map(str, gone))
    return f"{DIVERGED}: it rests on all models in use, and cluster {names} has none"


def _cluster(examined: ClusterAuditResult, groups: tuple[str, ...]) -> dict[str, Any]:
    found = asdict(examined)
    for attack in found["attacks"].values():
        attack["by_group"] = {
            groups[int(index)] if index else "everybody": part
            for index, part in attack["by_group"].items()
        }
    found["unknown"] = sorted(set(_reasons(examined)))
    return found


def _reasons(examined: ClusterAuditResult) -> Iterator[str]:
    """Say why overall figures are unknown."""
    for attack in examined.attacks.values():
        for rate in RATES:
            estimate: Estimate = getattr(attack.overall, rate)
            if estimate.reason:
                yield estimate.reason


def _roc(examined: ClusterAuditResult) -> "Figure":
    title = (
        f"Cluster {examined.cluster}: {examined.members:,} members against "
        f"{examined.non_members:,} matched non-members"
    )
    curves = {
        f"{name}, AUC {attack.overall.auc.value:.3f}": attack.roc
        for name, attack in examined.attacks.items()
    }
    return figures.roc_figure(title, curves, examined.members)
