"""The theory's experiments: what a theorem bounds, beside real runs, as cells and lines."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from covey_papers.reproduce.record import Cell, Found, Line, Printed
from covey_papers.reproduce.run_cache import Shelf, digest, sources
from covey_papers.reproduce.theory import (
    FULL,
    LIMITS,
    QUICK,
    Descent,
    Tilt,
    descents,
    tilts,
)

__all__ = ["bound_verdict", "contraction", "margin"]


def contraction(shelf: Shelf, *, quick: bool) -> Found:
    """Show by how much models near their optima, round by round, beside Theorem 4."""
    found = descents(QUICK if quick else FULL, shelf)
    by_name: dict[str, list[Descent]] = {}
    for each in found:
        by_name.setdefault(_named(each), []).append(each)
    return Found(
        cells=tuple(
            cell for name, same in by_name.items() for cell in _bounded(name, same)
        ),
        lines=tuple(
            line for name, same in by_name.items() for line in _ratios(name, same[0])
        ),
        notes=LIMITS,
        **sources(
            shelf.folder / digest(each.setting.config(each.method, each.seed))
            for each in found
        ),
    )


def margin(shelf: Shelf, *, quick: bool) -> Found:
    """Show who leaves the own group as beta grows, and whether the rule says so."""
    found = tilts(QUICK if quick else FULL, shelf)
    by_weight: dict[float, list[Tilt]] = {}
    for each in found:
        by_weight.setdefault(each.risk_weight, []).append(each)
    return Found(
        cells=tuple(
            cell for beta, same in by_weight.items() for cell in _left(beta, same)
        ),
        lines=tuple(_shares(by_weight)),
        notes=LIMITS,
        **sources(
            shelf.folder
            / digest(each.setting.config("ifca-mir", each.seed, each.risk_weight))
            for each in found
        ),
    )


def _named(each: Descent) -> str:
    shares = "/".join(f"{share:.0%}" for share in each.setting.shares)
    return f"groups {shares}, L / lambda = {each.setting.condition:g}, {each.method}"


def _bounded(name: str, same: Sequence[Descent]) -> Iterator[Cell]:
    def cell(measure: str, values: Sequence[float | None]) -> Cell:
        return Cell(name, "linear regressions", measure, tuple(values))

    worst = [None if math.isnan(each.worst) else each.worst for each in same]
    bound = Printed(same[0].bound, None, "Theorem 4, 1 - p lambda / (8 L)")
    says = bound_verdict([each.holds for each in same])
    yield replace(cell("largest contraction factor", worst), printed=bound, says=says)
    yield cell("1 - lambda / L", [each.expected for each in same])
    yield cell("its conditions hold", [float(each.start.holds) for each in same])
    yield cell("misassigned share", [each.misassigned for each in same])


def bound_verdict(runs: Sequence[bool | None]) -> str:
    """Say whether the bound held; None: a run had no step that could be judged."""
    if False in runs:
        return "ABOVE the bound in some step"
    if None in runs:
        return "not judged: in some run every step began at the noise floor"
    return "never above the bound"


def _ratios(name: str, each: Descent) -> Iterator[Line]:
    """Draw one seed's ratios while there is something to gain."""
    judged = [step for step in each.steps if step.judged]
    for j in sorted({step.cluster for step in judged}):
        points = [(float(s.round_index), s.ratio) for s in judged if s.cluster == j]
        yield Line(name, f"cluster {j}", tuple(points))
    rounds = sorted({float(step.round_index) for step in judged})
    ends = dict.fromkeys((*rounds[:1], *rounds[-1:]))
    yield Line(
        name,
        "bound 1 - p lambda / (8 L)",
        tuple((t, each.bound) for t in ends),
        bound=True,
    )
    yield Line(
        name, "1 - lambda / L", tuple((t, each.expected) for t in ends), bound=True
    )


def _left(beta: float, same: Sequence[Tilt]) -> Iterator[Cell]:
    def cell(measure: str, values: Sequence[float]) -> Cell:
        return Cell(f"beta = {beta:g}", "linear regressions", measure, tuple(values))

    yield cell("misassigned share", [each.misassigned for each in same])
    yield cell(
        "misassigned share, last round", [each.misassigned_at_last for each in same]
    )
    yield cell("choices checked", [float(len(each.choices)) for each in same])
    yield cell("choices against the rule", [float(each.unlawful) for each in same])
    yield cell("no risk could draw anybody away", [float(each.safe) for each in same])
    yield cell(
        "farthest model from its optimum", [max(each.distances) for each in same]
    )


def _shares(by_weight: dict[float, list[Tilt]]) -> Iterator[Line]:
    for name, of in (
        ("all rounds", lambda each: each.misassigned),
        ("last round", lambda each: each.misassigned_at_last),
    ):
        points = [(b, fmean(map(of, same))) for b, same in by_weight.items()]
        yield Line("misassigned share by beta", name, tuple(points))
