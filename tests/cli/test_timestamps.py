"""Time stamps of an authority that the test itself plays, with OpenSSL's."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings

from covey import Config, run
from covey.errors import ConfigError
from covey.runtime import RunFolder
from covey.runtime.timestamps import write_timestamp_request
from covey.runtime.verification import verify
from covey.runtime.witness import head_update
from covey.unlearning.signature import Check
from runtime.flips import FLIPS, flipped
from runtime.rewriting import rewrite
from slow.mutations import Honest, of_bytes

pytest.importorskip("rfc3161_client", reason="needs covey[timestamp]")

SETTINGS = """
[tsa]
default_tsa = here
[here]
serial = {0}/serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ess_cert_id_alg = sha256
"""


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def authority(folder: Path) -> Callable[[Path], Path]:
    """Make an authority with a root of its own; it answers queries."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to play the authority")
    folder.mkdir()
    now = datetime.now(UTC)
    root, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def certified(name: str, public: ec.EllipticCurvePublicKey):
        begun = now - timedelta(days=1)
        made = x509.CertificateBuilder(
            named("A root"), named(name), public, x509.random_serial_number()
        )
        return made.not_valid_before(begun).not_valid_after(begun + timedelta(days=9))

    own = certified("A root", root.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    theirs = certified("A clock", key.public_key()).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True
    )
    for name, builder in (("root.pem", own), ("tsa.pem", theirs)):
        pem = builder.sign(root, SHA256()).public_bytes(Encoding.PEM)
        (folder / name).write_bytes(pem)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "tsa.key").write_bytes(private)
    (folder / "tsa.cnf").write_text(SETTINGS.format(folder))

    def stamp(query: Path) -> Path:
        response = query.with_suffix(".tsr")
        words = ["-config", "tsa.cnf", "-signer", "tsa.pem", "-inkey", "tsa.key"]
        told = ["-queryfile", str(query), "-out", str(response)]
        subprocess.run(
            [openssl, "ts", "-reply", *words, *told],
            check=True,
            cwd=folder,
            capture_output=True,
        )
        return response

    return stamp


SMALL = {
    "rounds": 2,
    "population": {"clients": 6, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "redteam": {"source": "none"},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run, a proof of it, a stamp of its head and the authority's root."""
    base = tmp_path_factory.mktemp("stamped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(base / "keys"))
        played = run(config=Config.of(SMALL), out=base / "run")
        (answer,) = played.forget(next(iter(played.names)), answer="retrain")
        shutil.copy(answer.answered.proof, base / "proof.json")
        head = head_update(RunFolder(base / "run")).head
        write_timestamp_request(head, base / "head.tsq")
    authority(base / "tsa")(base / "head.tsq")
    return base


@pytest.fixture
def stamped(whole, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "all" / "keys"))
    return shutil.copytree(whole, tmp_path / "all")


def stamp_check(base: Path, response: str = "head.tsr", **ledger: Path) -> Check:
    stamp = (base / response, base / "tsa" / "root.pem")
    found = verify(base / "proof.json", ledger.get("ledger"), timestamp=stamp)
    return next(each for each in found if each.name == "time stamp")


def test_a_stamped_head_is_anchored_by_that_authority_at_that_time(stamped, covey):
    found = stamp_check(stamped, ledger=stamped / "run")
    assert found.ok
    assert f"the authority CN=A clock, {datetime.now(UTC).year}" in found.detail
    assert stamp_check(stamped).ok is None  # the proof alone does not tell its tree
    stamp = ["--timestamp", stamped / "head.tsr"]
    whole = [*stamp, "--tsa-root", stamped / "tsa" / "root.pem"]
    code, out, _ = covey("head", stamped / "run", *whole)
    assert (code, "among them" in out) == (0, True)
    proof = [stamped / "proof.json", "--ledger", stamped / "run"]
    code, out, _ = covey("verify", *proof, *whole)
    assert (code, "Anchored: events 1 to" in out) == (0, True)
    code, _, err = covey("verify", *proof, *stamp)
    assert (code, "--tsa-root go together" in " ".join(err.split())) == (2, True)


def test_a_query_is_written_with_the_head_that_it_is_about(stamped, covey):
    query = stamped / "again.tsq"
    assert covey("head", stamped / "run", "--timestamp-request", query)[0] == 0
    written = (stamped / "again.checkpoint").read_bytes()
    assert written == (stamped / "head.checkpoint").read_bytes()
    told = ["--timestamp-request", stamped / "again.checkpoint"]
    assert covey("head", stamped / "run", *told)[0] == 2


def test_no_flip_in_a_stamp_or_its_head_says_something_else(stamped):
    honest = stamp_check(stamped)

    def refused_or_the_same() -> bool:
        found = stamp_check(stamped)  # some bytes of a response are not signed
        return found.ok is False or found == honest

    for name in ("head.tsr", "head.checkpoint"):
        assert not flipped(stamped / name, FLIPS, refused_or_the_same)


@pytest.mark.slow
def test_a_mangled_stamp_is_refused_in_a_sentence(stamped):
    path = stamped / "head.tsr"
    honest, whole = path.read_bytes(), stamp_check(stamped)

    @settings(derandomize=True, max_examples=200, database=None)
    @given(of_bytes(Honest(honest)))
    def mangled(content: bytes) -> None:
        path.write_bytes(content)
        found = stamp_check(stamped)
        assert found.ok is False or found == whole

    mangled()


def test_a_stranger_s_stamp_and_none_are_refused(stamped):
    authority(stamped / "another")(stamped / "head.tsq")
    assert stamp_check(stamped).ok is False
    (stamped / "head.tsr").unlink()
    assert stamp_check(stamped).ok is False


def test_a_history_that_was_rewritten_is_not_the_one_that_was_stamped(stamped, covey):
    rewrite(stamped / "run", '"by":"split"', '"by":"splat"')
    assert stamp_check(stamped, ledger=stamped / "run").ok is False
    stamp = ["--timestamp", stamped / "head.tsr"]
    whole = [*stamp, "--tsa-root", stamped / "tsa" / "root.pem"]
    assert covey("head", stamped / "run", *whole)[0] == 1


def test_without_its_package_the_remedy_is_named(stamped, monkeypatch):
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    with pytest.raises(ConfigError, match=r"Install covey\[timestamp\]"):
        stamp_check(stamped)
