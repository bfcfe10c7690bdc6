"""Self-contained pages: of one run, of several side by side, of an audit, of a client."""

import json
import tomllib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from covey.base.events import ClusterAudited
from covey.base.figure import Figure, RiskEstimate, number
from covey.base.files import make_folder, replace_whole
from covey.base.history import History
from covey.base.names import round_number
from covey.components.built_ins import BASELINE, REFERENCES
from covey.dp.status import guarantee_status
from covey.report.attacks import NOT_FINISHED, diverged_sentences
from covey.report.comparison import (
    comparison,
    labels,
    means,
    method_of,
    selection_of,
    with_baselines,
)
from covey.report.queries import OVERALL, Reported, group_sizes, metrics_csv, rounds_table, utility
from covey.report.summary import (
    NO_GROUPS,
    PROMISE,
    Summary,
    Violations,
    by_attacks,
    happenings,
    spread,
    summary,
)
from covey.runtime.auditing import RATES, Audit
from covey.runtime.leaving import Explanation

MOST_CLUSTERS = 12

PICTURES: Mapping[str, tuple[str, str]] = {
    "accuracy": (
        "Accuracy, or squared error of numbers, per round, overall and by group",
        "On unseen data like each client's own, under the model that it uses. A mean can hide a "
        "group that is left behind. The last point is every client's final choice.",
    ),
    "risk": (
        "Measured risk per cluster over the rounds, and the true risk at the end",
        "The chance that an attacker who sees the model tells a training record from a new one; "
        "0.5 is a coin. Bars are one standard error either way. The red team's figures are what "
        "clients chose by; the true audit is what only a simulation knows.",
    ),
    "clusters": (
        "Clients per cluster and moves, per round",
        "How many clients sit in each cluster by their latest choice, and how many of a round's "
        "clients chose another cluster than before.",
    ),
    "prices": (
        "Subsidy of each cluster per round, and the share of clients in it and wanting it",
        "A cluster's price rises while fewer clients want it than the target (dashed), and falls "
        "to 0 where enough want it anyway. Bold: the clients in it; pale: those that want it at "
        "the posted price.",
    ),
    "violations": (
        "Each client's threshold against the risk of its final model",
        "Clients from the most to the least careful. Filled points above the line are violations; "
        "where the bar (one standard error) reaches the line, chance may have made it so. A pale "
        "dash is the riskiest model that the client ever trained: moving away takes nothing back.",
    ),
    "spent": (
        "Epsilon after so many merges",
        "What all releases so far cost together. Rounds that were rolled back count: what they "
        "released stays released.",
    ),
    "fairness": ("Mean and maximum of each gap between groups, with p-values", ""),
    "samples": ("Sample images of each group", "A few images of each group, as a model sees them."),
}
"""What is drawn of a run: the words of who does not see it, and what stands below it."""


VIOLATIONS = "Violations"


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One of the few numbers at the top; each is a text that says if it is unknown."""

    title: str
    value: str
    note: str
    baseline: str | None = None


def run_view(run: Reported) -> dict[str, Any]:
    """Return everything that pages of a run say, but the pictures."""
    history = run.history
    figures, keys, counts = _figures(history)
    view = {
        "name": run.name,
        "method": " ".join(filter(None, [method_of(run), selection_of(run)])),
        "started": history.started,
        "played": len(history.rounds),
        "summary": figures,
        "baseline": None,
        "keys": keys,
        "utility": utility(history).name,
        "violations": counts,
        "baseline_violations": None,
        "diverged": diverged_sentences(history),
        "baseline_diverged": [],
        "happenings": happenings(history),
        "moved": sum(row.moved for row in history.rounds),
        "rounds": rounds_table(history),
        "settings": _without_names(run.config_toml),
        "ledger_head": run.ledger_head,
    }
    if run.baseline is not None:
        view["baseline"], others, view["baseline_violations"] = _figures(run.baseline)
        view["baseline_diverged"] = diverged_sentences(run.baseline)
        known = {
            each.title: f"{each.value}; {each.note}" if each.title == VIOLATIONS else each.value
            for each in others
        }
        view["keys"] = [replace(k, baseline=known.get(k.title, "unknown")) for k in keys]
    return view


def _figures(history: History) -> tuple[Summary, list[KeyFigure], dict[str, str]]:
    """Return a run's summary, the numbers at the top, and its violations as texts."""
    if not history.audits and history.rounds:  # a line per cluster before the truth is known
        none, clusters = RiskEstimate.unknown(NOT_FINISHED), len(history.clusters_of_clients())
        unknown = [ClusterAudited(j, none, none.figure, none.figure) for j in range(clusters)]
        history = replace(history, audits=tuple(unknown))
    figures, sizes = summary(history), group_sizes(history)
    counts = _counts(figures.violations, len(history.exposures), sizes)
    quality = utility(history)
    by_group = {OVERALL: quality.overall, **quality.by_group}
    keys = [
        KeyFigure(
            f"{quality.name.capitalize()}, {group}",
            number(by_group.get(group), "no round has been measured"),
            f"{sizes[group]} clients" if group in sizes else "on unseen data",
        )
        for group in [OVERALL, *sizes][:3]
    ]
    if not sizes:
        title = f"{quality.name.capitalize()}, minority"
        keys.append(KeyFigure(title, f"unknown: {NO_GROUPS}", ""))
    lower = f"by the 95% lower bound: {counts['lower']}{counts['attacks']}"
    keys.append(KeyFigure(VIOLATIONS, counts["now"], lower))
    why = NO_GROUPS if figures.finished else NOT_FINISHED
    index = number(figures.adjusted_rand_index, why)
    meaning = "clusters against true groups; 1 is equal, 0 is chance"
    keys.append(KeyFigure("Adjusted Rand index", index, meaning))
    return figures, keys, counts


def _counts(violations: Violations, clients: int, sizes: Mapping[str, int]) -> dict[str, str]:
    """Return the violations as texts: how many of how many, or why that is unknown."""
    reason = number(None, violations.reason)
    if violations.count is None:
        return {**dict.fromkeys(("now", "lower", "exposed", "by_group"), reason), "attacks": ""}
    more = f" ({violations.unknown} more unknown)" if violations.unknown else ""

    def text(count: int | None) -> str:
        return reason if count is None else f"{count} of {clients - violations.unknown}{more}"

    by_group = [f"{(violations.by_group or {}).get(g, 0)} of {n} {g}" for g, n in sizes.items()]
    return {
        "now": text(violations.count),
        "lower": text(violations.count_lower),
        "exposed": text(violations.count_exposed),
        "by_group": ", ".join(by_group) or f"unknown: {NO_GROUPS}",
        "attacks": by_attacks(violations),
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

    Of one run also `figures/*.svg` and `metrics.csv` in the same folder. Several runs
    are compared instead.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if len(reported) > 1:
        write(out, _comparison_page(reported))
        return out
    (run,) = reported
    pictures = _pictures(run)
    (out.parent / "figures").mkdir(exist_ok=True)
    for name, picture in pictures.items():
        write(out.parent / "figures" / f"{name}.svg", picture)
    write(out.parent / "metrics.csv", metrics_csv(run.history).encode())
    write(out, rendered("run.html", pictures, run_view(run) | {"most": MOST_CLUSTERS}))
    return out


def _pictures(run: Reported) -> dict[str, bytes]:
    from covey.report.figures import FIGURES, accuracy_figure, samples_figure, svg

    names = {"risk", "clusters", "violations", "fairness"}
    names |= {"prices"} if run.history.prices else set()
    names |= {"spent"} if guarantee_status(run.history).guarantee else set()
    pictures = {"accuracy": svg(accuracy_figure(run.history, run.baseline))}
    pictures |= {name: svg(FIGURES[name](run.history)) for name in sorted(names)}
    return pictures | ({"samples": svg(samples_figure(run.samples))} if run.samples else {})


def _comparison_page(runs: Sequence[Reported]) -> bytes:
    from covey.report.comparison_figures import epsilon_figure, overlaid_accuracy, pareto_figure
    from covey.report.figures import svg

    every = with_baselines(runs)
    settings = labels(every)
    repeated = len(set(settings)) < len(every)
    lines = settings if repeated else [run.name for run in every]
    histories = [run.history for run in every]
    rows, averages = comparison(runs), means(runs)
    pictures = {
        "accuracy": svg(overlaid_accuracy(list(zip(lines, histories, strict=True)))),
        "pareto": svg(pareto_figure(averages)),
    }
    if any(row["epsilon"] is not None for row in rows):
        pictures["epsilon"] = svg(epsilon_figure(rows))
    view = {
        "rows": rows,
        "means": averages if repeated else [],
        "groups": list(dict.fromkeys(g for h in histories for g in group_sizes(h))),
        "baseline": BASELINE,
        "references": REFERENCES,
        "notes": dict.fromkeys(n for h in histories if h.started for n in h.started.notes),
    }
    return rendered("comparison.html", pictures, view)


@cache
def templates(package: str = "covey.report") -> Environment:
    """Return a package's templates, which may extend and import covey's own."""
    packages = dict.fromkeys((package, "covey.report"))
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "by_attacks": by_attacks,
        "captions": PICTURES,
        "figure": Figure,
        "interval": interval,
        "number": number,
        "promise": PROMISE,
        "round_number": round_number,
        "spread": spread,
    }
    return environment


def interval(figure: Mapping[str, Any]) -> str:
    """Return a figure as JSON has it, for a table whose reasons stand below it."""
    return Figure(**figure).cell


def rendered(
    template: str,
    pictures: Mapping[str, bytes],
    view: Mapping[str, Any],
    package: str = "covey.report",
) -> bytes:
    """Return a template's page with its pictures in it, by name, as SVG.

    Args:
        template: a file in the folder `templates` of `package`.
        pictures: SVG, by the name that the template has for each.
        view: the template's other variables.
        package: whose template it is.
    """
    kind = "data:image/svg+xml;base64,"
    encoded = {name: kind + b64encode(each).decode() for name, each in pictures.items()}
    return templates(package).get_template(template).render(pictures=encoded, **view).encode()


def write(path: Path, content: bytes) -> None:
    """Replace a page at once; pages name clients, so its owner alone may read it."""
    replace_whole(path, content, mode=0o600)


def write_explanation(explanation: Explanation, run: str, out: Path) -> None:
    """Write what is held on a client as a page to the file `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, rendered("explanation.html", {}, {**asdict(explanation), "run": run}))


def write_exposed_records(answer: Mapping[str, Any], out: Path) -> Path:
    """Write a client's most exposed records as a page that its owner alone may read."""
    make_folder(out.parent)
    write(out, rendered("exposed_records.html", {}, {"found": answer}))
    return out


def write_audit(audit: Audit, run: Path) -> None:
    """Write `audit/` into the run's folder.

    audit.json  audit.html  roc-cluster-J.svg
    """
    from covey.report.comparison_figures import roc_figure
    from covey.report.figures import svg

    folder = run / "audit"
    folder.mkdir(exist_ok=True)
    pictures: dict[str, bytes] = {}
    for each in audit.clusters:
        if each.attacks:
            curves = {
                f"{name}, AUC {attack.overall.auc.value:.3f}": attack.roc
                for name, attack in each.attacks.items()
            }
            sides = f"{each.members:,} members against {each.non_members:,} matched non-members"
            figure = roc_figure(f"Cluster {each.cluster}: {sides}", curves, each.members)
            pictures[str(each.cluster)] = svg(figure)
            write(folder / f"roc-cluster-{each.cluster}.svg", pictures[str(each.cluster)])
    found = asdict(audit)
    view = {"name": run.name, "audit": found, "rows": audit_rows(found)}
    write(folder / "audit.html", rendered("audit.html", pictures, view))
    write(folder / "audit.json", json.dumps(found, indent=1, allow_nan=False).encode())


def audit_rows(answer: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the overall figures as texts, one row per cluster and attack."""
    return [
        {"cluster": str(each["cluster"]), "attack": name}
        | {rate: interval(attack["overall"][rate]) for rate in RATES}
        for each in answer["clusters"]
        for name, attack in each["attacks"].items()
    ]
