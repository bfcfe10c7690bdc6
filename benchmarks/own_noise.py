"""What does it cost that clients add noise themselves, and that each has a budget of its own?

MNIST's training images are dealt alike to the clients, who train a linear model by FedAvg,
all in every round. Noise with one clip keeps an epsilon that is the same for all: the
server adds it, each client a share of it under masks, or each client all of it. Beside them
stands Flower, called as a library, with the updates of the same clients. `--budgets` lets
every client have its own epsilon. `--search` tries clips and rates.

Shares are added up mod 2^64 here, without masks; that this is the masked sum, to the bit, is
asserted on a small federation first.
"""

import logging
import secrets
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from math import log, sqrt
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from time import process_time
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch

import covey
from benchmarks.playing import note
from covey import AggregationResult, ClientUpdate, Params, ScoringJob, Streams
from covey.aggregation.base import AtOnce, BeginRound, combined_per_cluster, mean_per_cluster
from covey.aggregation.mean import clipped, mean_of_numbers, numbers_of_update, shares_added
from covey.aggregation.server import Models
from covey.base.events import ClientsAssigned, Event
from covey.base.history import of_kinds
from covey.base.params import add, model_hash
from covey.dp.accountant import epsilon_bound, gaussian, multiplier_for, shares
from covey.dp.budget import released
from covey.dp.run_guarantees import guarantees
from covey.secure_sums.noise import NoiseShares
from covey.settings.privacy import budget_weight
from covey.settings.run import BuiltRun, build_run

DELTA = 1e-5
SAYS = sqrt(2 * log(1.25 / DELTA))
"""By which Flower's local mod divides an epsilon, for the multiplier of one release."""
CLIP, RATES, ROUNDS = 2.0, {200: 1.0, 2000: 0.3}, 10
"""Of so many clients: found by `--search`, on noise of the server, epsilon 8 and seed 99."""
TRIED = (0.5, 1.0, 2.0, 4.0), (0.1, 0.3, 1.0, 3.0)
LIMITS = (0.5, 2.0, 8.0)
CLIPPED = "no noise, the same clip"
COLLUDE = "distributed, 10% collude"
FLOWER, FLOWER_LOCAL, FLOWER_SAYS = "Flower central", "Flower local", "Flower local, as it says"
ADVERSARIES = ("central", FLOWER, "distributed", COLLUDE, "local", FLOWER_LOCAL, FLOWER_SAYS)
Row = dict[str, Any]


class Size(NamedTuple):
    """A federation: how many share a data set, for how long, and how they train.

    Attributes:
        images: to deal; digits are for the least size.
        parameters: how many numbers an update has.
    """

    clients: int
    rounds: int = ROUNDS
    clip: float = CLIP
    rate: float = 1.0
    data: str = "mnist"
    images: int = 60_000
    parameters: int = 7_850

    def settings(self, seed: int, privacy: Row, **changes: Any) -> covey.Config:  # noqa: ANN401
        """Return settings in which all images are dealt to one group; a round has 10 steps."""
        images_per_client = self.images // self.clients
        group = {"share": 1.0, "shift": [0.0, 0.0], "examples_per_client": images_per_client}
        people = {"clients": self.clients, "shift": "none", "holdout": 0.0, "audit_examples": 0}
        settings: Row = {
            "seed": seed,
            "rounds": self.rounds,
            "data": {"name": self.data},
            "population": {**people, "groups": [group], **changes},
            "model": {"name": "linear"},
            "train": {"batch_size": images_per_client // 10, "learning_rate": self.rate},
            "method": {"name": "fedavg"},
            "risk": {"name": "none"},
            "engine": {"name": "vmap"},
            "privacy": {"delta": DELTA, **privacy},
        }
        return covey.Config.of(settings)


def options(parser: ArgumentParser) -> None:
    """Add what this benchmark takes."""
    parser.add_argument("--clients", type=int, nargs="+", choices=RATES, default=[200, 2000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=ADVERSARIES, default=list(ADVERSARIES))
    parser.add_argument("--budgets", action="store_true", help="Epsilons of clients' own.")
    parser.add_argument("--search", action="store_true", help="Clips and learning rates.")


def measure(chosen: Namespace) -> dict[str, list[Row]]:
    """Return accuracies: of noise by who adds it, of budgets, or of clips and rates."""
    _assert_masks_change_nothing()
    if chosen.quick:
        small, seeds = Size(20, 2, data="digits", images=1_000, parameters=650), range(1)
        return {**_noise(small, chosen.only, [8.0], seeds), **_budgets(small, seeds)}
    if chosen.search:
        return _searched(chosen.clients[0])
    seeds, sizes = range(chosen.seeds), [Size(n, rate=RATES[n]) for n in chosen.clients]
    if chosen.budgets:
        return _budgets(sizes[0], seeds)
    tables = (_noise(size, chosen.only, chosen.epsilons, seeds) for size in sizes)
    return {title: rows for table in tables for title, rows in table.items()}


def _noise(
    size: Size, ways: Sequence[str], epsilons: Sequence[float], seeds: range
) -> dict[str, list[Row]]:
    """Return a row per way to add noise and epsilon, and one without noise."""
    cases = [(CLIPPED, None), *product(ways, epsilons)]
    rows: list[Row] = []
    for adversary, epsilon in cases:
        begun = process_time()
        runs = [_played(adversary, size, epsilon, seed) for seed in seeds]
        row = {
            "noise": adversary,
            "epsilon asked": epsilon,
            "z": runs[0].multiplier,
            "epsilon of the run": runs[0].epsilon,
            "by Flower": runs[0].by_flower,
            **_mean([run.accuracy for run in runs]),
            "s of the processor": (process_time() - begun) / len(runs),
        }
        note(" ".join(map(str, row.values())))
        rows.append(row)
    return {f"{size.clients} clients, {size.rounds} rounds, {len(seeds)} seeds": rows}


def _mean(values: Sequence[float]) -> Row:
    return {"accuracy": fmean(values), "spread": stdev(values) if len(values) > 1 else None}


class Played(NamedTuple):
    """What a run is worth, and what it guarantees; None: nothing."""

    accuracy: float
    multiplier: float | None = None
    epsilon: float | None = None
    by_flower: float | None = None


def _played(adversary: str, size: Size, epsilon: float | None, seed: int) -> Played:
    """Play a run with noise for an epsilon, under a secret of the operating system."""
    streams, bare = Streams(seed, secret=secrets.randbits(256)), build_run(size.settings(seed, {}))
    if epsilon is None:
        model, _ = _rounds(bare, streams, post_processors=(clipped(size.clip),))
        return Played(_accuracy(bare, model))
    if adversary in (FLOWER, FLOWER_LOCAL, FLOWER_SAYS):
        z = SAYS / epsilon if adversary == FLOWER_SAYS else _multiplier("central", epsilon, size)
        flower = Flower(size, z, is_local=adversary != FLOWER)
        model, _ = _rounds(bare, streams, aggregation=partial(AtOnce, aggregate=flower.aggregate))
        bound = epsilon_bound([gaussian(z)] * size.rounds, DELTA)
        return Played(_accuracy(bare, model), z, bound and bound.epsilon, flower.epsilon)
    run = build_run(size.settings(seed, _privacy(adversary, size, epsilon)))
    changes = {"aggregation": unmasked(run.config)} if run.config.privacy.secure_sums else {}
    model, facts = _rounds(run, streams, **changes)
    guarantee = guarantees(facts, DELTA, secret=True)[0]  # as a client contributes or not
    return Played(_accuracy(run, model), run.config.privacy.client_noise, guarantee.epsilon)


def _privacy(adversary: str, size: Size, epsilon: float) -> Row:
    """Return the settings under which a run's epsilon is this one."""
    model, _, collude = adversary.partition(",")
    z, privacy = _multiplier(model, epsilon, size), {"client_clip": size.clip, "noise_model": model}
    if model != "distributed":
        return {**privacy, "client_noise": z}
    least, colluders = round(0.9 * size.clients), round(0.1 * size.clients) if collude else 0
    # z is what rounding leaves z' of: 1 / z' = 1 / z + r
    rounding = 1 / NoiseShares(1.0, 1.0, least - colluders).effective_multiplier(size.parameters)
    z = 1 / (1 / z - (rounding - 1))
    masks = {"secure_sums": True, "min_cohort": least, "colluders": colluders}
    return {**privacy, **masks, "client_noise": z}


def _multiplier(model: str, epsilon: float, size: Size) -> float:
    one = shares if model == "distributed" else gaussian
    return multiplier_for(epsilon, DELTA, size.rounds, one)


def _rounds(run: BuiltRun, streams: Streams, **changes: Any) -> tuple[Params, list[Event]]:  # noqa: ANN401
    """Play all rounds; return the model, and what a ledger would have recorded.

    Args:
        run: with its settings.
        streams: of its seed, with the secret from which noise is drawn.
        changes: in what becomes of updates (`RoundSteps`).
    """
    state, facts = run.algorithm.init(run.streams), list[Event]()
    for t in range(run.config.rounds):
        clients = run.clients(run.population.clients, t)
        clients = replace(clients, steps=replace(clients.steps, **changes))
        played = run.algorithm.round(state, clients, streams.at("round", t))
        state, facts = played.state, [*facts, *played.events]
    return state.clusters[0], facts


def _accuracy(run: BuiltRun, model: Params) -> float:
    (scored,) = run.engine.score([ScoringJob(model, run.population.test[0])])
    assert scored.accuracy is not None  # digits are classes
    return scored.accuracy


def unmasked(config: covey.Config) -> BeginRound:
    """Return the mean of what clients send under masks, of numbers that have none."""
    terms = config.privacy_plan.update_shares()

    def combined(updates: Sequence[ClientUpdate]) -> Params:
        sent = (numbers_of_update(update, len(updates), terms) for update in updates)
        return mean_of_numbers(reduce(np.add, sent), updates[0].update, terms)

    def aggregate(models: Models, updates: list[ClientUpdate], _: Streams) -> AggregationResult:
        result = combined_per_cluster(models, updates, combined, config.privacy.min_cohort)
        return replace(result, events=(*result.events, *shares_added((0,), models, terms)))

    return partial(AtOnce, aggregate=aggregate)


def _assert_masks_change_nothing() -> None:
    """Play one seeded federation with masks and without: no bit of the model may differ."""
    small = Size(10, 2, data="digits", images=1_000, parameters=650)
    run = build_run(small.settings(0, _privacy(COLLUDE, small, 8.0)))
    masked, facts = _rounds(run, run.streams)
    summed, same = _rounds(run, run.streams, aggregation=unmasked(run.config))
    assert (model_hash((masked,)), facts) == (model_hash((summed,)), same)


class Flower:
    """Flower's own differential privacy, as an aggregation of the same clients' updates.

    Its wrapper clips, and adds noise of standard deviation z C / n to the mean; its local
    mod adds sensitivity sqrt(2 ln(1.25 / delta)) / epsilon to each update, in every round.

    Attributes:
        epsilon: what its own accountant says; None: it keeps none.
    """

    def __init__(self, size: Size, multiplier: float, *, is_local: bool) -> None:
        from flwr.clientapp.mod import LocalDpMod
        from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
        from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
        from flwr.supercore.task_identity import TaskIdentity

        # messages name who they are from; nothing is sent
        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
        logging.getLogger("flwr").setLevel(logging.ERROR)
        self.epsilon: float | None = None
        self._mean: Any = FedAvg()
        self._mod: Any = None
        self._round = 0
        self._std = multiplier * size.clip / (sqrt(size.clients) if is_local else size.clients)
        self._clip = clipped(size.clip)
        if is_local:
            self._mod = LocalDpMod(size.clip, size.clip, SAYS / multiplier, DELTA)
            return
        relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
        accountant = RdpAccountant(PrivacyConfig(DELTA, size.clients, relation, sampling))
        self._mean = DifferentialPrivacyServerSideFixedClipping(
            self._mean, multiplier, size.clip, size.clients, accountant=accountant
        )

    def aggregate(self, models: Models, sent: list[ClientUpdate], _: Streams) -> AggregationResult:
        """Hand every update to it as a reply, and return the model that it makes of all."""
        from flwr.app import ArrayRecord, ConfigRecord

        self._round += 1
        start = ArrayRecord(dict(models[0]))
        nodes = SimpleNamespace(get_node_ids=lambda: range(1, len(sent) + 1))
        requests = self._mean.configure_train(self._round, start, ConfigRecord(), nodes)
        pairs = zip(requests, sent, strict=True)
        replies = [self._replied(request, add(models[0], own.update)) for request, own in pairs]
        model = self._mean.aggregate_train(self._round, replies)[0].to_torch_state_dict()
        if self._mod is None:
            self.epsilon = self._mean.privacy_spent().epsilon
        self._assert_noise(models, sent, model)
        return AggregationResult((model,))

    def _replied(self, message: Any, model: Params) -> Any:  # noqa: ANN401 - messages of Flower
        from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

        def trained(requests: Any, _: Any) -> Any:  # noqa: ANN401
            records = {"arrays": ArrayRecord(dict(model)), "n": MetricRecord({"num-examples": 1})}
            return Message(RecordDict(records), reply_to=requests)

        return self._mod(message, None, trained) if self._mod else trained(message, None)

    def _assert_noise(self, models: Models, sent: list[ClientUpdate], model: Params) -> None:
        """Measure the noise: it must be what it is accounted for."""
        exact = mean_per_cluster(models, map(self._clip, sent)).clusters[0]
        deviation = float(torch.cat([(model[n] - exact[n]).flatten() for n in sorted(exact)]).std())
        assert 0.8 < deviation / self._std < 1.2, (deviation, self._std)


def _budgets(size: Size, seeds: range) -> dict[str, list[Row]]:
    """Return a row per way to live with a budget for each client, of which a third has each."""
    low, middle, high = (_multiplier("central", limit, size) for limit in LIMITS)
    cases = {
        f"noise for {LIMITS[0]}: nobody stops": (low, False),
        f"noise for {LIMITS[1]}, until spent": (middle, False),
        f"noise for {LIMITS[2]}, until spent": (high, False),
        f"noise for {LIMITS[2]}, weights": (high, True),
    }
    rows: list[Row] = []
    for name, (z, weighs) in cases.items():
        privacy = {"client_clip": size.clip, "client_noise": z, "weigh_by_budget": weighs}
        runs = [_with_budgets(size, seed, privacy) for seed in seeds]
        row = {"budgets": name, "z": z, **_mean([run.pop("accuracy") for run in runs])}
        rows.append({**row, **runs[0]})
        note(" ".join(map(str, rows[-1].values())))
    return {f"budgets of {', '.join(map(str, LIMITS))}, {size.clients} clients": rows}


def _with_budgets(size: Size, seed: int, privacy: Row) -> Row:
    """Play a run as its users do; return its accuracy, and what came of each budget."""
    config = size.settings(seed, privacy, epsilon_limits=LIMITS)
    with TemporaryDirectory() as place:
        run = covey.run(config=config, out=Path(place) / "run", progress=False)
        facts, accuracy = run.history.all_events, run.summary.accuracy.overall
    took = [f.clusters for f in of_kinds(facts, ClientsAssigned) if f.by != "final"]
    row: Row = {"accuracy": accuracy, "rounds": len(took)}
    run = build_run(config)
    plan, clients = config.privacy_plan, run.population.clients
    for limit in LIMITS:
        own = [client.handle for client in clients if client.preference.epsilon_limit == limit]
        (rounds,) = {sum(handle in clusters for clusters in took) for handle in own}
        weight = budget_weight(plan, size.parameters, limit)
        spent = (
            epsilon_bound(released(plan, size.parameters, rounds, weight), DELTA)
            if rounds
            else None
        )
        said = f"{len(own)}, {rounds}, {weight:.2f}, {spent.epsilon if spent else 0:.2f}"
        row[f"{limit}: clients, rounds, weight, spent"] = said
    return row


def _searched(clients: int) -> dict[str, list[Row]]:
    """Return accuracy under the server's noise by clip and learning rate."""
    rows: list[Row] = []
    for clip, rate in product(*TRIED):
        played = _played("central", Size(clients, clip=clip, rate=rate), 8.0, 99)
        rows.append({"clip": clip, "rate": rate, "accuracy": played.accuracy})
    return {f"central, epsilon 8, {clients} clients, seed 99": rows}
