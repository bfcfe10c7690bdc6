"""Clients come and leave: the sums are those of who is there now."""

from collections import Counter
from dataclasses import replace

import numpy as np
import torch

from covey import Config, Examples
from covey.algorithms.sums import SumSource, counted_sums, without_leavers
from covey.base.names import Handle
from covey.base.params import model_hash
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

    def __init__(self, run: BuiltRun, drawn: np.random.Generator) -> None:
        self.run, self.drawn = run, drawn
        self.clients: dict[Handle, Client] = {}
        self.choices: dict[Handle, int] = {}
        self.state = run.algorithm.init(run.streams)
        for client in run.population.clients:
            self.come(client.handle, client.train)

    def come(self, who: Handle, new: Examples) -> None:
        """Count a client in a cluster, as a round with its choice does."""
        first = self.run.population.clients[0]
        self.clients[who] = replace(first, name=who, handle=who, train=new)
        chosen = {who: int(self.drawn.integers(CLUSTERS))}
        self.choices |= chosen
        sums = counted_sums(self.state, chosen, self.asked())
        self.state = self.state.with_choices(chosen).keeping(sums)

    def asked(self) -> SumSource:
        return SumSource(self.run.no_clients.federation, self.clients)

    def leave(self, who: Handle) -> None:
        leaver = self.clients.pop(who)
        del self.choices[who]
        self.state = without_leavers(self.state, (leaver,), self.asked())


def heads(known: ClusterSums) -> str:
    solved = known.model_copy(update={"pooling": POOLING, "regularisation": LAMBDA})
    return model_hash(tuple(params_of(solved.head(j).theta) for j in range(CLUSTERS)))


def test_forty_sequences_end_in_the_bits_of_the_direct_computation(digits):
    run = build_run(Config.of(SETTINGS))
    assert run.records is not None
    done = Counter[str]()
    for seed in range(SEQUENCES):
        drawn = np.random.default_rng(seed)
        present = Present(run, drawn)
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
        assert dict(known.counted) == choices
        inside = [
            [present.clients[h].train for h, own in choices.items() if own == j]
            for j in range(CLUSTERS)
        ]
        d = known.targets[0].shape[0]
        direct = tuple(run.records.sums(each, d) for each in inside)
        assert known.sums == direct
        if all(inside):
            assert heads(known) == heads(known.of(direct, choices))
    assert min(done.values()) > SEQUENCES
