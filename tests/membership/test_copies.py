"""Non-members that are members: no risk is measured on them, while the run goes on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Examples, RiskContext, Streams
from covey.data.examples import Client
from covey.membership.controls import copied
from covey.membership.estimators import FederatedEstimator, masked_loss_counter, own_counts
from covey.membership.truth import Membership, NonMembers, audit_clusters

STREAMS = Streams(0)


def numbered(first: int, size: int) -> Examples:
    """Images that are all different, the same for the same numbers."""
    inputs = torch.arange(first, first + size).float()[:, None]
    return Examples(inputs, torch.zeros(size, dtype=torch.int64))


@given(st.integers(0, 60), st.integers(1, 300), st.integers(0, 9))
def test_more_than_one_in_a_hundred_is_refused(copies, new, label):
    held = Examples.joined([numbered(0, copies), numbered(1000, new)])
    held = replace(held, labels=held.labels + label)  # another label changes nothing
    why = copied([numbered(0, 40), numbered(40, 20)], [held.first(0), held])
    assert bool(why) == (copies > 0.01 * (copies + new))
    if why:
        assert f"found {copies} of {copies + new}" in why


@pytest.fixture
def cheats(lossy, make_client) -> list[Client]:
    """Four clients; two of them hold out what each other trains on."""
    a, b, c, d = (lossy(np.full(20, 0.1)) for _ in range(4))
    crossed = [make_client("a", a, b), make_client("b", b, a)]
    own = [make_client("c", c, c), make_client("d", d, lossy(np.ones(20)))]
    return [*crossed, *own]


def test_no_risk_is_measured_on_what_other_members_train_on(look_up, cheats, make_target):
    crossed, alone = make_target(*cheats[:2]), make_target(cheats[3])
    finding, honest = (
        FederatedEstimator().estimate(target, RiskContext(look_up), STREAMS)
        for target in (crossed, alone)
    )
    assert not finding.is_known
    assert "found 40 of 40 with the inputs of a member" in finding.reason
    assert honest.is_known


def test_who_counts_by_itself_counts_nothing_on_copies(look_up, cheats, make_target):
    *_, copies, honest = cheats
    assert not np.any(own_counts(look_up, {}, copies, STREAMS))
    target = make_target(copies, honest, *cheats[:2])
    inside, outside = masked_loss_counter(look_up, 3)(target, STREAMS)
    assert (inside.sum(), outside.sum()) == (60, 60)  # who sees its own alone: a, b, d


def test_the_audit_at_the_end_refuses_copies(look_up, cheats):
    here = tuple(cheats[2:])
    membership = Membership(chosen=(here,), trained=(here,), pooled=((),))
    (audit,) = audit_clusters(look_up, [{}], membership, NonMembers(()), STREAMS)
    assert audit.truth.figure.value is audit.exposed.value is None
    assert audit.truth.reason.startswith("refused: non-members must not be what clients")
