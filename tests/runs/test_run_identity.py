"""What a run is made of may not change under it; where its record lies, may."""

import os
import stat
import sys

import pytest
from sqlalchemy import make_url

from covey import Config, ConfigError, LedgerError, RunError, load, resume, run
from covey.ledger.store import Ledger
from covey.settings.load import without_passwords
from recorded import assert_nowhere, contents

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

    assert [mode(each) for each in (".", "checkpoints", "proofs")] == [0o700] * 3
    files = ["config.toml", "ledger.sqlite", "checkpoints/round-00003.safetensors"]
    proofs = [str(p.relative_to(played.folder)) for p in played.folder.glob("proofs/*")]
    assert {mode(each) for each in (*files, *proofs)} == {0o600}
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
