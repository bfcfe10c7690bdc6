"""History that is rewritten and sealed again, and receipts that show it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import command
from covey import Config, CoveyError, LedgerError, load, run, verify
from covey.base.signature import (
    Anchor,
    Check,
    document_json,
    fingerprint,
    revoke_key,
    rotate_key,
    sign,
    signing_key,
)
from covey.leaving.verification import Verification
from covey.ledger.store import Ledger
from covey.ledger.tree import TreeHead
from runs.left_runs import LEAVER, SETTINGS
from support.resealed import reseal, rows_of


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run that a client has left, and its receipt."""
    base = tmp_path_factory.mktemp("anchors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(base / "keys"))
        held = run(config=Config.of({**SETTINGS, "rounds": 2}), out=base / "run")
        calls = []
        (one,) = held.forget(LEAVER, "deny", on_receipt=lambda *text: calls.append(text))
        assert calls == [(LEAVER, one.receipt)]
        assert one.receipt is not None
        assert one.receipt.salt == one.answered.salt
        shutil.copy(one.answered.proof, base / "proof.json")
        shutil.copy(one.receipt.path, base / "receipt.json")
        (base / "salt").write_text(one.answered.salt)
    return base


@pytest.fixture
def copy(base, tmp_path, monkeypatch):
    """The same, to do violence to."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "all" / "keys"))
    return shutil.copytree(base, tmp_path / "all")


def verified(base: Path, **arguments: Any) -> Verification:
    name_and_salt = (LEAVER, (base / "salt").read_text())
    return verify(
        base / "proof.json", arguments.pop("ledger", None), keys(base), name_and_salt, **arguments
    )


def checks(base: Path, **arguments: Any) -> dict[str, Check]:
    return {check.name: check for check in verified(base, **arguments).checks}


def keys(base: Path) -> Path:
    return base / "keys" / "covey" / "signing-key.pub.pem"


def test_a_proof_says_what_is_anchored_by_whom(base):
    verification = verified(base, ledger=base / "run", receipt=base / "receipt.json")
    assert verification.valid
    receipt = json.loads((base / "receipt.json").read_text())
    size = TreeHead.parse(receipt["checkpoint"]).size
    own = Anchor(receipt["signature"]["fingerprint"], size, receipt["signed"])
    assert verification.anchored == (own,)
    assert {"history", "dates"} <= {*verification.operator}  # of what came after the receipt
    alone = verified(base)
    assert (alone.anchored, alone.operator) == ((), ("facts", "history", "dates"))


def test_a_history_that_was_rewritten_and_sealed_again_is_refused_everywhere(copy):
    folder = copy / "run"
    rows, old = rows_of(folder), '"accuracy":'
    at = next(at for at, (*_, body) in enumerate(rows) if old in body)
    rows[at] = (*rows[at][:2], rows[at][2].replace(old, f"{old} ", 1))
    reseal(folder, rows)
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        ledger.verify()  # the chain alone shows nothing
    for call in (
        lambda: load(folder).history,
        lambda: load(folder).explain("client-00001"),
        lambda: load(folder).report(),
        lambda: load(folder).resume(),
        lambda: load(folder).plan("client-00001"),
    ):
        with pytest.raises(LedgerError, match="sealed again"):
            call()
    ok = checks(copy, ledger=folder, receipt=copy / "receipt.json")
    assert ok["ledger"].ok is False
    assert "the ledger was rewritten" in ok["receipt"].detail


def test_an_old_proof_holds_after_its_key_was_replaced_and_a_new_one_cannot_backdate(copy):
    new = rotate_key()
    ok = checks(copy, ledger=copy / "run", receipt=copy / "receipt.json")
    assert all(check.ok is not False for check in ok.values())
    assert ok["key"].ok is True
    document = json.loads((copy / "proof.json").read_text())
    document["answered"] = "2020-01-01T00:00:00.000+00:00"
    (copy / "proof.json").write_text(document_json(sign(new, document)))
    assert "came into use at" in checks(copy)["key"].detail
    assert checks(copy)["key"].ok is False


LATER = "2099-01-01T00:00:00.000+00:00"


def test_a_revoked_key_speaks_nowhere_any_more(copy):
    """Of whoever stole it: a receipt that is dated after that."""
    own = signing_key()
    revoke_key(fingerprint(own.public_key()))
    ok = checks(copy, ledger=copy / "run", receipt=copy / "receipt.json")
    assert (ok["key"].ok, ok["receipt"].ok) == (None, None)  # it may be dated back
    assert verified(copy, ledger=copy / "run", receipt=copy / "receipt.json").anchored == ()
    document = json.loads((copy / "receipt.json").read_text()) | {"signed": LATER}
    (copy / "receipt.json").write_text(document_json(sign(own, document)))
    ok = checks(copy, receipt=copy / "receipt.json")
    assert ok["receipt"].ok is False
    assert "its key: it was revoked at" in ok["receipt"].detail
    with pytest.raises(CoveyError, match="found it revoked"):
        signing_key()


def test_a_receipt_comes_before_any_answer_and_its_salt_outlives_a_crash(copy):
    class KilledError(Exception):
        pass

    def die(*_: object) -> None:
        raise KilledError

    held = load(copy / "run")
    for place in ("on_receipt", "on_answer"):
        name = sorted(held.names)[0]
        before = {receipt.request for receipt in held.unacknowledged}
        with pytest.raises(KilledError):
            held.forget(name, "retrain", **{place: die})  # type: ignore[arg-type]
        (mine,) = [e for e in load(copy / "run").unacknowledged if e.request not in before]
        assert (copy / "run" / "receipts" / f"{mine.request}.json").is_file()
        load(copy / "run").resume()
        held = load(copy / "run")
        (after,) = [e for e in held.unacknowledged if e.request == mine.request]
        assert after.salt == mine.salt
        assert verify(after.proof, copy / "run", keys(copy), (name, after.salt)).failed == ()
        held.acknowledge(mine.request)
        assert mine.request not in {receipt.request for receipt in held.unacknowledged}
        with pytest.raises(CoveyError, match="to be acknowledged, once"):
            held.acknowledge(mine.request)
        secret = mine.salt.encode()
        left = [p for p in (copy / "run").rglob("*") if p.is_file() and secret in p.read_bytes()]
        assert left == []


def test_what_never_ends_is_refused_before_it_is_read(base, tmp_path):
    """A pipe, or 20 GB of nothing."""
    pipe, endless = tmp_path / "pipe", tmp_path / "endless"
    os.mkfifo(pipe)
    with endless.open("wb") as file:
        file.truncate(20 * 2**30)
    proof = base / "proof.json"
    for words in ([pipe], [proof, "--receipt", endless], [proof, "--key", endless]):
        code, out, err = command("verify", *words)
        assert code in (1, 2), words
        assert "must be a regular file" in out + err or "bytes at most" in out + err, words
