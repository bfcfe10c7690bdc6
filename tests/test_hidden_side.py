"""What a run hides: salts open under their own request, and no round is drawn twice."""

from pathlib import Path

import pytest

from covey import RunError, Streams
from covey.base.signature import SigningKey
from covey.leaving.handover import Handover, acknowledge, keep_handover, unacknowledged
from covey.runs.folder import RunFolder
from covey.runs.secrets import secrets_of

KEY = SigningKey.from_private_bytes(bytes(32))


def test_a_salt_opens_under_its_own_request_alone(tmp_path: Path):
    folder, kept = (
        RunFolder(tmp_path),
        [Handover("ab" * 8, "01" * 16), Handover("cd" * 8, "02" * 16)],
    )
    for each in kept:
        keep_handover(folder, KEY, each)
    assert unacknowledged(folder, KEY) == (*kept,)
    with pytest.raises(RunError, match="must open with the key"):
        unacknowledged(folder, SigningKey.from_private_bytes(bytes([1] * 32)))
    first, second = sorted(folder.unacknowledged.iterdir())
    assert b"01" * 16 not in first.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(RunError, match="must open with the key"):
        unacknowledged(folder, KEY)
    acknowledge(folder, "cd" * 8)
    assert unacknowledged(folder, KEY) == (kept[0],)


def test_no_round_is_drawn_again_that_was_played_or_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    kept = secrets_of(Streams(0), "os", tmp_path / "secret")
    begun = {kept.at_round(t).secret for t in range(7)}
    kept.forget_before(6)  # while round 6 is played
    kept.restart_at(2)
    assert not begun & {kept.at_round(t).secret for t in range(2, 9)}
