"""Clients come and leave: the sums are those of who is there now."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from algorithms.playing import changed, rounds_of
from covey import Config, ConfigError, Examples
from covey.algorithms.sums import OwnSums, SumSource, counted_sums, without_leavers
from covey.base.names import Handle
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.engine.fixed_features import params_of
from covey.models.ridge_state import ClusterSums
from covey.settings.run import BuiltRun, build_run
from runtime.solved_runs import SOLVED

SEQUENCES, CLUSTERS = 40, 3
SETTINGS = {
    **SOLVED,
    "population": {"clients": 6, "examples_per_client": 8, "audit_examples": 0},
    "method": {"name": "solved", "num_clusters": CLUSTERS, "initialisation": "random"},
}
POOLING, LAMBDA = (0.3, 0.0, 1.0), (0.5, 1.0, 0.1)


class Present:
    """Who is there now, and what a server knows of them."""

    def __init__(self, run: BuiltRun, drawn: np.random.Generator, *, keeps: bool) -> None:
        self.run, self.drawn, self.keeps = run, drawn, keeps
        self.clients: dict[Handle, Client] = {}
        self.choices: dict[Handle, tuple[int, int]] = {}
        self.state = run.algorithm.init(run.streams)
        for client in run.population.clients:
            self.come(client.handle, client.train)

    def come(self, who: Handle, new: Examples) -> None:
        """Count a client in a cluster, as a round with its choice does."""
        first = self.run.population.clients[0]
        self.clients[who] = replace(first, name=who, handle=who, train=new)
        cluster, weight = int(self.drawn.integers(CLUSTERS)), int(self.drawn.integers(1, 257))
        self.choices[who] = cluster, weight
        asked = self.asked()
        sums = counted_sums(self.state, {who: cluster}, {who: weight}, asked)
        own = asked.kept(sums, sums.targets[0].shape[0])
        self.state = self.state.with_choices({who: cluster}).keeping(sums, *own)

    def asked(self) -> SumSource:
        own = self.state.kept(OwnSums) if self.keeps else None
        return SumSource(self.run.no_clients.federation, self.clients, Streams(0), own=own)

    def leave(self, who: Handle) -> None:
        leaver = self.clients.pop(who)
        del self.choices[who]
        self.state = without_leavers(self.state, (leaver,), self.asked())
        assert who not in self.state.kept(OwnSums).gram


def heads(known: ClusterSums) -> str:
    solved = known.model_copy(update={"pooling": POOLING, "regularisation": LAMBDA})
    return model_hash(tuple(params_of(solved.head(j).theta) for j in range(CLUSTERS)))


@pytest.mark.parametrize("keeps", [False, True], ids=["", "own sums are kept"])
def test_forty_sequences_end_in_the_bits_of_the_direct_computation(digits, keeps):
    run = build_run(Config.of(SETTINGS))
    assert run.records is not None
    done = Counter[str]()
    for seed in range(SEQUENCES):
        drawn = np.random.default_rng(seed)
        present = Present(run, drawn, keeps=keeps)
        for step in range(6):
            at, size = int(drawn.integers(1_000)), int(drawn.integers(1, 7))
            new = digits.take(torch.arange(at, at + size))
            who = sorted(present.clients)[int(drawn.integers(len(present.clients)))]
            if int(drawn.integers(2)) == 0:
                present.come(f"h-new-{step}", new)
                done["come"] += 1
            elif len(present.clients) > 1:
                present.leave(who)
                done["leave"] += 1
        known, choices = present.state.kept(ClusterSums), present.choices
        assert known.is_whole
        assert len(present.state.kept(OwnSums).gram) == keeps * len(choices)
        assert dict(known.counted) == choices
        inside = [
            [(present.clients[h].train, w) for h, (c, w) in choices.items() if c == j]
            for j in range(CLUSTERS)
        ]
        d = known.targets[0].shape[0]
        direct = tuple(run.records.sums(each, d) for each in inside)
        assert known.sums == direct
        if all(inside):
            assert heads(known) == heads(known.of(direct, choices))
    assert min(done.values()) > SEQUENCES


@pytest.mark.parametrize("keeps", [True, False])
def test_who_leaves_is_subtracted_without_its_records(keeps):
    run = build_run(Config.of(changed(SOLVED, method={"keep_sums": keeps})))
    *_, last = rounds_of(run, 3)
    leaver, *stay = run.population.clients
    lost = replace(leaver, train=leaver.train.first(1))  # no longer what is in the sums
    forgotten = run.with_clients((lost, *stay))
    right = run.algorithm.without(last.state, run.clients((leaver,)))
    left = forgotten.algorithm.without(last.state, forgotten.clients((lost,)))
    same = right.kept(ClusterSums).sums == left.kept(ClusterSums).sums
    assert same == keeps
    assert leaver.handle not in left.kept(OwnSums).gram
    assert len(left.kept(OwnSums).gram) == keeps * len(stay)


@pytest.mark.parametrize(
    "privacy", [{"secure_sums": True}, {"client_clip": 0.3, "client_noise": 1.0}]
)
def test_keeping_sums_is_refused_beside_what_hides_single_ones(privacy):
    given = changed(SOLVED, method={"keep_sums": True}, privacy=privacy)
    with pytest.raises(ConfigError, match="keep_sums"):
        Config.of(given)
    del given["method"]["keep_sums"]
    Config.of(given)
