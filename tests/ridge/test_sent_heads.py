"""A head that was sent says what the head says that was solved, to the last bit."""

import pytest
import torch

from covey.ridge.head import SentHead, scores_without_client, solved_head
from covey.ridge.sums import Rows, Sums, sums_of

D, CLASSES = 130, 7


def rows(seed: int) -> Rows:
    draw = torch.Generator().manual_seed(seed)
    features = torch.randint(-3000, 3000, (40, D), generator=draw).to(torch.int16)
    features[:, -1] = 2**10
    labels = torch.randint(0, CLASSES, (40,), generator=draw)
    return Rows(features, labels)


@pytest.mark.parametrize("share", [1.0, 0.3, 0.0])
def test_scores_without_a_client_are_the_same_bits_from_either(share):
    own = rows(0)
    sums = sums_of([own, rows(1)], D, CLASSES)
    head = solved_head(sums, Sums.nothing(D, CLASSES), 0.0, 0.3)
    sent = SentHead.of(head.params, head.root.contiguous() if share else None)
    here = scores_without_client(head, own, share)
    assert torch.equal(here, scores_without_client(sent, own, share))
    assert torch.equal(sent.theta, head.theta.float())
