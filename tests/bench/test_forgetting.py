"""One seed of each federation: answers are what they say, to the bit where they must."""

import pytest

from covey_papers.bench import FORGETTING
from covey_papers.bench.forgetting_data import LABEL, LEAVER, forgetting_data
from covey_papers.bench.forgetting_runs import never_met, seed_result


def test_the_leaver_is_unlike_the_others_and_no_example_is_in_two_places():
    known = forgetting_data()
    own = known.clients[LEAVER]
    assert int((own.labels == LABEL).sum()) == 18
    assert len(known.fresh) == 4 * len(own)
    assert {len(each) for each in known.clients.values()} == {30}
    parts = [*known.clients.values(), known.fresh, known.test]
    rows = [row.numpy().tobytes() for part in parts for row in part.inputs]
    assert len(set(rows)) == len(rows)
    assert LEAVER not in known.brought(frozenset({LEAVER}))


@pytest.mark.parametrize(
    "each",
    [
        *(pytest.param(each, marks=pytest.mark.slow) for each in FORGETTING[:2]),
        *FORGETTING[2:],
    ],
    ids=lambda each: each.name,
)
def test_exact_answers_are_the_run_that_never_met_the_client(each):
    found = seed_result(each, 1)
    assert found.never == never_met(each, 1)
    assert found.met.model_hash != found.never.model_hash
    for answer, given in found.answers.items():
        exact = answer in {"retrain", "subtract"}
        assert given.answer == answer
        assert (given.weights_apart == 0) == exact
        assert (given.seen == found.never) == exact
        assert (given.seen == found.met) == (answer == "deny")
        assert given.sums_tell is (True if answer == "subtract" else None)
    assert set(found.together) == set(each.together)
