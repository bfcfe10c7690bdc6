"""Whose a proof is: name and salt together say it, to who has the proof alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from covey.runtime.verification import verify
from covey.unlearning.proof import proof_json, signed_proof, subject_mark
from covey.unlearning.signature import SigningKey
from unlearning.test_proof import DENIED, SALT

NAME = "client-00017"


@pytest.mark.parametrize(
    ("name", "salt", "is_its_own"),
    [
        (NAME, SALT, True),
        (NAME, bytes(16), False),
        ("client-00018", SALT, False),
        (NAME, SALT[:-1], False),
    ],
)
def test_only_name_and_salt_together_are_the_requester(
    tmp_path: Path, name: str, salt: bytes, *, is_its_own: bool
):
    facts = replace(DENIED, subject=subject_mark(NAME, SALT))
    path = tmp_path / "proof.json"
    path.write_text(proof_json(signed_proof(SigningKey.from_private_bytes(bytes(32)), facts)))
    found = verify(path, name_and_salt=(name, salt.hex()))
    (subject,) = (each for each in found.checks if each.name == "subject")
    assert subject.ok is is_its_own
