"""Clients come and leave: the sums are those of who is there now."""

from collections import Counter
from dataclasses import replace

import numpy as np
import torch

from covey import Config, Examples
from covey.algorithms.clients import Clients
from covey.algorithms.ridge import recount, without_leavers
from covey.base.names import Handle
from covey.base.params import model_hash
from covey.data.examples import Client
from covey.ridge.head import ClusterSums
from covey.settings.run import BuiltRun, build_run
from runs.ridge_runs import RIDGE

SEQUENCES, CLUSTERS = 40, 3
SETTINGS = {
    **RIDGE,
    "population": {"clients": 6, "examples_per_client": 8, "audit_examples": 0},
    "method": {"name": "ridge", "num_clusters": CLUSTERS, "initialisation": "random"},
}


class Present:
    """Who is there now, and what a server knows of them."""

    def __init__(self, run: BuiltRun, drawn: np.random.Generator) -> None:
        self.run, self.drawn = run, drawn
        self.clients: dict[Handle, Client] = {}
        self.choices: dict[Handle, int] = {}
        self.state = run.algorithm.init(run.streams)
        for client in run.population.clients:
            self.come(client.handle, client.train)

    def come(self, handle: Handle, new: Examples) -> None:
        """Count a client in a cluster, as a round with its choice does."""
        first = self.run.population.clients[0]
        self.clients[handle] = replace(first, name=handle, handle=handle, train=new)
        chosen = {handle: int(self.drawn.integers(CLUSTERS))}
        self.choices |= chosen
        counted = recount(self.state, chosen, self.among(()))
        assert counted.chosen == chosen
        self.state = counted.state.with_choices(chosen)

    def among(self, cohort: tuple[Client, ...]) -> Clients:
        clients = self.run.no_clients.among(cohort)
        setup = replace(clients.setup, population=tuple(self.clients.values()))
        return replace(clients, setup=setup)

    def leave(self, handle: Handle) -> None:
        leaver = self.clients.pop(handle)
        del self.choices[handle]
        self.state = without_leavers(self.state, self.among((leaver,)))


def heads(known: ClusterSums) -> str:
    return model_hash(tuple(head.params for head in known.heads))


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
            leaver = sorted(present.clients)[int(drawn.integers(len(present.clients)))]
            if int(drawn.integers(2)) == 0:
                present.come(f"h-new-{step}", new)
                done["come"] += 1
            elif len(present.clients) > 1:
                present.leave(leaver)
                done["leave"] += 1
        known, choices = present.state.get_state(ClusterSums), present.choices
        assert known.is_whole
        assert dict(known.counted) == choices
        inside = [
            [present.clients[h].train for h, own in choices.items() if own == j]
            for j in range(CLUSTERS)
        ]
        d = len(known.sums[0].targets)
        direct = tuple(run.records.sums(members, d) for members in inside)
        assert known.sums == direct
        if all(inside):
            assert heads(known) == heads(known.of(direct, choices))
    assert min(done.values()) > SEQUENCES
