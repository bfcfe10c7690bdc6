"""What `covey reproduce` runs: an experiment per table or figure, as data.

An experiment is a TOML file in `experiments/`: columns (data sets, shares of the minority) by
rows (methods), and what is measured in each. Its columns name a base, the settings that they
share with other experiments, so that runs are shared too.

An experiment also says why a paper's number may differ. A reason describes the method, with the
settings of the run filled in, or is composed of the figures beside it; it is never an
expectation.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from statistics import fmean
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field, ValidationError

from covey import Config, ConfigError
from covey.base.components import Section
from covey.settings.load import replace_setting, take_strange
from covey_papers.reproduce.record import Printed

Settings = Mapping[str, Any]
SectionType = TypeVar("SectionType", bound=Section)


ALIKE = 0.02
"""Two accuracies of an attack that are no further apart than this count as equal."""


class Base(Section):
    """Settings that several experiments share.

    Attributes:
        quick: what is set on top of them for a run of seconds.
    """

    settings: dict[str, Any]
    quick: dict[str, Any] = Field(default_factory=dict[str, Any])


class Column(Section):
    """A column of a table, or a place on a figure's horizontal axis.

    Attributes:
        base: the file in `bases/` with its settings.
        printed: its name in the paper, if it is another one.
    """

    name: str
    base: str
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    printed: str = ""


class TableRow(Section):
    """A row of a table, or a line of a figure.

    Attributes:
        printed: the paper's row, per measure.
        repeats: 0: the experiment's; fewer where one run is reference enough.
        bases: of the columns in which it is played; empty: all.
    """

    name: str
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    printed: dict[str, str] = Field(default_factory=dict[str, str])
    repeats: Annotated[int, Field(ge=0)] = 0
    bases: tuple[str, ...] = ()


class Quick(Section):
    """What a quick form leaves out and changes.

    Attributes:
        columns: those that are played; empty: all of them.
    """

    columns: tuple[str, ...] = ()
    repeats: Annotated[int, Field(gt=0)] = 1
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    k: tuple[int, ...] = ()
    x: tuple[int, ...] = ()


class Experiment(Section):
    """One table or figure.

    Attributes:
        paper: the file in `papers/` with the printed numbers.
        table: the table there; empty: nothing is printed as a number.
        shows: what to read off it.
        minutes: expected on two cores, quick and in full.
        axes: what a figure of lines shows along and up.
        measures: names of `measures.MEASURES`.
        against: the row that others are compared with, run by run.
        factors: measures of which `against`'s is divided by the others'.
        differences: measures from which `against`'s is taken away.
        distances: whether the final models' distance to `against`'s is measured.
        why: per measure, why the paper's number may lie outside the interval.
        k: sizes of anonymity sets (`kind = "leaving"`).
        x: members that must stay.
        baselines: how requests are answered without sets.
        on_top: what the command line sets, over all of it.
        is_quick: whether this is the quick form.
    """

    title: str
    kind: Literal[
        "federations", "violations", "leaving", "contraction", "margin", "samples", "arithmetic"
    ]
    paper: str
    shows: str
    minutes: tuple[float, float]
    table: str = ""
    figure: Literal["", "dots", "lines"] = ""
    axes: tuple[str, str] = ("", "")
    repeats: Annotated[int, Field(gt=0)] = 3
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    measures: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    rows: tuple[TableRow, ...] = ()
    against: str = ""
    factors: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    distances: bool = False
    why: dict[str, str] = Field(default_factory=dict[str, str])
    k: tuple[int, ...] = ()
    x: tuple[int, ...] = ()
    baselines: tuple[str, ...] = ()
    quick: Quick = Quick()
    on_top: dict[str, Any] = Field(default_factory=dict[str, Any])
    is_quick: bool = False

    def in_brief(self) -> "Experiment":
        """Return the quick form."""
        columns = self.quick.columns or tuple(column.name for column in self.columns)
        return self.model_copy(
            update={
                "is_quick": True,
                "repeats": self.quick.repeats,
                "columns": tuple(c for c in self.columns if c.name in columns),
                "k": self.quick.k or self.k,
                "x": self.quick.x or self.x,
            }
        )

    def rows_of(self, column: Column) -> Sequence[TableRow]:
        """Return the rows that are played in a column."""
        return [row for row in self.rows if column.base in (row.bases or (column.base,))]

    def settings_of(self, column: Column, row: TableRow) -> Settings:
        """Return what one cell's runs are set to, the seed aside.

        Of `on_top`, a cell takes what its components have.
        """
        base = _read(Base, f"bases/{column.base}.toml")
        layers = [
            base.settings,
            *([base.quick] if self.is_quick else []),
            self.settings,
            column.settings,
            row.settings,
            *([self.quick.settings] if self.is_quick else []),
            self.on_top,
        ]
        settings = in_layers(*layers)
        take_strange(settings, [".".join(path) for path, _ in _leaves(self.on_top, [])])
        return settings


def experiments() -> Mapping[str, Experiment]:
    """Return every experiment by its name, in the order of the names."""
    places = (files("covey_papers.reproduce") / "experiments").iterdir()
    names = (place.name for place in places if place.name.endswith(".toml"))
    return {name: experiment(name) for name in sorted(n[:-5] for n in names)}


def experiment(name: str) -> Experiment:
    """Read one experiment.

    Raises:
        ConfigError: there is none of that name.
    """
    place = files("covey_papers.reproduce") / "experiments" / f"{name}.toml"
    if not place.is_file():
        raise ConfigError(
            f"An experiment must be one of `covey reproduce --list`, found {name!r}: correct it."
        )
    return _read(Experiment, f"experiments/{name}.toml")


def _read(kind: type[SectionType], place: str) -> SectionType:
    text = (files("covey_papers.reproduce") / place).read_text(encoding="utf-8")
    try:
        return kind.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise ConfigError(f"{place} is no {kind.__name__.lower()}: {error}") from None


def in_layers(*layers: Settings) -> dict[str, Any]:
    """Return settings over each other, the last on top.

    Where a layer names another component, what that one does not know is forgotten.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        leaves = sorted(_leaves(layer, []), key=lambda leaf: (leaf[0][-1] != "name", len(leaf[0])))
        for path, value in leaves:
            replace_setting(merged, path, value)
    return merged


def _leaves(settings: Settings, above: list[str]) -> Iterator[tuple[list[str], object]]:
    for key, value in settings.items():
        path = [*above, key]
        if isinstance(value, Mapping):
            yield from _leaves(cast("Settings", value), path)
        else:
            yield path, value


Table = Mapping[tuple[str, str], Printed]
"""Row and column to what is printed there."""


def paper_title(paper: str) -> str:
    """Return a paper's authors, title and year."""
    return str(_paper(paper)["title"])


def printed_table(paper: str, name: str) -> Table:
    """Return one of a paper's tables.

    Raises:
        ConfigError: the data file of that paper has no such table.
    """
    tables = _paper(paper)["tables"]
    if name not in tables:
        raise ConfigError(
            f"table must be one of {', '.join(tables)} in {paper}.toml, found {name!r}: correct it."
        )
    columns, rows = tables[name]["columns"], tables[name]["rows"]
    return {
        (row, column): _printed(value, f"{name}, row {row}, column {column}")
        for row, values in rows.items()
        for column, value in zip(columns, values, strict=True)
    }


def _printed(value: float | list[float], where: str) -> Printed:
    if isinstance(value, list):
        return Printed(value[0], value[1], where)
    return Printed(value, None, where)


def _paper(paper: str) -> dict[str, Any]:
    place = files("covey_papers.reproduce") / "papers" / f"{paper}.toml"
    return tomllib.loads(place.read_text(encoding="utf-8"))


Values = Sequence[float | None]
"""One figure per repeat; None where it is unknown."""


def with_settings(text: str, config: Config) -> str:
    """Fill the settings of a run into a text: "{train.batch_size} images a step"."""
    return text.format(**dict(config))


def non_members_reason(matched: Values, pooled: Values, blind: Values) -> str:
    """Say what other non-members make of the same models, and whether it is membership.

    Args:
        matched: MIA accuracies against non-members that match the members.
        pooled: against non-members from the mixture of all groups.
        blind: accuracy, on the latter, of a classifier that never sees the model.
    """
    known = [_mean(values) for values in (matched, pooled, blind)]
    if any(mean is None for mean in known):
        return "What non-members that do not match make of the same models is unknown."
    own, mixture, without = (mean for mean in known if mean is not None)
    figures = (
        f"The figure is {own:.3f} against non-members that match the members (same file, "
        f"same group, same transform), and {mixture:.3f} against non-members drawn from "
        f"the mixture of the groups, where a classifier that never sees the model reaches "
        f"{without:.3f}"
    )
    return f"{figures}: {_verdict(mixture, without)}."


def _verdict(mixture: float, without: float) -> str:
    if mixture <= 0.5 + ALIKE:
        return "members cannot be distinguished there either"
    if without >= mixture - ALIKE:
        return "the mixture's figure is distribution shift, not membership"
    if without > 0.5 + ALIKE:
        return "a part of the mixture's figure is distribution shift"
    return "distribution shift does not explain the mixture's figure"


def _mean(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
