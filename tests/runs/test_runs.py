"""What a whole run records and measures, and that the same one gives the same bits."""

import pytest

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
