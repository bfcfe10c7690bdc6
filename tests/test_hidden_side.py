"""Salts that nobody has acknowledged: each opens under its own request, with its key."""

from pathlib import Path

import pytest

from covey import RunError
from covey.runtime.folder import RunFolder
from covey.runtime.secrets import Handover, acknowledge, keep_handover, unacknowledged
from covey.unlearning.signature import SigningKey

KEY = SigningKey.from_private_bytes(bytes(32))


def test_a_salt_opens_under_its_own_request_alone(tmp_path: Path):
    folder, kept = (
        RunFolder(tmp_path),
        [Handover("ab" * 8, "01" * 16), Handover("cd" * 8, "02" * 16)],
    )
    for each in kept:
        keep_handover(folder, KEY, each)
    assert unacknowledged(folder, KEY) == (*kept,)
    with pytest.raises(RunError, match="must open with the signing key"):
        unacknowledged(folder, SigningKey.from_private_bytes(bytes([1] * 32)))
    first, second = sorted(folder.unacknowledged.iterdir())
    assert b"01" * 16 not in first.read_bytes()
    second.write_bytes(first.read_bytes())
    with pytest.raises(RunError, match="must open with the signing key"):
        unacknowledged(folder, KEY)
    acknowledge(folder, "cd" * 8)
    assert unacknowledged(folder, KEY) == (kept[0],)
