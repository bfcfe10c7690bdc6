"""Whatever stands in a file or message: it is read, or refused in words of covey's own."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings

from covey import CoveyError
from covey_flower.identity import InvalidMessageError
from flower.inprocess import outside_a_run
from slow.anchoring_files import anchoring_readers
from slow.given_files import data_readers, settings_readers
from slow.kept_files import beside_readers, deployed_readers, run_readers
from slow.messages import array_readers, message_readers

pytestmark = pytest.mark.slow

REFUSED = (CoveyError, OSError, InvalidMessageError)
"""What a reader may raise; anything else would be shown as a fault of covey."""

READERS = (
    *("settings", "node.toml", "preferences.csv", "npz", "tables", "patients", "idx"),
    *("LEAF", "CIFAR"),
    *("CelebA's parts", "CelebA's labels", "CelebA's images"),
    *("proofs", "proofs, with a ledger", "public keys", "signing key", "ledger"),
    *("config.toml of a run", "copies", "requests", "states", "updates"),
    *("federation.json", "secrets", "which secret", "a node's memory", "a node's tensors"),
    *("deploy.toml", "receipts", "unacknowledged salts", "key lists"),
    *("questions", "replies", "hellos", "arrays"),
)

ROOMS = (
    *(settings_readers, data_readers, message_readers, array_readers),
    *(run_readers, beside_readers, deployed_readers),
    anchoring_readers,  # after the run that they read
)

COSTLY = ("ledger", "proofs, with a ledger")
"""They take as long as twenty of the others."""


def fuzzed(name: str) -> settings:
    return settings(
        derandomize=True,
        max_examples=50 if name in COSTLY else 200,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    outside_a_run()
    folder = tmp_path_factory.mktemp("fuzzed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        yield {name: reader for readers in ROOMS for name, reader in readers(folder)}


def test_every_reader_is_tried(every):
    assert tuple(sorted(every)) == tuple(sorted(READERS))


@pytest.mark.parametrize("name", READERS)
def test_a_mangled_file_is_read_or_refused(every, name):
    reader = every[name]
    reader.survives(reader.honest)

    @fuzzed(name)
    @given(reader.mangled())
    def mangled(content):
        with suppress(*REFUSED):
            reader.survives(content)

    try:
        mangled()
    finally:
        reader.path.write_bytes(reader.honest)
