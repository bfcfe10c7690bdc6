"""Self-contained pages: of one run, of several side by side, of an audit, of a client."""

import json
import tomllib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from covey.base.built_ins import BASELINE, REFERENCES
from covey.base.figure import Figure, number
from covey.base.files import make_folder, replace_whole
from covey.base.names import round_number
from covey.leaving.places import Explanation
from covey.report.clients import diverged_sentences
from covey.report.comparison import comparison, labels, means, with_baselines
from covey.report.queries import (
    Reported,
    confusion_csv,
    group_sizes,
    metrics_csv,
    utility,
    utility_of,
)
from covey.report.summary import (
    PROMISE,
    Summary,
    by_attacks,
    describe_violations,
    happenings,
    spread,
    summary,
)
from covey.runs.auditing import Audit


def write_report(reported: Sequence[Reported], out: Path, *, alone: bool = False) -> Path:
    """Write the page to the file `out`, needing nothing beside it and no network.

    Of one run also `figures/*.svg` and `metrics.csv` in the same folder, unless `alone`.
    Several runs are compared instead.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if len(reported) > 1:
        view, pictures = comparison_view(reported)
        write(out, rendered("comparison.html", pictures, view))
        return out
    (run,) = reported
    view = run_view(run)
    pictures = {name: drawn(run, name) for name in pictures_of(run, view["summary"])}
    if not alone:
        make_folder(out.parent / "figures")
        for name, picture in pictures.items():
            write(out.parent / "figures" / f"{name}.svg", picture)
        if counts := view["summary"].confusion:
            write(out.parent / "figures" / "confusion.csv", confusion_csv(counts).encode())
        write(out.parent / "metrics.csv", metrics_csv(run.history).encode())
    write(out, rendered("run.html", pictures, view))
    return out


def run_view(run: Reported) -> dict[str, Any]:
    """Return what the page of a run says, but its pictures."""
    settings = tomllib.loads(run.config_toml)
    left_out = settings.get("population", {}).get("exclude")
    if left_out:  # names stay private
        settings["population"]["exclude"] = [f"{len(left_out)} names are not shown"]
    return {
        "reported": run,
        "summary": summary(run.history),
        "baseline": summary(run.baseline) if run.baseline else None,
        "shown_settings": tomli_w.dumps(settings) if left_out else run.config_toml,
    }


def pictures_of(run: Reported, known: Summary) -> list[str]:
    """Return the names of the pictures that say something of a run with this summary."""
    says = {
        "accuracy": True,
        "risk": True,
        "clusters": True,
        "violations": run.history.exposures,
        "fairness": known.fairness,
        "spent": known.privacy.guarantee,
        "samples": run.samples,
        "confusion": known.confusion,
    }
    return [name for name, is_there in says.items() if is_there]


def drawn(run: Reported, name: str) -> bytes:
    """Return one of a run's pictures as SVG."""
    from covey.report.figures import FIGURES, accuracy_figure, samples_figure, svg

    if name == "samples":
        return svg(samples_figure(run.samples or {}))
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
        loader=ChoiceLoader(
            [*map(PackageLoader, packages), PackageLoader("covey.report", "static")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["round_number"] = round_number
    environment.globals |= {
        "by_attacks": by_attacks,
        "describe_violations": describe_violations,
        "diverged_sentences": diverged_sentences,
        "figure": Figure,
        "group_sizes": group_sizes,
        "happenings": happenings,
        "most": 12,  # clusters that a page has a line for
        "number": number,
        "promise": PROMISE,
        "spread": spread,
        "utility": utility,
        "utility_of": utility_of,
    }
    return environment


def embedded(pictures: Mapping[str, bytes]) -> dict[str, str]:
    """Return SVG as sources of images that need nothing beside the page."""
    kind = "data:image/svg+xml;base64,"
    return {name: kind + b64encode(picture).decode() for name, picture in pictures.items()}


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


def write_audit(audit: Audit, run: Path) -> None:
    """Write `audit/` into the run's folder.

    audit.json  audit.html  roc-cluster-J.svg
    """
    from covey.report.comparison_figures import roc_figure
    from covey.report.figures import svg

    folder = run / "audit"
    make_folder(folder)
    pictures: dict[str, bytes] = {}
    for cluster in audit.clusters:
        if cluster.attacks:
            curves = {
                f"{name}, AUC {attack.overall.auc.value:.3f}": attack.roc
                for name, attack in cluster.attacks.items()
            }
            sides = (
                f"{cluster.members:,} members against {cluster.non_members:,} matched non-members"
            )
            figure = roc_figure(f"Cluster {cluster.cluster}: {sides}", curves, cluster.members)
            pictures[str(cluster.cluster)] = svg(figure)
            write(folder / f"roc-cluster-{cluster.cluster}.svg", pictures[str(cluster.cluster)])
    view = {"name": run.name, "audit": audit}
    write(folder / "audit.html", rendered("audit.html", pictures, view))
    content = json.dumps(asdict(audit), indent=1, allow_nan=False)
    write(folder / "audit.json", content.encode())
