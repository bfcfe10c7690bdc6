"""What a run is made of may not change under it, and its ledger says what it does."""

import os
import stat
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

from covey import Config, ConfigError, LedgerError, RunError, load, resume, run
from covey.base.events import (
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelsMerged,
    RiskMeasured,
    RoundMeasured,
    RunRolledBack,
    RunStarted,
    kind_and_body,
)
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Handle
from covey.ledger import rows
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.report.summary import summary
from covey.runs.grammar import Grammar
from covey.runs.ledger_record import LedgerReader, LedgerRecord
from covey.settings.algorithm import notes
from covey.settings.load import without_passwords
from recorded import assert_nowhere, contents, events_of

SECRET = "pa55-for-the-ledger"  # noqa: S105 - of no ledger


@pytest.mark.slow
def test_a_password_is_in_no_file_of_the_run_and_may_be_replaced(
    settings, postgres, tmp_path, monkeypatch
):
    url = make_url(postgres.run("rotated"))

    def rotate(password: str) -> None:
        place = url.set(password=password).render_as_string(hide_password=False)
        monkeypatch.setenv("COVEY_LEDGER_URL", place)

    rotate(SECRET)
    config = settings(ledger={"url": "env:COVEY_LEDGER_URL"})
    played = run(config=config, out=tmp_path / "run")
    played.report()
    assert {"config.toml", "report.html"} <= contents(played.folder).keys()
    assert_nowhere(played.folder, SECRET)
    assert not (played.folder / "ledger.sqlite").exists()
    head, name = played.ledger_head, next(iter(played.names))
    rotate("another-one")
    assert resume(played.folder).ledger_head == head
    assert load(played.folder).explain(name).client == name
    assert load(played.folder).forget(name, answer="retrain")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://covey:{SECRET}@host/runs?run=a",
        f"postgresql://host/runs?run=a&password={SECRET}",
        f"postgresql://host/runs?sslpassword={SECRET}&run=a",
    ],
)
def test_a_password_among_the_settings_is_refused_and_not_repeated(url):
    with pytest.raises(ConfigError, match="must hold no password") as refused:
        Config.of({"ledger": {"url": url}})
    assert SECRET not in str(refused.value)
    assert SECRET not in without_passwords(url)


@pytest.mark.skipif(sys.platform == "win32", reason="no modes")
def test_a_file_with_the_url_is_its_owners_only(tmp_path):
    place = tmp_path / "url"
    place.write_text(f"postgresql://me:{SECRET}@127.0.0.1:1/runs?run=a\n")
    place.chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600") as refused:
        Ledger.create(f"file:{place}", str)
    assert SECRET not in str(refused.value)
    place.chmod(0o600)
    with pytest.raises(LedgerError, match="check the URL") as refused:
        Ledger.create(f"file:{place}", str)
    assert SECRET not in str(refused.value)
    for missing in ("env:COVEY_NO_SUCH_NAME", f"file:{tmp_path}/none"):
        with pytest.raises(LedgerError, match="must hold the ledger's URL"):
            Ledger.read(missing)


@pytest.mark.slow
def test_preferences_that_change_between_kill_and_resume_are_refused(settings, cut, tmp_path):
    path = tmp_path / "preferences.csv"
    path.write_text("name,risk_threshold,risk_weight\nclient-00001,0.7,0.5\n")
    config = settings(population={"preferences": str(path)})
    played = run(config=config, out=tmp_path / "run")
    model = played.summary.model_hash
    cut(played.folder, 2)
    for changed in ("1,0.9,0.5", "1,0.7,0.25", "2,0.7,0.5"):
        path.write_text(f"name,risk_threshold,risk_weight\nclient-0000{changed}\n")
        with pytest.raises(RunError, match=r"preferences\.csv of population\.pref"):
            resume(played.folder)
    path.write_text("name,risk_threshold,risk_weight\nclient-00001,0.7,0.5\n")
    assert resume(played.folder).summary.model_hash == model


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no modes")
def test_who_left_may_be_taken_out_of_the_preferences_and_files_are_their_owners(
    settings, tmp_path
):
    path = tmp_path / "preferences.csv"
    entries = ["client-00001,0.7", "client-00002,0.6"]
    path.write_text("\n".join(["name,risk_threshold", *entries]))
    config = settings(population={"preferences": str(path)})
    before = os.umask(0o022)
    try:
        played = run(config=config, out=tmp_path / "run")
        played.forget("client-00001", answer="retrain")
    finally:
        os.umask(before)

    def mode(name: str) -> int:
        return stat.S_IMODE((played.folder / name).stat().st_mode)

    assert [mode(name) for name in (".", "checkpoints", "proofs")] == [0o700] * 3
    files = ["config.toml", "ledger.sqlite", "checkpoints/round-00003.safetensors"]
    proofs = [str(p.relative_to(played.folder)) for p in played.folder.glob("proofs/*")]
    assert {mode(path) for path in (*files, *proofs)} == {0o600}
    path.write_text("\n".join(["name,risk_threshold", entries[1]]))
    assert "client-00001" not in resume(played.folder).names


def test_a_run_whose_ledger_is_gone_is_left_alone(play):
    played = play()
    played.report()
    lost = played.folder / "ledger.sqlite"
    lost.unlink()
    before = contents(played.folder)
    with pytest.raises(RunError, match=r"The ledger of .* must be there"):
        resume(played.folder)
    assert not lost.exists()
    assert contents(played.folder) == before


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
    notes_on_seed = [note for note in notes(config) if "recomputed from the seed" in note]
    assert len(notes_on_seed) == said


@pytest.mark.slow
def test_a_finished_run_reads_the_same_from_disk(play):
    result = play(population={"audit_examples": 60})
    again = load(result.folder)
    assert again.summary == result.summary


HANDLES: tuple[Handle, ...] = ("h0", "h1", "h2", "h3")
STEPS = st.lists(st.one_of(st.just("round"), st.just("look"), st.integers(0, 5)), max_size=14)
"""A round, a look at the ledger, or a rewind to before some round."""


def clock() -> str:
    return "2030-01-01T12:00:00Z"


def records(t: int | None, *events: Event) -> list[Record]:
    return [Record(t, *kind_and_body(event)) for event in events]


def a_round(t: int, seed: int) -> list[Record]:
    chosen = {h: (seed + i * t) % 2 for i, h in enumerate(HANDLES)}
    taus = dict.fromkeys(HANDLES, 0.6)
    begins = [RunStarted("0", "ifca", "c", "d", 2, 20, (), dict.fromkeys(HANDLES), taus, 3, ())]
    sizes = (sum(j == 0 for j in chosen.values()), sum(chosen.values()))
    return records(
        t,
        *(begins if t == 0 else []),
        CohortSampled(HANDLES),
        RiskMeasured(
            seed % 2, RiskEstimate(Figure(0.65, 0.01), 0.6, 9, 9, source="oracle", round_index=t)
        ),
        ClientsAssigned(chosen, "clients"),
        ModelsMerged(f"{seed:064x}", sizes),
        RoundMeasured(0.5 + 0.01 * seed, {}, sizes),
    )


def looked(reader: LedgerReader, place: Path) -> LedgerRecord:
    with Ledger.read(place) as ledger:
        return reader.read(ledger)


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_BYTES", 1)


@pytest.mark.slow
@given(steps=STEPS, most_bytes=st.sampled_from([1, 300, 10_000]))
def test_looking_often_and_in_small_pieces_gives_the_same_history(steps, most_bytes):
    reader = LedgerReader()
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "MOST_BYTES", most_bytes)
        place, t = Path(folder) / "ledger.sqlite", 0
        with Ledger.create(place, clock) as ledger:
            for seed, step in enumerate(steps):
                if step == "look":
                    assert looked(reader, place).history.all_events is not None
                elif step == "round":
                    ledger.append(t, a_round(t, seed))
                    t += 1
                elif isinstance(step, int) and step < t:
                    ledger.append_between(records(None, RunRolledBack(step, t, "anew")))
                    t = step
            grown, whole = looked(reader, place), LedgerReader().read(ledger)
            kinds = {link.kind for link in ledger.links()}
            counting = [link.position for link in ledger.look(kinds)]
    assert grown.history == whole.history
    assert (grown.head, grown.facts) == (whole.head, whole.facts)
    assert len(grown.hashes) == len(whole.hashes)
    assert [at for at, counts in enumerate(grown.counting, 1) if counts] == counting
    assert summary(grown.history) == summary(whole.history)


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """Three rounds, the last of which was played twice."""
    place = tmp_path / "ledger.sqlite"
    with Ledger.create(place, clock) as ledger:
        for t in range(3):
            ledger.append(t, a_round(t, t))
        ledger.append_between(records(None, RunRolledBack(2, 3, "anew")))
        ledger.append(2, a_round(2, 7))
    return place


@pytest.mark.parametrize(
    ("t", "events", "problem"),
    [
        (1, [CohortSampled(HANDLES)], "round 1, and round 3 of 20 comes next"),
        (3, [CohortSampled(HANDLES)] * 2, "a round has one CohortSampled, and round 3 has not"),
        (3, [ClientsAssigned({"h0": 0}, "clients")], "a round has one CohortSampled"),
        (3, [CohortSampled(("strange",))], "never joined: 'strange'"),
        (None, [RunRolledBack(-1, 3, "anew")], "greater than or equal to 0"),
        (None, [RunRolledBack(1, 5, "anew")], "3 rounds had been played, not 1 to 5"),
        (None, [CohortSampled(HANDLES)], "a CohortSampled belongs to a round"),
    ],
)
def test_an_event_out_of_its_order_is_refused_however_often_it_is_read(played, t, events, problem):
    with Ledger.read(played) as ledger:
        grammar = Grammar()
        grammar.read(ledger.replay())
    for _ in range(2):
        with pytest.raises(LedgerError, match=problem):
            grammar.read(records(t, *events))
