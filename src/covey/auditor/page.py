"""An audit of a model as a page, and as a few lines in a notebook."""

from collections.abc import Mapping
from typing import Any

from covey.auditor.result import RATES, ModelAudit
from covey.membership import AttackMetrics
from covey.report.figures import png, roc_figure
from covey.report.page import rendered
from covey.report.wording import interval

__all__ = ["notebook", "page", "rows"]

MOST_CLASSES = 20

CONTROLS = {
    "blind": "A classifier of inputs and labels, without the model",
    "unseen": "The loss attack between two halves of the non-members",
}


def page(audit: ModelAudit, title: str) -> bytes:
    """Return the page; it needs nothing beside it and no network."""
    pictures = {"roc": png(_roc(audit))} if audit.attacks else {}
    return rendered("model_audit.html", pictures, {"title": title, **_told(audit)})


def notebook(audit: ModelAudit) -> str:
    """Return a few lines and a table."""
    return rendered("model_audit_notebook.html", {}, _told(audit)).decode()


def rows(audit: ModelAudit) -> list[dict[str, str]]:
    """Return the overall figures as texts, one row per attack, the strongest first."""
    by_area = sorted(
        audit.attacks, key=lambda a: audit.figure(a, "auc").value or 0.0, reverse=True
    )
    told = audit.to_dict()["attacks"]
    return [
        {"attack": name}
        | {rate: interval(told[name]["overall"][rate]) for rate in RATES}
        for name in by_area
    ]


def _told(audit: ModelAudit) -> dict[str, Any]:
    best = audit.attacks.get(audit.strongest or "")
    return {
        "difficulties": list(best.by_difficulty) if best else [],
        "classes": _most_found(best.by_class) if best else [],
        "audit": audit.to_dict(),
        "rows": rows(audit),
        "strongest": audit.strongest,
        "control_names": CONTROLS,
    }


def _most_found(classes: Mapping[str, AttackMetrics]) -> list[str]:
    """Return all classes in order, or of too many the most exposed first."""
    if len(classes) <= MOST_CLASSES:
        return list(classes)
    risks = {
        name: each.balanced_accuracy.value or 0.0 for name, each in classes.items()
    }
    return sorted(risks, key=risks.__getitem__, reverse=True)[:MOST_CLASSES]


def _roc(audit: ModelAudit) -> Any:  # noqa: ANN401 - a figure of matplotlib
    title = f"{audit.members:,} members against {audit.non_members:,} non-members"
    curves = {
        f"{name}, AUC {audit.figure(name, 'auc').value or 0.0:.3f}": figures.roc
        for name, figures in audit.attacks.items()
    }
    return roc_figure(title, curves, audit.members)
