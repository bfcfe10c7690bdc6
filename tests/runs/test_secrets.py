"""The hidden side of a run: who can repeat a round's draws, and who cannot any more."""

import hashlib
import json
from pathlib import Path

import pytest

from covey import RunError, Streams
from covey.base.signature import SigningKey
from covey.leaving.handover import Handover, acknowledge, keep_handover, unacknowledged
from covey.runs.folder import RunFolder
from covey.runs.secrets import Secrets, secrets_of

STREAMS = Streams(4)


@pytest.fixture
def marker(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "secret"


@pytest.fixture
def secrets(marker) -> Secrets:
    """Secrets of the operating system, just made."""
    return secrets_of(STREAMS, "os", marker)


def key(secrets: Secrets, t: int) -> bytes:
    return (secrets.at_round(t).secret or 0).to_bytes(32, "big")


def test_seeded_secrets_are_the_seeds_and_leave_no_file(marker, tmp_path):
    seeded = secrets_of(STREAMS, "seeded", marker)
    assert seeded.source == "seeded"
    assert seeded.path is None
    assert seeded.at_round(3) == STREAMS
    assert seeded.handle("h-derived") == "h-derived"
    seeded.forget_before(9)
    seeded.restart_at(2)
    assert seeded.at_round(3) == STREAMS
    assert not marker.exists()
    assert not (tmp_path / "config").exists()


def test_a_secret_of_the_system_lies_outside_the_run_for_its_owner_only(secrets, marker, tmp_path):
    assert secrets.source == "os"
    assert secrets.path.parent == tmp_path / "config" / "covey" / "runs"
    assert secrets.path.stem == marker.read_text()
    assert secrets.path.stat().st_mode & 0o777 == 0o600
    assert secrets.path.parent.stat().st_mode & 0o777 == 0o700
    written = json.loads(secrets.path.read_text())
    assert written["round"] == 0
    assert len(bytes.fromhex(written["key"])) == 32
    assert written["key"] not in marker.read_text()
    secrets.forget_before(2)
    assert secrets.path.stat().st_mode & 0o777 == 0o600
    assert list(secrets.path.parent.iterdir()) == [secrets.path]


def test_a_run_finds_its_secret_again_and_no_other_runs(secrets, marker, tmp_path):
    again = secrets_of(STREAMS, "os", marker)
    assert again.path == secrets.path
    assert key(again, 5) == key(secrets, 5)
    other = secrets_of(STREAMS, "os", tmp_path / "other")
    assert other.path != secrets.path
    assert key(other, 5) != key(secrets, 5)


def test_round_keys_follow_one_from_the_other(secrets):
    keys = [key(secrets, t) for t in range(5)]
    assert keys[1:] == [hashlib.sha256(round_key).digest() for round_key in keys[:-1]]
    assert len(set(keys)) == 5
    assert key(secrets, 0) == bytes.fromhex(json.loads(secrets.path.read_text())["key"])


def test_a_round_that_is_over_cannot_be_repeated(secrets):
    keys = [key(secrets, t) for t in range(6)]
    secrets.forget_before(3)
    written = secrets.path.read_text()
    assert all(round_key.hex() not in written for round_key in keys[:3])
    assert json.loads(written)["key"] == keys[3].hex()
    assert [key(secrets, t) for t in (3, 4, 5)] == keys[3:]
    assert all(key(secrets, t) != keys[t] for t in range(3))


def test_rounds_that_are_played_again_are_drawn_anew(secrets):
    keys = [key(secrets, t) for t in range(8)]
    secrets.forget_before(6)
    secrets.restart_at(2)
    again = [key(secrets, t) for t in range(2, 8)]
    assert len({*again}) == 6
    assert again != keys[2:]
    secrets.forget_before(4)
    assert key(secrets, 5) == again[3]


def test_tombstones_stay_while_the_key_moves_on(secrets, marker, tmp_path):
    mark = secrets.tombstone("alice")
    secrets.forget_before(5)
    secrets.restart_at(1)
    assert secrets_of(STREAMS, "os", marker).tombstone("alice") == mark
    assert secrets.tombstone("bob") != mark
    assert secrets_of(STREAMS, "os", tmp_path / "other").tombstone("alice") != mark
    assert secrets_of(STREAMS, "seeded", marker).tombstone("alice") != mark


@pytest.mark.parametrize("broken", ["missing", "torn"])
def test_without_its_secret_a_run_says_so_in_one_sentence(secrets, broken):
    if broken == "missing":
        secrets.path.unlink()
    else:
        secrets.path.write_text('{"round": 0, "key"')
    for use in (
        lambda: secrets.at_round(0),
        lambda: secrets.forget_before(1),
        lambda: secrets.restart_at(0),
        lambda: secrets.tombstone("alice"),
    ):
        with pytest.raises(RunError, match=r"must hold .*restore the file, or start"):
            use()


def test_a_run_whose_secret_was_lost_does_not_get_another(secrets, marker):
    secrets.path.unlink()
    with pytest.raises(RunError, match=r"must hold .*restore the file, or start"):
        secrets_of(STREAMS, "os", marker).at_round(0)


KEY = SigningKey.from_private_bytes(bytes(32))


def test_a_salt_opens_under_its_own_request_alone(tmp_path: Path):
    folder, handovers = (
        RunFolder(tmp_path),
        [Handover("ab" * 8, "01" * 16), Handover("cd" * 8, "02" * 16)],
    )
    for handover in handovers:
        keep_handover(folder, KEY, handover)
    assert unacknowledged(folder, KEY) == (*handovers,)
    with pytest.raises(RunError, match="must open with the key"):
        unacknowledged(folder, SigningKey.from_private_bytes(bytes([1] * 32)))
    first, second = sorted(folder.unacknowledged.iterdir())
    assert b"01" * 16 not in first.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(RunError, match="must open with the key"):
        unacknowledged(folder, KEY)
    acknowledge(folder, "cd" * 8)
    assert unacknowledged(folder, KEY) == (handovers[0],)


def test_no_round_is_drawn_again_that_was_played_or_begun(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    secrets = secrets_of(Streams(0), "os", tmp_path / "secret")
    begun = {secrets.at_round(t).secret for t in range(7)}
    secrets.forget_before(6)  # while round 6 is played
    secrets.restart_at(2)
    assert not begun & {secrets.at_round(t).secret for t in range(2, 9)}
