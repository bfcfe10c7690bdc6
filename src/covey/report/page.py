"""One self-contained page: of one run, or one that compares several."""

import json
import tomllib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from covey.base.events import ClusterAudited
from covey.base.files import make_folder, replace_whole
from covey.base.history import History
from covey.base.names import round_number
from covey.base.risk import DIVERGED
from covey.components.built_ins import BASELINE, REFERENCES
from covey.membership.audit import ClusterAuditResult
from covey.membership.intervals import Estimate
from covey.report.attacks import NOT_FINISHED, diverged_sentences
from covey.report.comparison import (
    comparison,
    labels,
    means,
    method_of,
    selection_of,
    with_baselines,
)
from covey.report.queries import OVERALL, Reported, group_sizes, metrics_csv, utility
from covey.report.summary import (
    NO_GROUPS,
    PROMISE,
    by_attacks,
    estimate,
    guarantee_of,
    happenings,
    interval,
    number,
    spread,
    summary,
)
from covey.runtime.auditing import Audit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_CLUSTERS = 12


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One of the few numbers at the top; each is a text that says if it is unknown."""

    title: str
    value: str
    note: str
    baseline: str | None


def run_view(run: Reported) -> dict[str, Any]:
    """Return everything that the template needs except the pictures."""
    history = _with_clusters(run.history)
    told = summary(history)
    baseline = _with_clusters(run.baseline) if run.baseline else None
    return {
        "name": run.name,
        "method": " ".join(filter(None, [method_of(run), selection_of(run)])),
        "started": history.started,
        "played": len(history.rounds),
        "summary": told,
        "baseline": summary(baseline) if baseline else None,
        "keys": _key_figures(run.history, run.baseline),
        "groups": group_sizes(history),
        "utility": utility(history).name,
        "violations": _counts(run.history),
        "baseline_violations": _counts(run.baseline) if run.baseline else None,
        "diverged": diverged_sentences(run.history),
        "baseline_diverged": diverged_sentences(run.baseline) if run.baseline else [],
        "happenings": happenings(history),
        "moved": sum(row.moved for row in history.rounds),
        "settings": _without_names(run.config_toml),
        "ledger_head": run.ledger_head,
    }


def _with_clusters(history: History) -> History:
    """Return the history with a line per cluster, even where the truth is not known."""
    if history.audits or not history.rounds:
        return history
    return replace(
        history,
        audits=tuple(
            ClusterAudited(j, clients, *[None] * 5, reason=NOT_FINISHED)
            for j, clients in enumerate(history.clusters_of_clients())
        ),
    )


def _key_figures(history: History, baseline: History | None) -> list[KeyFigure]:
    found = utility(history)
    name = found.name.capitalize()
    accuracy = {OVERALL: found.overall, **found.by_group}
    other = utility(baseline) if baseline else None
    beside = {OVERALL: other.overall, **other.by_group} if other else {}
    sizes = group_sizes(history)
    reason = "no round has been measured"
    keys = [
        KeyFigure(
            f"{name}, {who}",
            number(accuracy.get(who), reason),
            f"{sizes[who]} clients" if who in sizes else "on unseen data",
            number(beside.get(who), reason) if baseline else None,
        )
        for who in [OVERALL, *sizes][:3]
    ]
    if not sizes:
        keys.append(
            KeyFigure(f"{found.name.capitalize()}, minority", f"unknown: {NO_GROUPS}", "", None)
        )
    return [*keys, _violations_key(history, baseline), _agreement_key(history, baseline)]


def _violations_key(history: History, baseline: History | None) -> KeyFigure:
    counts = _counts(history)
    beside = _counts(baseline) if baseline else None
    return KeyFigure(
        "Violations",
        counts["now"],
        f"by the 95% lower bound: {counts['lower']}{counts['attacks']}",
        f"{beside['now']}; lower bound: {beside['lower']}{beside['attacks']}" if beside else None,
    )


def _agreement_key(history: History, baseline: History | None) -> KeyFigure:
    return KeyFigure(
        "Adjusted Rand index",
        _agreement(history),
        "clusters against true groups; 1 is equal, 0 is chance",
        _agreement(baseline) if baseline else None,
    )


def _agreement(history: History) -> str:
    if history.finished is None:
        return number(None, NOT_FINISHED)
    return number(history.finished.adjusted_rand_index, NO_GROUPS)


def _counts(history: History) -> dict[str, str]:
    """Return the violations as texts: how many of how many, or why that is unknown."""
    found = summary(history)["violations"]
    if found["count"] is None:
        unknown = number(None, found["reason"])
        keys = ("now", "lower", "exposed", "by_group")
        return {**dict.fromkeys(keys, unknown), "attacks": ""}
    known = len(history.exposures) - found["unknown"]
    rest = f" ({found['unknown']} more unknown)" if found["unknown"] else ""
    sizes = group_sizes(history)
    by_group = [f"{found['by_group'].get(g, 0)} of {n} {g}" for g, n in sizes.items()]
    return {
        "attacks": by_attacks(found),
        "now": f"{found['count']} of {known}{rest}",
        "lower": f"{found['count_lower']} of {known}{rest}",
        "exposed": number(None, found["reason"])
        if found["count_exposed"] is None
        else f"{found['count_exposed']} of {known}{rest}",
        "by_group": ", ".join(by_group) or f"unknown: {NO_GROUPS}",
    }


def _without_names(config_toml: str) -> str:
    """Return the settings; of clients left out only how many, as names stay private."""
    settings = tomllib.loads(config_toml)
    left_out = settings.get("population", {}).get("exclude")
    if not left_out:
        return config_toml
    settings["population"]["exclude"] = [f"{len(left_out)} names are not shown"]
    return tomli_w.dumps(settings)


def write_report(reported: Sequence[Reported], out: Path) -> Path:
    """Write the page to the file `out`, needing nothing beside it and no network.

    Of one run also `figures/*.png` and `metrics.csv` in the same folder. Several runs
    are compared instead.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if len(reported) == 1:
        write(out, _run_page(reported[0], out.parent))
    else:
        write(out, _comparison_page(reported))
    return out


def _run_page(run: Reported, folder: Path) -> bytes:
    from covey.report.figures import png

    pictures = {name: png(each) for name, each in _figures(run).items()}
    (folder / "figures").mkdir(exist_ok=True)
    for name, picture in pictures.items():
        write(folder / "figures" / f"{name}.png", picture)
    write(folder / "metrics.csv", metrics_csv(run.history).encode())
    return rendered("run.html", pictures, run_view(run) | {"most": MOST_CLUSTERS})


def _comparison_page(runs: Sequence[Reported]) -> bytes:
    from covey.report.figures import png
    from covey.report.more_figures import epsilon_figure, overlaid_accuracy, pareto_figure

    every = with_baselines(runs)
    named = labels(every)
    repeated = len(set(named)) < len(every)
    lines = named if repeated else [run.name for run in every]
    histories = [run.history for run in every]
    settings = means(runs)
    overlaid = overlaid_accuracy(list(zip(lines, histories, strict=True)))
    pictures = {"accuracy": png(overlaid), "pareto": png(pareto_figure(settings))}
    rows = comparison(runs)
    if any(row["epsilon"] is not None for row in rows):
        pictures["epsilon"] = png(epsilon_figure(rows))
    groups = dict.fromkeys(g for h in histories for g in group_sizes(h))
    told = {
        "rows": rows,
        "means": settings if repeated else [],
        "groups": list(groups),
        "baseline": BASELINE,
        "references": REFERENCES,
        "notes": dict.fromkeys(n for h in histories if h.started for n in h.started.notes),
    }
    return rendered("comparison.html", pictures, told)


def _figures(run: Reported) -> dict[str, "Figure"]:
    from covey.report.figures import accuracy_figure, clusters_figure, prices_figure, risk_figure
    from covey.report.more_figures import (
        fairness_figure,
        samples_figure,
        spent_figure,
        violations_figure,
    )

    drawn = {
        "accuracy": accuracy_figure(run.history, run.baseline),
        "risk": risk_figure(run.history),
        "clusters": clusters_figure(run.history),
        "violations": violations_figure(run.history),
        "fairness": fairness_figure(run.history),
    }
    if run.history.prices:
        drawn["prices"] = prices_figure(run.history)
    if guarantee_of(run.history)["guarantee"]:
        drawn["spent"] = spent_figure(run.history)
    if run.samples:
        drawn["samples"] = samples_figure(run.samples)
    return drawn


def rendered(
    template: str,
    pictures: Mapping[str, bytes],
    told: Mapping[str, Any],
    package: str = "covey.report",
) -> bytes:
    """Return a template's page with its pictures in it, by name, as PNG.

    Args:
        template: a file in the folder `templates` of `package`; it may extend and
            import covey's own.
        pictures: PNG, by the name that the template has for each.
        told: the template's other variables.
        package: whose template it is.
    """
    packages = dict.fromkeys((package, "covey.report"))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "number": number,
        "round_number": round_number,
        "estimate": estimate,
        "spread": spread,
        "interval": interval,
        "by_attacks": by_attacks,
    }
    encoded = {name: b64encode(each).decode() for name, each in pictures.items()}
    page = environment.get_template(template).render(pictures=encoded, promise=PROMISE, **told)
    return page.encode()


def write(path: Path, content: bytes) -> None:
    """Replace a page at once; pages name clients, so its owner alone may read it."""
    replace_whole(path, content, mode=0o600)


def write_explanation(told: Mapping[str, Any], run: str, out: Path) -> Path:
    """Write the page to the file `out`, needing nothing beside it and no network.

    Args:
        told: as `covey explain --json` prints it.
        run: the run's name.
        out: the file.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, rendered("explanation.html", {}, {**told, "run": run}))
    return out


def write_exposed_records(told: Mapping[str, Any], out: Path) -> Path:
    """Write the page to the file `out`, which its owner alone may read.

    It needs nothing beside it and no network.

    Args:
        told: as `covey records --json` prints it.
        out: the file.
    """
    make_folder(out.parent)
    content = rendered("exposed_records.html", {}, {"found": told})
    replace_whole(out, content, mode=0o600)
    return out


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
    from covey.report.figures import png, svg

    folder = run / "audit"
    folder.mkdir(exist_ok=True)
    pictures: dict[str, bytes] = {}
    for each in audit.clusters:
        if each.attacks:
            figure = _roc(each)
            name = f"roc-cluster-{each.cluster}"
            pictures[str(each.cluster)] = png(figure)
            write(folder / f"{name}.png", pictures[str(each.cluster)])
            write(folder / f"{name}.svg", svg(figure))
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
    from covey.report.more_figures import roc_figure

    title = (
        f"Cluster {examined.cluster}: {examined.members:,} members against "
        f"{examined.non_members:,} matched non-members"
    )
    curves = {
        f"{name}, AUC {attack.overall.auc.value:.3f}": attack.roc
        for name, attack in examined.attacks.items()
    }
    return roc_figure(title, curves, examined.members)
