"""Which aggregation holds against clients that collude, and what does it cost a minority?

Twenty clients with 40 handwritten digits each; four, the minority, hold theirs rotated.
Colluders are drawn among the majority, know all honest updates of their cluster but not the
rule by which these are aggregated, and send nothing that a server on Flower refuses: no
update is longer than 5 times the median of the honest ones. `--on-minority` plays two
attacks on the minority, with and without a bound on newcomers.

Attacks: Baruch et al., A Little Is Enough, 2019, section 3; Bagdasaryan et al., How To
Backdoor Federated Learning, 2020, section 4.2 (model replacement).
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, reduce
from statistics import fmean, median, stdev
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from pydantic import Field

import covey
from benchmarks.playing import note, played
from covey import Params, ScoringJob
from covey.aggregation.base import Aggregator, AtOnce, FederationInfo
from covey.aggregation.mean import Mean
from covey.algorithms.ifca import Ifca
from covey.algorithms.selection import SelectionResult
from covey.base.components import Part, reference
from covey.base.names import Handle
from covey.base.params import add, norm, scale
from covey.data.examples import Client
from covey.settings.run import BuiltRun, build_run

Settings = Mapping[str, Any]
LONGEST = 5.0
"""Times the median norm of the honest updates: what a server on Flower accepts."""
DEVIATIONS = 1.5
"""z of "a little is enough": standard deviations from the mean."""
LABEL_FLIP = "label flip"
AGAINST_MINORITY = "against the minority"
MINORITY = "minority"
DEPLOYED = "geometric-median"
"""How deployments aggregate where the settings say nothing of it."""


class Seen(NamedTuple):
    """What a colluder knows of its cluster when it sends.

    Attributes:
        own: its own update, honestly trained.
        honest: the updates of all honest clients.
        minority: those of them that the minority sends.
        per_colluder: how many clients there are per colluder.
    """

    own: Params
    honest: Sequence[Params]
    minority: Sequence[Params]
    per_colluder: float


def _mean(updates: Sequence[Params]) -> Params:
    return scale(reduce(add, updates), 1 / len(updates))


def _drift(seen: Seen) -> Params:
    """Return u_i + c d: the same random direction d from all colluders in all rounds."""
    draws = covey.Streams(0).at("agreed").generator()
    direction = {
        name: torch.from_numpy(draws.standard_normal(tuple(value.shape))).to(value)
        for name, value in sorted(seen.own.items())
    }
    length = LONGEST * median(map(norm, seen.honest)) / norm(direction)
    return add(seen.own, scale(direction, length))


def _a_little(seen: Seen) -> Params:
    """Return mean - z std of the honest updates, in every coordinate."""
    stacks = {n: torch.stack([update[n] for update in seen.honest]) for n in seen.own}
    return {
        name: values.mean(dim=0) - DEVIATIONS * values.std(dim=0, correction=0)
        for name, values in stacks.items()
    }


def _replacement(seen: Seen) -> Params:
    """Return v for which the mean of all is - u, where u is the mean of honest updates.

    ((n - m) u + m v) / n = - u  for  v = - (2 n / m - 1) u
    """
    return scale(_mean(seen.honest), 1 - 2 * seen.per_colluder)


def _against_minority(seen: Seen) -> Params:
    """Return a + (a - b): as far from the majority's mean a as the minority's b, opposite.

    Among others it looks like an honest client of a second minority. Where only one of the
    two is there, nothing tells them apart, and training is honest.
    """
    others = [u for u in seen.honest if not any(u is update for update in seen.minority)]
    if not (others and seen.minority):
        return seen.own
    return add(scale(_mean(others), 2.0), scale(_mean(seen.minority), -1.0))


ATTACKS: Mapping[str, Callable[[Seen], Params]] = {
    "none": lambda seen: seen.own,
    "sign flip": lambda seen: scale(seen.own, -4.0),
    "scaling": lambda seen: scale(seen.own, LONGEST),
    "drift": _drift,
    "a little is enough": _a_little,
    LABEL_FLIP: lambda seen: seen.own,  # the lie is in the data
    "replacement": _replacement,
    AGAINST_MINORITY: _against_minority,
}


class Poisoned(covey.Aggregation):
    """Another aggregation, before which colluding clients replace their updates.

    Attributes:
        attack: one of `ATTACKS`.
        colluders: handles.
        minority: handles of those against whom an attack may be.
        aggregation: the aggregation that is attacked.
    """

    keeps_clusters_apart: ClassVar[bool] = True

    attack: str
    colluders: list[str] = Field(default=[])
    minority: list[str] = Field(default=[])
    aggregation: Annotated[covey.Aggregation, Part("aggregation")] = Mean()

    def begin(
        self, models: tuple[Params, ...], streams: covey.Streams, federation: FederationInfo
    ) -> Aggregator:
        """Hold what is sent, of which colluders replace theirs."""
        attacked = self.aggregation.begin(models, streams, replace(federation, repeats=False))

        def aggregate(
            _: object, updates: list[covey.ClientUpdate], __: object
        ) -> covey.AggregationResult:
            for update in self._sent(updates):
                attacked.add(update)
            return attacked.result()

        return AtOnce(models, streams, aggregate)

    def _sent(self, updates: Sequence[covey.ClientUpdate]) -> Iterator[covey.ClientUpdate]:
        """Yield what arrives: a cluster without honest clients is not attacked."""
        for update in updates:
            here = [other for other in updates if other.cluster == update.cluster]
            honest = [other for other in here if other.handle not in self.colluders]
            lies = update.handle in self.colluders and honest
            yield self._poisoned(update, len(here), honest) if lies else update

    def _poisoned(
        self, own: covey.ClientUpdate, here: int, honest: Sequence[covey.ClientUpdate]
    ) -> covey.ClientUpdate:
        seen = Seen(
            own=own.update,
            honest=[update.update for update in honest],
            minority=[update.update for update in honest if update.handle in self.minority],
            per_colluder=here / (here - len(honest)),
        )
        made = ATTACKS[self.attack](seen)
        most, length = LONGEST * median(map(norm, seen.honest)), norm(made)
        return replace(own, update=scale(made, min(1.0, most / length)))


class Flooded(Ifca):
    """IFCA in which colluders choose the minority's cluster, whatever its loss is.

    Attributes:
        colluders: handles.
        minority: handles of those whose cluster it is.
    """

    colluders: list[str] = Field(default=[])
    minority: list[str] = Field(default=[])

    def round(
        self, state: covey.ServerState, clients: covey.Clients, streams: covey.Streams
    ) -> covey.RoundResult:
        """Play a round of IFCA with what colluders say that they chose."""
        flooding = _Flooding(
            **{field.name: getattr(clients, field.name) for field in fields(clients)},
            colluders=frozenset(self.colluders),
            minority=frozenset(self.minority),
        )
        return super().round(state, flooding, streams)


@dataclass(frozen=True, eq=False)
class _Flooding(covey.Clients):
    """Clients of whom some lie about what they choose."""

    colluders: frozenset[Handle] = frozenset()
    minority: frozenset[Handle] = frozenset()

    def choose(self, state: covey.ServerState, streams: covey.Streams) -> SelectionResult:
        """Let honest clients choose, and send colluders to most of the minority."""
        choice = super().choose(state, streams)
        theirs = Counter(j for h, j in choice.clusters.items() if h in self.minority)
        target = max(sorted(theirs), key=lambda j: theirs[j])
        said = {h: target for h in choice.clusters if h in self.colluders}
        return choice._replace(clusters={**choice.clusters, **said})


SETS: Settings = {"min_anonymity": 4, "deniability_threshold": 3}
BY_MEDIAN: Settings = {"max_relative_norm": 1.0}
MERGES: Mapping[str, tuple[str, Settings]] = {
    "mean": ("mean", {}),
    "norm-bounded": ("norm-bounded", BY_MEDIAN),
    "median": ("median", {}),
    "trimmed-mean": ("trimmed-mean", {"trim": 0.3}),
    "geometric-median": ("geometric-median", {}),
    "multi-krum": ("krum", {"outliers": 6, "chosen": 12}),
    "anonymity-sets": ("anonymity-sets", SETS),
    "bounded sets": ("anonymity-sets", {**SETS, **BY_MEDIAN}),
}
"""What is compared. All that bound how many may lie are set for 30% of the clients."""

BASE: Settings = {
    "population": {
        "clients": 20,
        "examples_per_client": 40,
        "minority_share": 0.2,
        "holdout": 0.0,
        "audit_examples": 0,
    },
    "model": {"name": "mlp"},
    "train": {"local_epochs": 3, "optimizer": {"momentum": 0.9}},
    "risk": {"name": "none"},
    "engine": {"name": "vmap"},  # many small clients at once: three times as fast
}
GROUPS: Settings = {"initialisation": "groups"}
BOUND: Settings = {"max_newcomers": 0.25}
FLOODED: Settings = {"name": reference(Flooded), **GROUPS}
METHODS: Mapping[str, Settings] = {
    "fedavg": {"name": "fedavg"},
    "ifca": {"name": "ifca", **GROUPS},
    "bounded ifca": {"name": "ifca", **GROUPS, **BOUND},
    "flooded ifca": FLOODED,
    "flooded bounded ifca": {**FLOODED, **BOUND},
    "founded bounded ifca": {**FLOODED, **BOUND},
    "warm ifca": {"name": "ifca"},
    "bounded warm ifca": {"name": "ifca", **BOUND},
    "random ifca": {"name": "ifca", "initialisation": "random"},
    "bounded random ifca": {"name": "ifca", "initialisation": "random", **BOUND},
}
"""Clusters start from the known groups where nothing else is said. *Flooded*: colluders
choose the minority's cluster from the first choice on; *founded*: they are in it from
round 0 on; *bounded*: with `method.max_newcomers`."""


class Cell(NamedTuple):
    """One federation: how it trains, who attacks it, and how updates are aggregated."""

    method: str
    attack: str
    share: float
    merge: str
    seed: int


Attacked = tuple[str, str, float]
"""Method, attack and the share of the clients that collude."""
ALL: tuple[Attacked, ...] = (
    ("fedavg", "none", 0.0),
    *(
        ("fedavg", attack, share)
        for attack in ATTACKS
        if attack not in ("none", AGAINST_MINORITY)
        for share in (0.1, 0.2, 0.3)
    ),
    ("ifca", "none", 0.0),
    ("ifca", "replacement", 0.2),
    ("fedavg", AGAINST_MINORITY, 0.3),
    ("flooded ifca", "a little is enough", 0.2),
)
FLOODS = ("replacement", "sign flip", "a little is enough")
FLOODABLE = ("flooded ifca", "flooded bounded ifca")
ON_MINORITY: tuple[Attacked, ...] = (
    ("fedavg", AGAINST_MINORITY, 0.3),
    ("ifca", AGAINST_MINORITY, 0.3),
    *((method, attack, 0.2) for method in FLOODABLE for attack in FLOODS),
    ("founded bounded ifca", "a little is enough", 0.2),
    *((name, "none", 0.0) for name in METHODS if not name.startswith(("flooded", "founded"))),
)


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument(
        "--on-minority", action="store_true", help="By the geometric median, three seeds."
    )


def measure(chosen: Namespace) -> dict[str, list[dict[str, object]]]:
    """Return a row per attack: accuracy of the majority and of the minority, by rule."""
    attacked, merges, seeds, rounds = ALL, [*MERGES], 2, 15
    if chosen.on_minority:
        attacked, merges, seeds = ON_MINORITY, [DEPLOYED], 3
    if chosen.quick:
        attacked, merges = (("fedavg", "replacement", 0.2),), ["mean", DEPLOYED]
        seeds, rounds = 1, 10
    rows: list[dict[str, object]] = []
    for cell in attacked:
        method, attack, share = cell
        row: dict[str, object] = {"method": method, "attack": attack, "share": share}
        for merge in merges:
            losses = [suffered(Cell(*cell, merge, s), rounds) for s in range(seeds)]
            majority, minority = zip(*losses, strict=True)
            row[merge] = f"{fmean(majority):.3f} / {fmean(minority):.3f}"
            if chosen.on_minority:
                row["majority's deviation"] = stdev(majority)
                row["minority's deviation"] = stdev(minority)
        rows.append(row)
        note(" ".join(map(str, row.values())))
    return {"accuracy of honest clients, majority / minority": rows}


def suffered(cell: Cell, rounds: int) -> tuple[float, float]:
    """Play one federation; return how right the honest majority and minority are."""
    colluders, minority = _drawn(cell.seed, cell.share)
    run = build_run(_config(cell, rounds, colluders, minority))
    clients = run.population.clients
    if cell.attack == LABEL_FLIP:
        lied = [_flipped(c, run) if c.handle in colluders else c for c in clients]
        run = run.with_clients(tuple(lied))
    if cell.method.startswith("founded"):
        theirs = next(c.group for c in clients if c.handle in minority)
        lied = [replace(c, group=theirs) if c.handle in colluders else c for c in clients]
        run = run.with_clients(tuple(lied))
    state, right = played(run), dict[tuple[int, int], float]()
    accuracies: tuple[list[float], list[float]] = ([], [])
    for client in run.population.clients:
        if client.handle in colluders:
            continue
        pair = group, cluster = client.group or 0, state.assignment[client.handle]
        if pair not in right:
            job = ScoringJob(state.clusters[cluster], run.population.test[group])
            correct = run.engine.score([job])[0].correct
            assert correct is not None  # digits are classes
            right[pair] = float(correct.double().mean())
        accuracies[client.handle in minority].append(right[pair])
    return fmean(accuracies[0]), fmean(accuracies[1])


def _config(
    cell: Cell, rounds: int, colluders: Sequence[str], minority: Sequence[str]
) -> covey.Config:
    merge, merge_options = MERGES[cell.merge]
    method = dict(METHODS[cell.method])
    lies = {"colluders": list(colluders), "minority": list(minority)}
    if method["name"] == FLOODED["name"]:
        method |= lies
    attack = {"attack": cell.attack, "aggregation": {"name": merge, **merge_options}}
    return covey.Config.of(
        {
            **BASE,
            "rounds": rounds,
            "seed": cell.seed,
            "method": method,
            "aggregation": {"name": reference(Poisoned), **attack, **lies},
        }
    )


@cache
def _drawn(seed: int, share: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Draw colluders of the majority, and return their handles and the minority's.

    A larger share has those of a smaller one too.
    """
    run = build_run(_config(Cell("fedavg", "none", 0.0, "mean", seed), 1, (), ()))
    parts: tuple[list[str], list[str]] = ([], [])
    for client in run.population.clients:
        name = run.population.groups[client.group or 0].name
        parts[name == MINORITY].append(client.handle)
    usual, minority = parts
    order = covey.Streams(seed).at("colluders").generator().permutation(len(usual))
    count = round(share * len(run.population.clients))
    return tuple(usual[i] for i in order[:count]), tuple(minority)


def _flipped(client: Client, run: BuiltRun) -> Client:
    """Return a client whose digits y are said to be 9 - y."""
    train, last = client.train, run.population.num_classes - 1
    return replace(client, train=covey.Examples(train.inputs, last - train.labels))
