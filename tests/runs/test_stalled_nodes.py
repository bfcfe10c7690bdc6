"""Nodes whose training diverged: their updates are refused before anybody merges them."""

import pytest
import torch

import covey
from covey.aggregation.base import NOT_FINITE
from covey.algorithms.client_requests import ClientRequest
from covey.algorithms.round import divergences
from covey.algorithms.state import initial_state
from covey.base.events import AnswerRefused, ModelsMerged
from covey.runs.ending import with_stalled_clusters

FRESH = initial_state(({"w": torch.zeros(2)},) * 2)
REFUSED = AnswerRefused("A", f"its update of w {NOT_FINITE}")
LATE = AnswerRefused("A", "it is an answer to another question")
NOTHING, SOMETHING = ModelsMerged("", (0, 0)), ModelsMerged("", (0, 2))


@pytest.mark.parametrize(
    ("facts", "gone"),
    [
        ((REFUSED, NOTHING), [0, 1]),
        ((REFUSED, SOMETHING), []),
        ((LATE, NOTHING), []),
        ((NOTHING,), []),
    ],
    ids=["all were refused", "one was accepted", "not for that", "nobody came"],
)
def test_models_stall_where_all_that_came_was_not_finite(facts, gone):
    assert list(divergences(with_stalled_clusters(FRESH, facts))) == gone


def test_a_node_is_refused_in_the_words_that_are_looked_for():
    flower = pytest.importorskip("covey_flower.messages")
    start = {"w": torch.zeros(2)}
    asked = ClientRequest("train", (start,), (True,))
    question = flower.Question(covey.__version__, "run", "token", "a", asked)
    reply = flower.Reply(covey.__version__, "token", "a")
    content = flower.encode(reply, {"w": torch.full((2,), torch.nan)})
    with pytest.raises(flower.InvalidMessageError) as refused:
        flower.reply_of(content, flower.PendingQuestion("A", question))
    assert str(refused.value).endswith(NOT_FINITE)
