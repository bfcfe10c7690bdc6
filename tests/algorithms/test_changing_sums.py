"""Clients come, change their records and leave: the sums are those of who is there now."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from covey import Config, Examples
from covey.algorithms.sums import OwnSums, SumSource, counted_sums, without_leavers
from covey.base.names import Handle
from covey.base.params import model_hash
from covey.data.examples import Client
from covey.engine.fixed_features import params_of
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums
from covey.settings.run import BuiltRun, build_run
from runtime.solved_runs import SOLVED

SEQUENCES, CLUSTERS = 200, 3
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
        drawn = int(self.drawn.integers(CLUSTERS)), int(self.drawn.integers(1, 257))
        cluster, weight = self.choices.setdefault(who, drawn)
        chosen = {who: cluster}, {who: weight}
        asked = self.asked()
        sums = counted_sums(self.state, *chosen, asked)
        own = asked.kept(sums, sums.targets[0].shape[0])
        self.state = self.state.with_choices({who: cluster}).keeping(sums, *own)

    def asked(self) -> SumSource:
        assert self.run.records is not None
        own = self.state.kept(OwnSums) if self.keeps else None
        return SumSource(self.run.no_clients.federation, self.clients, own=own)

    def change(self, who: Handle, new: Examples) -> None:
        """Subtract a client's records, and count it where it was with new ones."""
        self._subtract(who)
        self.come(who, new)

    def leave(self, who: Handle) -> None:
        self._subtract(who)
        del self.choices[who]

    def _subtract(self, who: Handle) -> None:
        leaver = self.clients.pop(who)
        self.state = without_leavers(self.state, (leaver,), self.asked())
        assert who not in self.state.kept(OwnSums).gram

    def directly(self) -> tuple[Sums, ...]:
        d, records = self.state.kept(ClusterSums).targets[0].shape[0], self.run.records
        assert records is not None
        inside = [
            [(self.clients[h].train, w) for h, (c, w) in self.choices.items() if c == j]
            for j in range(CLUSTERS)
        ]
        return tuple(records.sums(each, d) for each in inside)


def heads(known: ClusterSums) -> str:
    solved = known.model_copy(update={"pooling": POOLING, "regularisation": LAMBDA})
    return model_hash(tuple(params_of(solved.head(j).theta) for j in range(CLUSTERS)))


@pytest.mark.parametrize("keeps", [False, True], ids=["", "own sums are kept"])
def test_two_hundred_sequences_end_in_the_bits_of_the_direct_computation(digits, keeps):
    run = build_run(Config.of(SETTINGS))
    done = Counter[str]()
    for seed in range(SEQUENCES):
        drawn = np.random.default_rng(seed)
        present = Present(run, drawn, keeps=keeps)
        for step in range(6):
            at, size = int(drawn.integers(1_000)), int(drawn.integers(1, 7))
            new = digits.take(torch.arange(at, at + size))
            who = sorted(present.clients)[int(drawn.integers(len(present.clients)))]
            match int(drawn.integers(3)):
                case 0:
                    present.come(f"h-new-{step}", new)
                    done["come"] += 1
                case 1:
                    present.change(who, new)
                    done["change"] += 1
                case _ if len(present.clients) > 1:
                    present.leave(who)
                    done["leave"] += 1
        known, direct = present.state.kept(ClusterSums), present.directly()
        assert known.is_whole
        assert len(present.state.kept(OwnSums).gram) == keeps * len(present.choices)
        assert dict(known.counted) == present.choices
        assert known.sums == direct
        nothing = Sums.nothing(*direct[0].targets.shape)
        if nothing not in direct:
            assert heads(known) == heads(known.of(direct, present.choices))
    assert min(done.values()) > SEQUENCES
