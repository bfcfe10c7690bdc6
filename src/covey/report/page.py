"""One self-contained page: of one run, or one that compares several."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from covey.atomic_io import replace_whole
from covey.components.built_ins import BASELINE, REFERENCES
from covey.report import figures
from covey.report.aggregate import means
from covey.report.metrics_file import metrics_csv
from covey.report.page_model import MOST_CLUSTERS, run_view
from covey.report.queries import Reported, group_sizes
from covey.report.run_comparison import comparison
from covey.report.run_labels import labels, with_baselines
from covey.report.run_summary import PROMISE, guarantee_of
from covey.report.wording import by_attacks, estimate, interval, number, spread
from covey.types import round_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    pictures = {name: figures.png(each) for name, each in _figures(run).items()}
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
    overlaid = figures.overlaid_accuracy(list(zip(lines, histories, strict=True)))
    pictures = {
        "accuracy": figures.png(overlaid),
        "pareto": figures.png(figures.pareto_figure(settings)),
    }
    rows = comparison(runs)
    if any(row["epsilon"] is not None for row in rows):
        pictures["epsilon"] = figures.png(figures.epsilon_figure(rows))
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


def _figures(run: Reported) -> dict[str, "Figure"]:
    drawn = {
        "accuracy": figures.accuracy_figure(run.history, run.baseline),
        "risk": figures.risk_figure(run.history),
        "clusters": figures.clusters_figure(run.history),
        "violations": figures.violations_figure(run.history),
        "fairness": figures.fairness_figure(run.history),
    }
    if run.history.prices:
        drawn["prices"] = figures.prices_figure(run.history)
    if guarantee_of(run.history)["guarantee"]:
        drawn["spent"] = figures.spent_figure(run.history)
    if run.samples:
        drawn["samples"] = figures.samples_figure(run.samples)
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
    page = environment.get_template(template).render(
        pictures=encoded, promise=PROMISE, **told
    )
    return page.encode()


def write(path: Path, content: bytes) -> None:
    """Replace a page at once; pages name clients, so its owner alone may read it."""
    replace_whole(path, content, mode=0o600)
