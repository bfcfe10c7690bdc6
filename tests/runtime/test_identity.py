"""The same run gives the same bits, whoever computes it."""

from itertools import product

import pytest
import torch

from covey import run


def outcome(result):
    return result.summary.model_hash, result.ledger_head


def test_the_number_of_workers_changes_nothing(play):
    truth = {"audit_examples": 60}
    one, three = (play(engine={"workers": n}, population=truth) for n in (1, 3))
    assert outcome(one) == outcome(three) != outcome(play(seed=1, population=truth))


def test_zero_risk_weight_is_ifca(play, settings, tmp_path):
    before = torch.get_rng_state()
    run(config=settings(rounds=1), out=tmp_path / "run")
    assert torch.equal(before, torch.get_rng_state())  # no run touches what is global
    ifca = play(method={"name": "ifca"})
    indifferent = play(population={"risk_weight": 0.0})
    assert ifca.summary.model_hash == indifferent.summary.model_hash
    assert ifca.history.assignment == indifferent.history.assignment


def test_engines_agree_to_a_hundred_thousandth(play):
    first, *others = (play(engine={"name": n}) for n in ("reference", "parallel", "vmap"))
    for other, cluster in product(others, (0, 1)):
        found, expected = (dict(each.params(cluster)) for each in (other, first))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "source",
    [
        "none",
        "client",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("oracle", "shadow")),
    ],
)
def test_the_red_team_moves_no_model_of_those_who_ignore_it(play, source):
    population = {"audit_examples": 60 if source == "oracle" else 0}
    quiet = play(method={"name": "ifca"}, population=population)
    watched = play(method={"name": "ifca"}, population=population, risk={"name": source})
    assert watched.history.assignment == quiet.history.assignment
    if source != "shadow":  # its pool takes test images, but no client's
        assert watched.summary.model_hash == quiet.summary.model_hash


def test_excluding_a_client_changes_nothing_for_the_others(play):
    everybody = play(method={"name": "local"}, risk={"name": "none"})
    without = play(
        method={"name": "local"}, risk={"name": "none"}, population={"exclude": ["client-00002"]}
    )
    assert "client-00002" not in without.names
    for client in without.names:
        mine = without.params(without.cluster_of(client))
        before = everybody.params(everybody.cluster_of(client))
        torch.testing.assert_close(dict(mine), dict(before), atol=0, rtol=0)
