"""Of few remote clients one that lies decides the figure, so none is taken."""

import numpy as np
import pytest
import torch

from covey import Examples, ReferenceEngine, RiskContext, Streams, Target
from covey.algorithms.client_requests import ClientResponse
from covey.algorithms.remote import loss_counter
from covey.data.examples import Client, Preference
from covey.membership.estimators import EDGES, FOLDS, FederatedEstimator, masked_loss_counter

NETWORK = torch.nn.Linear(2, 2)
COUNTS = (np.full((FOLDS, len(EDGES) + 1), 3), np.full((FOLDS, len(EDGES) + 1), 2))


def member(place: int) -> Client:
    name, nothing = f"c{place}", Examples(torch.zeros(0, 2), torch.zeros(0).long())
    return Client(name, name, None, nothing, nothing, Preference(0.0, 1.0))


def finding(reporting: int):
    """The figure of a cluster of nine, of which so many report."""
    start = dict(NETWORK.state_dict())
    target = Target(0, start, tuple(map(member, range(9))), 1)

    def send(request, cohort):
        return tuple(
            ClientResponse(c.handle, 0, members=COUNTS[0], held_out=COUNTS[1])
            for c in cohort[:reporting]
        )

    def count(one, streams):
        return loss_counter(send)([one], lambda _: streams)[0]

    context = RiskContext(ReferenceEngine(NETWORK), count=count)
    return FederatedEstimator().estimate(target, context, Streams(1))


@pytest.mark.parametrize("reporting", [0, 1, 3, 4])
def test_no_figure_is_taken_from_fewer_than_five(reporting):
    found = finding(reporting)
    assert not found.counts
    assert "fewer than 5 clients reported counts" in found.reason


def test_five_are_enough():
    assert finding(5).is_known


@pytest.mark.parametrize("members", [0, 1, 2])
def test_fewer_than_a_sum_is_over_count_nothing(members):
    target = Target(0, dict(NETWORK.state_dict()), tuple(map(member, range(members))), 1)
    found = masked_loss_counter(ReferenceEngine(NETWORK), 3)(target, Streams(1))
    assert not np.any(found)
