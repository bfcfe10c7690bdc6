"""One self-contained page: of one run, or one that compares several."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from covey.components.built_ins import BASELINE, REFERENCES
from covey.report.aggregate import means
from covey.report.figures import (
    accuracy_figure,
    clusters_figure,
    epsilon_figure,
    fairness_figure,
    heads_figure,
    overlaid_accuracy,
    pareto_figure,
    png,
    prices_figure,
    risk_figure,
    samples_figure,
    spent_figure,
    violations_figure,
    weights_figure,
)
from covey.report.metrics_file import metrics_csv
from covey.report.page_model import MOST_CLUSTERS, run_view
from covey.report.queries import Reported, group_sizes
from covey.report.run_comparison import comparison
from covey.report.run_labels import labels, with_baselines
from covey.report.run_summary import PROMISE, guarantee_of
from covey.report.wording import estimate, interval, number, spread

__all__ = ["rendered", "write", "write_report"]


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
    pictures = {name: png(figure) for name, figure in _figures(run).items()}
    (folder / "figures").mkdir(exist_ok=True)
    for name, picture in pictures.items():
        write(folder / "figures" / f"{name}.png", picture)
    write(folder / "metrics.csv", metrics_csv(run.history).encode())
    return rendered("run.html", pictures, run_view(run) | {"most": MOST_CLUSTERS})


def _comparison_page(runs: Sequence[Reported]) -> bytes:
    every = with_baselines(runs)
    named = labels(every)
    repeated = len(set(named)) < len(every)
    lines = named if repeated else [run.name for run in every]
    histories = [run.history for run in every]
    settings = means(runs)
    pictures = {
        "accuracy": png(overlaid_accuracy(list(zip(lines, histories, strict=True)))),
        "pareto": png(pareto_figure(settings)),
    }
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
        "notes": dict.fromkeys(
            n for h in histories if h.started for n in h.started.notes
        ),
    }
    return rendered("comparison.html", pictures, told)


def _figures(run: Reported) -> dict[str, Figure]:
    figures = {
        "accuracy": accuracy_figure(run.history, run.baseline),
        "risk": risk_figure(run.history),
        "clusters": clusters_figure(run.history),
        "violations": violations_figure(run.history),
        "fairness": fairness_figure(run.history),
    }
    if run.history.prices:
        figures["prices"] = prices_figure(run.history)
    if run.history.heads_chosen:
        figures["heads"] = heads_figure(run.history)
    if run.history.weights_chosen is not None:
        figures["weights"] = weights_figure(run.history)
    if guarantee_of(run.history)["guarantee"]:
        figures["spent"] = spent_figure(run.history)
    if run.samples:
        figures["samples"] = samples_figure(run.samples)
    return figures


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
        "estimate": estimate,
        "spread": spread,
        "interval": interval,
    }
    encoded = {name: b64encode(each).decode() for name, each in pictures.items()}
    page = environment.get_template(template).render(
        pictures=encoded, promise=PROMISE, **told
    )
    return page.encode()


def write(path: Path, content: bytes) -> None:
    """Replace a file at once, so that nobody ever reads half a page."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)
