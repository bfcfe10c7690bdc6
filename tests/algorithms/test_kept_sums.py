"""A server that keeps each client's own sums: the same bits, and nobody's records again."""

from dataclasses import replace
from typing import Any

import pytest

from algorithms.playing import rounds_of
from covey import Config, ConfigError
from covey.algorithms.sums import OwnSums
from covey.models.ridge_state import ClusterSums
from covey.settings.run import BuiltRun, build_run
from runtime.solved_runs import SOLVED


def settings(**options: object) -> dict[str, Any]:
    method = SOLVED["method"]
    return SOLVED | {"method": {**method, **options}}


def built(**options: object) -> BuiltRun:
    return build_run(Config.of(settings(**options)))


@pytest.mark.parametrize("keeps", [True, False])
def test_who_leaves_is_subtracted_without_its_records(keeps):
    run = built(keep_sums=keeps)
    *_, last = rounds_of(run, 3)
    leaver, *stay = run.population.clients
    lost = replace(leaver, train=leaver.train.first(1))  # no longer what is in the sums
    forgotten = run.with_clients((lost, *stay))
    right = run.algorithm.without(last.state, run.clients((leaver,)))
    left = forgotten.algorithm.without(last.state, forgotten.clients((lost,)))
    same = right.kept(ClusterSums).sums == left.kept(ClusterSums).sums
    assert same == keeps
    assert leaver.handle not in left.kept(OwnSums).gram
    assert len(left.kept(OwnSums).gram) == keeps * len(stay)


@pytest.mark.parametrize(
    "privacy", [{"secure_sums": True}, {"client_clip": 0.3, "client_noise": 1.0}]
)
def test_it_is_refused_beside_what_hides_single_sums(privacy):
    given = settings(keep_sums=True) | {"privacy": privacy}
    with pytest.raises(ConfigError, match="keep_sums"):
        Config.of(given)
    del given["method"]["keep_sums"]
    Config.of(given)
