"""Self-contained pages: of one run, of several side by side, of an audit, of a client."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from covey.base.figure import Figure, number
from covey.base.files import make_folder, replace_whole
from covey.base.names import round_number
from covey.components.built_ins import BASELINE, REFERENCES
from covey.report.attacks import diverged_sentences
from covey.report.comparison import (
    comparison,
    labels,
    means,
    method_of,
    selection_of,
    settings_of,
    with_baselines,
)
from covey.report.queries import Reported, group_sizes, metrics_csv, rounds_table, utility
from covey.report.summary import PROMISE, by_attacks, happenings, spread
from covey.report.view import pictures_of, privacy_of, run_view
from covey.runtime.auditing import RATES, Audit
from covey.runtime.reading import Explanation

MOST_CLUSTERS = 12
"""That a page has a line for."""


def write_report(reported: Sequence[Reported], out: Path) -> Path:
    """Write the page to the file `out`, needing nothing beside it and no network.

    Of one run also `figures/*.svg` and `metrics.csv` in the same folder. Several runs
    are compared instead.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if len(reported) > 1:
        view, pictures = comparison_view(reported)
        write(out, rendered("comparison.html", pictures, view))
        return out
    (run,) = reported
    view, privacy = run_view(run), privacy_of(run)
    pictures = {name: drawn(run, name) for name in pictures_of(run)}
    if privacy.status.guarantee:
        pictures["spent"] = drawn(run, "spent")
    if run.samples:
        from covey.report.figures import samples_figure, svg

        pictures["samples"] = svg(samples_figure(run.samples))
    (out.parent / "figures").mkdir(exist_ok=True)
    for name, picture in pictures.items():
        write(out.parent / "figures" / f"{name}.svg", picture)
    write(out.parent / "metrics.csv", metrics_csv(run.history).encode())
    write(out, rendered("run.html", pictures, {"view": view, "privacy": privacy}))
    return out


def drawn(run: Reported, name: str) -> bytes:
    """Return one of a run's pictures as SVG."""
    from covey.report.figures import FIGURES, accuracy_figure, svg

    if name == "accuracy":
        return svg(accuracy_figure(run.history, run.baseline))
    return svg(FIGURES[name](run.history))


def comparison_view(runs: Sequence[Reported]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what the page of several runs says, and its pictures as SVG."""
    from covey.report.comparison_figures import epsilon_figure, overlaid_accuracy, pareto_figure
    from covey.report.figures import svg

    every = with_baselines(runs)
    settings = labels(every)
    is_repeated = len(set(settings)) < len(every)
    lines = settings if is_repeated else [run.name for run in every]
    histories = [run.history for run in every]
    rows, averages = comparison(runs), means(runs)
    pictures = {
        "accuracy": svg(overlaid_accuracy(list(zip(lines, histories, strict=True)))),
        "pareto": svg(pareto_figure(averages, [] if is_repeated else lines)),
    }
    if any(row["epsilon"] is not None for row in rows):
        pictures["epsilon"] = svg(epsilon_figure(rows))
    view = {
        "rows": rows,
        "means": averages if is_repeated else [],
        "groups": list(dict.fromkeys(g for h in histories for g in group_sizes(h))),
        "baseline": BASELINE,
        "references": REFERENCES,
        "notes": dict.fromkeys(n for h in histories if h.started for n in h.started.notes),
    }
    return view, pictures


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
        "diverged_sentences": diverged_sentences,
        "figure": Figure,
        "group_sizes": group_sizes,
        "happenings": happenings,
        "interval": interval,
        "method_of": method_of,
        "most": MOST_CLUSTERS,
        "number": number,
        "promise": PROMISE,
        "round_number": round_number,
        "rounds_table": rounds_table,
        "selection_of": selection_of,
        "settings_of": settings_of,
        "spread": spread,
        "utility": utility,
    }
    return environment


class Sources(dict[str, str]):
    """Where each picture of a page comes from; "" for one that is not there."""

    def __missing__(self, name: str) -> str:
        return ""


def embedded(pictures: Mapping[str, bytes]) -> Sources:
    """Return SVG as sources that need nothing beside the page."""
    kind = "data:image/svg+xml;base64,"
    return Sources({name: kind + b64encode(each).decode() for name, each in pictures.items()})


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
    page = templates(package).get_template(template)
    return page.render(pictures=embedded(pictures), **view).encode()


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
