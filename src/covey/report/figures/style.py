"""One look for every figure: quiet axes, and colours that everybody can tell apart."""

from collections.abc import Sequence
from io import BytesIO

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from covey.types import round_number

__all__ = [
    "CLUSTERS",
    "GROUPS",
    "INK",
    "MARKERS",
    "MISSING",
    "Picture",
    "canvas",
    "cycled",
    "key",
    "legend",
    "lettering",
    "png",
    "quiet",
    "say",
    "svg",
    "whole_rounds",
]

INK = "#222222"
MISSING = "#999999"
GROUPS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's."""
CLUSTERS = (
    "#332288",
    "#44AA99",
    "#CC6677",
    "#DDCC77",
    "#882255",
    "#88CCEE",
    "#117733",
    "#AA4499",
)
"""Paul Tol's muted: other hues than the groups', which are not the clusters."""
MARKERS = "osD^vP*X"
WIDTH = 8.0
SCREEN = 100
"""Dots per inch in a notebook, which shows a dot as a pixel."""


class Picture(Figure):
    """A figure that a notebook shows, whether or not pyplot was ever imported."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=SCREEN)
        return buffer.getvalue()


def canvas(height: float = 3.6) -> tuple[Figure, Axes]:
    """Return a blank figure, 800 pixels wide at 100 per inch, and its only axes."""
    figure = Picture(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.add_subplot()


def quiet(axes: Axes, title: str, down: str, along: str) -> None:
    """Name the axes, and take away the ink that says nothing."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    axes.set_xlabel(along, fontsize=9.5, color=INK)
    axes.set_ylabel(down, fontsize=9.5, color=INK)
    axes.tick_params(labelsize=9, colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(MISSING)
    axes.grid(visible=True, axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def whole_rounds(axes: Axes, end: int) -> None:
    """Let the horizontal axis run from the first round, called 1, to the end of the run."""
    axes.set_xlim(-0.6, end + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))

    def label(t: float, _: float | int) -> str:
        return "end" if t == end else str(round_number(int(t)))

    axes.xaxis.set_major_formatter(FuncFormatter(label))


def legend(figure: Figure, handles: Sequence[Artist], columns: int = 4) -> None:
    """Put the legend below the axes, where no data are."""
    if handles:
        figure.legend(
            handles=list(handles),
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            fontsize=9,
            frameon=False,
            labelcolor=INK,
        )


def say(axes: Axes, sentence: str) -> None:
    """Write in grey why there is nothing to see."""
    axes.text(
        0.5,
        0.5,
        sentence,
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=10,
        color="#666666",
        wrap=True,
    )


def key(marker: str, label: str, colour: str, face: str | None = None) -> Line2D:
    """Return a legend's entry for a kind of point; `face` where it is not filled."""
    return Line2D(
        [],
        [],
        linestyle="",
        marker=marker,
        color=colour,
        markerfacecolor=face or colour,
        label=lettering(label),
    )


def lettering(text: str) -> str:
    """Return a name such that matplotlib neither reads it as a formula nor hides it."""
    shown = text.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def cycled(colours: Sequence[str], index: int) -> str:
    """Return the colour of the index-th thing; beyond the last they begin again."""
    return colours[index % len(colours)]


def png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes, sharp on dense screens, equal for equal figures."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=180, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """Return a figure as SVG bytes, equal for equal figures."""
    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "covey"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
