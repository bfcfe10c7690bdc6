"""One operator's keys around a victim: sets that follow the updates are all theirs."""

import numpy as np
import torch

from aggregation.hiding import hidden_by, hiding
from covey import ClientUpdate, Streams
from covey.leaving.plan import AnswerRules, options
from covey.ledger.participation import participation_of

K, X, ROUNDS = 4, 3, 12
VICTIM, SYBILS = "victim", ("sybil-0", "sybil-1", "sybil-2")
HONEST = tuple(f"honest-{i}" for i in range(8))
RULES = AnswerRules(X, stored_updates=False, restorable=(0,), next_round=ROUNDS)


def updates(round_index: int) -> list[ClientUpdate]:
    """Honest updates point anywhere; those of Sybils are near what the victim sends."""
    draws = np.random.default_rng(round_index)
    sent = {name: draws.normal(size=20) for name in (VICTIM, *HONEST)}
    sent[VICTIM] += 3  # few are like it, and whoever wants to be near it knows so
    near = {name: sent[VICTIM] + 0.01 * draws.normal(size=20) for name in SYBILS}
    return [
        ClientUpdate(name, 0, {"w": torch.tensor(each)}, 1.0)
        for name, each in sorted({**sent, **near}.items())
    ]


def test_a_set_can_be_one_operators_and_is_denied_all_the_same():
    # the limit that docs/concepts/threat-model.md names: sizes count keys
    merge = hidden_by(hiding(K))
    start = ({"w": torch.zeros(20, dtype=torch.float64)},)
    rounds = [merge(start, updates(t), Streams(1).at("round", t)).events for t in range(ROUNDS)]
    known = participation_of((t, each) for t, events in enumerate(rounds) for each in events)
    assert [held.members - {VICTIM} for held in known.sets_of(VICTIM)] == [set(SYBILS)] * ROUNDS
    assert options(known, VICTIM, RULES)[0].possible
