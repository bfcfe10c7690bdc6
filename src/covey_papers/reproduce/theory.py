"""Theorem 4 of IFCA-MIR beside real runs, and what follows from the papers' printed tables.

The runs are on a mixture of regressions, whose best models are known.

With learning rate 1/L, p the smallest group's share of the clients, and lambda and L the smallest
and largest eigenvalue of the Hessian of a group's mean loss, the theorem says

    ||theta_j' - theta*_j|| <= (1 - p lambda / (8 L)) ||theta_j - theta*_j|| + eps_0

if every round starts close enough to the optima (`Start`). `descent` measures that where no
client minds the risk (beta = 0). Where clients do, `tilt` checks the rule by which they leave
their own group, client by client, and counts who left.

References:
    Jung, Biswas, Palamidessi, IFCA-MIR, 2025, section 4.4.
    Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
    Learning, 2020, Theorem 2: its proof is all that the paper refers to.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from covey import ServerState
from covey_papers.linear_mixture import LinearMixture
from covey_papers.reproduce.corollary import promise
from covey_papers.reproduce.mixtures import (
    FinishedRun,
    Method,
    MixtureSetting,
    Start,
    models_of,
    played,
)
from covey_papers.reproduce.record import (
    Cell,
    FigureLine,
    Findings,
    Printed,
    RunCache,
    commit,
    digest,
    sources_of,
)
from covey_papers.reproduce.specification import Experiment, printed_table

ABOVE_FLOOR = 3.0
"""A step is judged while the distance before it is over so many noise floors."""

LIMITS = (
    "Theorem 4 assumes that alpha_i f + beta_i l is strongly convex and smooth in theta. "
    "The measured risk l is neither: it is a share of records on one side of a threshold, "
    "a step function of the model with gradient 0 almost everywhere.",
    "Clients descend on f alone (Algorithm 1, line 13), so with beta > 0 models head for "
    "the optima of f, and not for those of alpha_i f + beta_i l that the theorem names.",
    "The paper gives no proof of its own: it refers to Ghosh et al., whose clients choose "
    "by the loss alone. With beta > 0 nothing in that proof bounds who leaves their group.",
    "In Ghosh et al. the server divides by all clients, which is where p comes from; in "
    "Algorithm 1, line 17, and in covey it divides by the cluster's own. So the rate to "
    "expect of a step of 1 / L is 1 - lambda / L, whatever p is: it stands beside the "
    "bound, which p makes looser.",
    "Runs start from the true groups (an oracle) for their first rounds, because the "
    "theorem starts near the optima; those rounds are not judged.",
)
"""What a reader of the figures must know."""


TILTED = MixtureSetting(
    shares=(0.15, 0.85),
    clients=40,
    examples=10,
    dimension=40,
    noise=0.5,
    separation=0.5,
    condition=1.0,
    rounds=16,
    step=0.5,
)
"""A small group whose model fits its 60 examples exactly; a full step would diverge."""

DESCENTS = (
    *(
        MixtureSetting(shares=shares, condition=condition)
        for shares in ((0.5, 0.5), (0.3, 0.7))
        for condition in (2.0, 4.0, 8.0)
    ),
    MixtureSetting(shares=(0.25,) * 4, examples=300),
)

DATA = "linear regressions"

METHODS: Sequence[Method] = ("ifca", "ifca-mir")

RISK_WEIGHTS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)

QUICK_RISK_WEIGHTS = (0.0, 0.3, 0.5, 0.6, 0.7, 1.0)

SEEDS = (0, 1, 2)
"""In the quick form only the first."""

CLAIMS = {
    "abstract, lower end": 1.6,
    "abstract, upper end": 500_769.0,
    "section 4, k = 8, FMNIST, non-iid": 500_769.0,
}
"""The abstract: "1.6-500769 times"; section 4: "k = 8 for FMNIST in noniid setting"."""

TIMES = "times faster"

TABLES = {"Table 4": "LeNet-5", "Table 5": "ResNet-mini"}


def contraction_bound(share: float, smallest: float, largest: float) -> float:
    """Return 1 - p lambda / (8 L), by which the distance shrinks in a round, or more."""
    return 1 - share * smallest / (8 * largest)


def noise_floor(mixture: LinearMixture, examples: int) -> float:
    """Return how far least squares on so many examples ends from theta*, root mean square.

    sqrt(noise^2 tr(H^-1) / N), H the Hessian; what no number of rounds gets below
    """
    inverse = float((1 / mixture.spectrum).sum())
    return mixture.noise * math.sqrt(inverse / examples)


def safe_risk_weight(smallest: float, apart: float) -> float:
    """Return the beta below which no risk can draw a client from its group's optimum.

    At the optima another group's model loses lambda Delta^2 / 2 more, or more than that,
    and its risk is lower by 1/2 at most, as long as no figure is below 1/2 by chance:
    (1 - beta) lambda Delta^2 / 2 > beta / 2. That is of mean losses: on a few examples, or
    before the optima, some stray at beta = 0 too.
    """
    gap = smallest * apart**2
    return gap / (gap + 1)


@dataclass(frozen=True, slots=True)
class DescentStep:
    """One cluster's model in one round.

    Attributes:
        before, after: its distance from its group's optimum.
        floor: what it can reach (`noise_floor`), with its own group's examples.
    """

    cluster: int
    round_index: int
    before: float
    after: float
    floor: float

    @property
    def ratio(self) -> float:
        """By how much the distance shrank; above 1 it grew."""
        return self.after / self.before

    @property
    def judged(self) -> bool:
        """Whether there was still something to gain."""
        return self.before > ABOVE_FLOOR * self.floor


@dataclass(frozen=True, slots=True)
class Descent:
    """A run in which no client minds the risk, beside the theorem's bound.

    Attributes:
        bound: 1 - p lambda / (8 L).
        expected: 1 - lambda / L, which exact gradients would reach in the end.
        start: whether the theorem's conditions hold where clients first choose.
        steps: of every cluster, from there on.
        misassigned: share of all choices that were not for the client's own group.
    """

    bound: float
    expected: float
    start: Start
    steps: tuple[DescentStep, ...]
    misassigned: float

    @property
    def worst(self) -> float:
        """The largest ratio among the steps that are judged; NaN if none is."""
        return max((s.ratio for s in self.steps if s.judged), default=math.nan)

    @property
    def holds(self) -> bool | None:
        """Whether every step that is judged shrank by the bound, or more; None: none is."""
        return None if math.isnan(self.worst) else self.worst <= self.bound


@dataclass(frozen=True, slots=True)
class Choice:
    """One client's choice in one round, as the rule says, and as it was.

    Attributes:
        risk_weight: beta; 0 where a risk was unknown, and the loss alone decided.
        loss_gap: f of the other cluster's model on the client's examples, less f of its
            own group's. The other is the one that it would take instead.
        risk_gap: risk of its own, less the risk of the other, as measured.
        first: whether its own comes first: of equal costs the first cluster is taken.
        joined: whether it joined its own.
    """

    risk_weight: float
    loss_gap: float
    risk_gap: float
    first: bool
    joined: bool

    @property
    def margin(self) -> float:
        """What the client loses by leaving, alpha * loss gap - beta * risk gap."""
        beta = self.risk_weight
        return (1 - beta) * self.loss_gap - beta * self.risk_gap

    @property
    def lawful(self) -> bool:
        """Whether the client joined its own exactly if the margin is positive."""
        stays = self.margin > 0 or (self.margin == 0 and self.first)
        return stays == self.joined


@dataclass(frozen=True, slots=True)
class Tilt:
    """A run in which every client weighs the measured risk with the same beta.

    Attributes:
        safe: whether beta is below `safe_risk_weight`, so that only chance misassigns.
        choices: between the client's own group's cluster and another; once no client
            trains a cluster, it is offered no more.
        misassigned: share of all choices that were not for the client's own group.
        misassigned_at_last: the same in the last round.
        distances: of each cluster's last model from its group's optimum.
    """

    safe: bool
    choices: tuple[Choice, ...]
    misassigned: float
    misassigned_at_last: float
    distances: tuple[float, ...]

    @property
    def unlawful(self) -> int:
        """How many choices were not what the margin says: 0, or something is wrong."""
        return sum(not choice.lawful for choice in self.choices)


def descent(setting: MixtureSetting, method: Method, seed: int, cache: RunCache) -> Descent:
    """Play a run without any weight on the risk, and measure every step."""
    run = played(setting, setting.config(method, seed), cache)
    floors = [noise_floor(setting.mixture, n) for n in run.examples]
    steps = [
        DescentStep(j, t, before, after, floors[j])
        for t, (first, then) in zip(run.free, pairwise(run.free_states), strict=True)
        for j, (before, after) in enumerate(
            zip(run.distances(first), run.distances(then), strict=True)
        )
    ]
    share = min(run.shares)
    return Descent(
        bound=contraction_bound(share, setting.smallest, setting.largest),
        expected=1 - setting.smallest / setting.largest,
        start=run.start(),
        steps=tuple(steps),
        misassigned=run.misassigned(run.free),
    )


def tilt(setting: MixtureSetting, risk_weight: float, seed: int, cache: RunCache) -> Tilt:
    """Play a run in which every client weighs the risk, and check every choice."""
    config = setting.config("ifca-mir", seed, risk_weight)
    run = played(setting, config, cache)
    return Tilt(
        safe=risk_weight < safe_risk_weight(setting.smallest, setting.apart),
        choices=tuple(_choices(run)),
        misassigned=run.misassigned(run.free),
        misassigned_at_last=run.misassigned(run.free[-1:]),
        distances=run.distances(run.states[-1]),
    )


def _choices(run: FinishedRun) -> Iterator[Choice]:
    """Yield every choice in which a client's own group's cluster was offered."""
    for t in run.free:
        before, after = run.states[t], run.states[t + 1]
        offered = np.array(before.available())
        if offered.sum() < 2:
            continue
        risks = _known_risks(after, offered)
        thetas = models_of(before)
        for client in run.clients:
            own = client.group or 0
            if not offered[own]:
                continue
            beta = 0.0 if risks is None else client.preference.risk_weight
            x = client.train.inputs.double().numpy()
            y = client.train.labels.double().numpy()
            losses = ((y[:, None] - x @ thetas.T) ** 2 / 2).mean(axis=0)
            known = np.zeros(len(offered)) if risks is None else risks
            others = offered & (np.arange(len(offered)) != own)
            other = int(np.where(others, (1 - beta) * losses + beta * known, np.inf).argmin())
            yield Choice(
                risk_weight=beta,
                loss_gap=float(losses[other] - losses[own]),
                risk_gap=float(known[own] - known[other]),
                first=own < other,
                joined=run.clusters[t][client.handle] == own,
            )


def _known_risks(
    state: ServerState, offered: Bool[ndarray, " groups"]
) -> Float[ndarray, " groups"] | None:
    """Return the risks; None while that of an offered cluster is unknown: loss alone decides."""
    figures = state.risk_estimates()
    if any(f is None for f, can in zip(figures, offered, strict=True) if can):
        return None
    return np.array([f.risk if f else math.nan for f in figures])


def contraction(experiment: Experiment, cache: RunCache) -> Findings:
    """Show by how much models near their optima, round by round, beside Theorem 4."""
    cells, lines, paths = list[Cell](), list[FigureLine](), list[Path]()
    seeds = SEEDS[:1] if experiment.is_quick else SEEDS
    settings = [MixtureSetting()] if experiment.is_quick else DESCENTS
    for setting, method in product(settings, METHODS):
        name = f"{_named(setting)}, {method}"
        same = [descent(setting, method, seed, cache) for seed in seeds]
        cells += _bounded(name, same)
        lines += _ratios(name, same[0])
        paths += [cache.folder / digest(setting.config(method, seed)) for seed in seeds]
    notes = (*LIMITS, *(promise(_named(setting), setting) for setting in settings))
    return Findings(tuple(cells), tuple(lines), notes, **sources_of(paths))


def _named(setting: MixtureSetting) -> str:
    shares = "/".join(f"{share:.0%}" for share in setting.shares)
    return f"groups {shares}, L / lambda = {setting.condition:g}"


def margin(experiment: Experiment, cache: RunCache) -> Findings:
    """Show who leaves the own group as beta grows, and whether the rule says so."""
    cells, paths, shares = list[Cell](), list[Path](), list[tuple[float, ...]]()
    seeds = SEEDS[:1] if experiment.is_quick else SEEDS
    for beta in QUICK_RISK_WEIGHTS if experiment.is_quick else RISK_WEIGHTS:
        same = [tilt(TILTED, beta, seed, cache) for seed in seeds]
        figures = {
            "misassigned share": [run.misassigned for run in same],
            "misassigned share, last round": [run.misassigned_at_last for run in same],
            "choices checked": [float(len(run.choices)) for run in same],
            "choices against the rule": [float(run.unlawful) for run in same],
            "no risk could draw anybody away": [float(run.safe) for run in same],
            "farthest model from its optimum": [max(run.distances) for run in same],
        }
        row = f"beta = {beta:g}"
        cells += [Cell(row, DATA, measure, tuple(values)) for measure, values in figures.items()]
        shares.append((beta, *map(fmean, list(figures.values())[:2])))
        configs = (TILTED.config("ifca-mir", seed, beta) for seed in seeds)
        paths += [cache.folder / digest(config) for config in configs]
    beta, every, last = zip(*shares, strict=True)
    lines = [
        FigureLine("misassigned share by beta", name, tuple(zip(beta, of, strict=True)))
        for name, of in (("all rounds", every), ("last round", last))
    ]
    return Findings(tuple(cells), tuple(lines), LIMITS, **sources_of(paths))


def _bounded(name: str, same: Sequence[Descent]) -> Iterator[Cell]:
    worst = tuple(None if math.isnan(run.worst) else run.worst for run in same)
    bound = Printed(same[0].bound, None, "Theorem 4, 1 - p lambda / (8 L)")
    says = bound_verdict([run.holds for run in same])
    yield Cell(name, DATA, "largest contraction factor", worst, bound, says=says)
    yield Cell(name, DATA, "1 - lambda / L", tuple(run.expected for run in same))
    holds = tuple(float(run.start.holds) for run in same)
    yield Cell(name, DATA, "its conditions hold", holds)
    yield Cell(name, DATA, "misassigned share", tuple(run.misassigned for run in same))


def bound_verdict(runs: Sequence[bool | None]) -> str:
    """Say whether the bound held; None: a run had no step that could be judged."""
    if False in runs:
        return "ABOVE the bound in some step"
    if None in runs:
        return "not judged: in some run every step began at the noise floor"
    return "never above the bound"


def _ratios(name: str, descent: Descent) -> Iterator[FigureLine]:
    """Draw one seed's ratios while there is something to gain."""
    judged = [step for step in descent.steps if step.judged]
    for j in sorted({step.cluster for step in judged}):
        points = [(float(s.round_index), s.ratio) for s in judged if s.cluster == j]
        yield FigureLine(name, f"cluster {j}", tuple(points))
    rounds = sorted({float(step.round_index) for step in judged})
    ends = dict.fromkeys((*rounds[:1], *rounds[-1:]))
    yield FigureLine(
        name, "bound 1 - p lambda / (8 L)", tuple((t, descent.bound) for t in ends), bound=True
    )
    yield FigureLine(name, "1 - lambda / L", tuple((t, descent.expected) for t in ends), bound=True)


def arithmetic(experiment: Experiment) -> Findings:
    """Divide the printed seconds of fedAvg by those of every k, cell by cell."""
    cells = [
        Cell(f"{model}, {row}", column, TIMES, (table[row, "fedAvg"].value / printed.value,))
        for name, model in TABLES.items()
        for table in (printed_table(experiment.paper, name),)
        for (row, column), printed in table.items()
        if column != "fedAvg"
    ]
    ratios = {(c.row, c.column): c.known[0] for c in cells}
    named = ratios["ResNet-mini, FMNIST-noniid", "k=8"]
    least, most = min(ratios.values()), max(ratios.values())
    computed = zip(CLAIMS.items(), (least, most, named), strict=True)
    claims = [_claim(where, claimed, ratio) for (where, claimed), ratio in computed]
    lower, upper, _ = CLAIMS.values()
    both = _follows(lower, least) and _follows(upper, most)
    note = (
        f"The printed cells give {least:.2f} to {most:,.0f} times; the cell that the text "
        f"names gives {named:.1f}. The claimed {lower} to {upper:,.0f} "
        f"{'are' if both else 'are not'} the ends of that range. A denial's seconds are "
        f"those of removing a name, and a ratio to them is one of training to that."
    )
    return Findings(cells=(*claims, *cells), notes=(note,), commits=(commit(),))


def _follows(claim: float, value: float) -> bool:
    """Whether the printed seconds, rounded as they are, give this factor."""
    return math.isclose(claim, value, rel_tol=0.01)


def _claim(where: str, claimed: float, value: float) -> Cell:
    says = "" if _follows(claimed, value) else "not what the printed cells give"
    printed = Printed(claimed, None, where)
    return Cell("claimed", where, TIMES, (value,), printed, says=says)
