"""What a whole run records and measures, and that the same one gives the same bits."""

from itertools import product

import pytest
import torch

from covey import Config, load
from covey.base.events import ClientsAssigned, CohortSampled
from covey.settings.algorithm import notes
from recorded import events_of


def test_every_participant_is_recorded_by_handle_and_never_by_name(play):
    result = play()
    chosen = {t: e for t, e in events_of(result.folder) if isinstance(e, ClientsAssigned)}
    cohorts = {t: e for t, e in events_of(result.folder) if isinstance(e, CohortSampled)}
    assert [*cohorts] == [0, 1, 2, 3]
    for t, cohort in cohorts.items():
        assert set(cohort.handles) == set(chosen[t].clusters)
    assert "client-0000" not in str(events_of(result.folder))


@pytest.mark.parametrize(
    ("merge", "source", "said"),
    [("anonymity-sets", "seeded", 1), ("anonymity-sets", "os", 0), ("mean", "seeded", 0)],
)
def test_what_the_seed_gives_away_is_said(merge, source, said):
    config = Config.of({"aggregation": {"name": merge}, "secrets": {"source": source}})
    found = [each for each in notes(config) if "recomputed from the seed" in each]
    assert len(found) == said


@pytest.mark.slow
def test_a_finished_run_reads_the_same_from_disk(play):
    result = play(population={"audit_examples": 60})
    again = load(result.folder)
    assert again.summary == result.summary


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing(play):
    one, three = play(engine={"workers": 1}), play(engine={"workers": 3})
    assert one.summary.model_hash == three.summary.model_hash
    assert one.ledger_head == three.ledger_head


@pytest.mark.slow
def test_zero_risk_weight_is_ifca(play):
    ifca = play(method={"name": "ifca"})
    indifferent = play(population={"risk_weight": 0.0})
    assert ifca.summary.model_hash == indifferent.summary.model_hash
    assert ifca.history.assignment == indifferent.history.assignment


def test_engines_agree_to_a_hundred_thousandth(play):
    first, *others = (play(engine={"name": n}) for n in ("reference", "parallel", "vmap"))
    for other, cluster in product(others, (0, 1)):
        found, expected = (dict(each.params(cluster)) for each in (other, first))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
