"""History that is rewritten and sealed again, and what holds it fast."""

import json
import os
import shutil
import sqlite3
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import command
from covey import Config, CoveyError, LedgerError, load, run, verify
from covey.ledger.chain import GENESIS, link, sealed_text
from covey.ledger.store import Ledger
from covey.ledger.tree import LogProof, TreeHead, head_of
from covey.runtime.anchors import ask_witness, log_heads, write_witnessed
from covey.runtime.folder import RunFolder
from covey.runtime.verification import Verification
from covey.unlearning.proof import proof_json
from covey.unlearning.signature import (
    Anchor,
    Check,
    fingerprint,
    key_records,
    revoke_key,
    rotate_key,
    sign,
    signing_key,
)
from runtime.left_runs import LEAVER, SETTINGS
from runtime.witnesses import Witness, serving


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run that a client has left, its receipt, and a witness that saw it before."""
    base = tmp_path_factory.mktemp("anchors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(base / "keys"))
        held = run(config=Config.of({**SETTINGS, "rounds": 2}), out=base / "run")
        shutil.copytree(base / "run", base / "before")
        with serving(Witness(signing_key().public_key())) as witness:
            (base / "witness.key").write_text(witness.line)
            shutil.copy(shown(base, witness), base / "early.tlog-proof")
            given = []
            (one,) = held.forget(LEAVER, "deny", on_receipt=lambda *told: given.append(told))
            assert given == [(LEAVER, one.receipt)]
            assert one.receipt is not None
            assert one.receipt.salt == one.answered.salt
            shutil.copy(one.answered.proof, base / "proof.json")
            shutil.copy(one.receipt.path, base / "receipt.json")
            (base / "salt").write_text(one.answered.salt)
            witness.seconds += 100
            shown(base, witness)
    return base


def shown(base: Path, witness: Witness, run: str = "run") -> Path:
    """Have a witness see a run's head, and return what shows it."""
    runs = {run: RunFolder(base / run)}
    links = log_heads(base, runs)
    hashes, known = [each.hash for each in links], key_records(base / "witness.key")
    seen = ask_witness(hashes, witness.url, known, signing_key())
    return write_witnessed(links, seen, runs)[run]


@pytest.fixture
def copy(base, tmp_path, monkeypatch):
    """The same, to do violence to."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "all" / "keys"))
    return shutil.copytree(base, tmp_path / "all")


def verified(base: Path, **given: Any) -> Verification:
    who = (LEAVER, (base / "salt").read_text())
    return verify(base / "proof.json", given.pop("ledger", None), keys(base), who, **given)


def checks(base: Path, **given: Any) -> dict[str, Check]:
    return {each.name: each for each in verified(base, **given).checks}


def keys(base: Path) -> Path:
    return base / "keys" / "covey" / "signing-key.pub.pem"


def witnessed(base: Path, name: str = "run/witnessed") -> tuple[Path, Path]:
    return base / f"{name}.tlog-proof", base / "witness.key"


def test_a_proof_says_what_is_anchored_by_whom(base):
    found = verified(base, ledger=base / "run", receipt=base / "receipt.json")
    assert found.valid
    receipt = json.loads((base / "receipt.json").read_text())
    size = TreeHead.parse(receipt["checkpoint"]).size
    own = Anchor("receipt", receipt["signature"]["fingerprint"], size, receipt["signed"])
    assert found.anchored == (own,)
    assert {"history", "dates"} <= {*found.operator}  # of what came after the receipt
    found = verified(base, ledger=base / "run", witness=witnessed(base))
    (seen,) = found.anchored
    assert (seen.by, seen.when) == ("witness", "2096-10-02T07:08:20+00:00")
    assert not {"history", "dates"} & {*found.operator}
    told = checks(base, ledger=base / "run", witness=witnessed(base))
    assert "is among them" in told["witness"].detail
    told = checks(base, ledger=base / "run", witness=witnessed(base, "early"))
    assert "is later" in told["witness"].detail
    alone = verified(base)
    assert (alone.anchored, alone.operator) == ((), ("facts", "history", "dates"))


def test_a_history_that_was_rewritten_and_sealed_again_is_refused_everywhere(copy):
    folder = copy / "run"
    rewrite(folder)
    for call in (
        lambda: load(folder).history,
        lambda: load(folder).explain("client-00001"),
        lambda: load(folder).report(),
        lambda: load(folder).resume(),
        lambda: load(folder).plan("client-00001"),
    ):
        with pytest.raises(LedgerError, match="sealed again"):
            call()
    told = checks(copy, ledger=folder, receipt=copy / "receipt.json")
    assert told["ledger"].ok is False
    assert "the ledger was rewritten" in told["receipt"].detail
    told = checks(copy, ledger=folder, witness=witnessed(copy))
    assert "is another one" in told["witness"].detail
    with pytest.raises(LedgerError, match="cut off or rewritten"):
        log_heads(copy, {"run": RunFolder(folder)})


def test_a_log_that_does_not_continue_what_a_witness_saw_is_refused(copy):
    run = RunFolder(copy / "run")
    links = log_heads(copy, {"run": run})
    known, key = key_records(copy / "witness.key"), signing_key()
    hashes = [each.hash for each in links]
    assert len(hashes) == 2
    with serving(Witness(key.public_key())) as witness:
        ask_witness(hashes, witness.url, known, key)
        again = ask_witness(hashes, witness.url, known, key)
        assert again.size == witness.known[again.origin].size == 2
        other = [hashes[0], "ab" * 32]
        for fork in (other, [*other, *other]):
            with pytest.raises(LedgerError, match="taken out or rewritten"):
                ask_witness(fork, witness.url, known, key)
        with pytest.raises(LedgerError, match="heads were taken out"):
            ask_witness(hashes[:1], witness.url, known, key)
        (copy / "heads.sqlite").unlink()  # a new log is another one
        anew = log_heads(copy, {"run": run})
        assert head_of([each.hash for each in anew]).origin != again.origin
        assert witness.known[again.origin].root == again.root


def test_a_witness_that_is_none_is_refused_with_what_to_do(copy, monkeypatch):
    key, hashes = signing_key(), ["1a" * 32]
    known = key_records(copy / "witness.key")
    rotated = rotate_key()
    with serving(Witness(key.public_key())) as witness:
        with pytest.raises(LedgerError, match=r"give its operator the line covey\.run/1a1a.*\+"):
            ask_witness(hashes, witness.url, known, rotated)
        for place in (f"{witness.url}/elsewhere", "file:///etc/passwd", "http://127.0.0.1:1", "x"):
            with pytest.raises(LedgerError, match=f"The witness {place} must"):
                ask_witness(hashes, place, known, key)
        witness.key = signing_key(copy / "stranger" / "key.pem")
        with pytest.raises(LedgerError, match="none of them did"):
            ask_witness(hashes, witness.url, known, key)
        for answer in ((200, ""), (200, "\ud800"), (200, "—" * 10**6), (500, "x" * 10**6)):
            monkeypatch.setattr(witness, "answer", lambda _, given=answer: given)
            with pytest.raises(LedgerError):
                ask_witness(hashes, witness.url, known, key)


def test_runs_are_named_parts_of_one_log(copy):
    runs = {name: RunFolder(copy / name) for name in ("run", "before")}
    links = log_heads(copy, runs)  # two runs that began alike
    assert len(links) == 3
    assert log_heads(copy, runs) == links
    with serving(Witness(signing_key().public_key())) as witness:
        paths = [shown(copy, witness, name) for name in runs]
    told = [LogProof.parse(path.read_text()) for path in paths]
    assert [each.index for each in told] == [1, 2]
    assert all(each.holds() for each in told)
    assert len({each.head.origin for each in told}) == 1
    shutil.rmtree(copy / "run")
    shutil.copytree(copy / "before", copy / "run")
    with pytest.raises(LedgerError, match="cut off or rewritten"):
        log_heads(copy, runs)
    with pytest.raises(CoveyError, match="no run in"):
        log_heads(copy / "keys", {})


def test_what_a_log_does_not_hold_anchors_nothing(copy):
    path, key = witnessed(copy)
    proof = LogProof.parse(path.read_text())
    previous, *_, body = json.loads(proof.extra)
    for changed in (
        replace(proof, index=0),
        replace(proof, path=(bytes(32),)),
        replace(proof, extra=sealed_text(previous, None, "Another", body)),
        replace(proof, extra=proof.extra.replace(b"covey.run/", b"covey.run/0")),
        replace(proof, head=replace(proof.head, size=2**63 - 1)),
    ):
        path.write_text(changed.text())
        found = verified(copy, ledger=copy / "run", witness=(path, key))
        assert [each.name for each in found.failed] == ["witness"], changed
        assert not found.anchored


def test_an_old_proof_holds_after_its_key_was_replaced_and_a_new_one_cannot_backdate(copy):
    new = rotate_key()
    told = checks(copy, ledger=copy / "run", receipt=copy / "receipt.json")
    assert all(check.ok is not False for check in told.values())
    assert told["key"].ok is True
    document = json.loads((copy / "proof.json").read_text())
    document["answered"] = "2020-01-01T00:00:00.000+00:00"
    (copy / "proof.json").write_text(proof_json(sign(new, document)))
    assert "came into use at" in checks(copy)["key"].detail
    assert checks(copy)["key"].ok is False


LATER = "2099-01-01T00:00:00.000+00:00"


def test_a_revoked_key_speaks_nowhere_any_more(copy):
    """Of whoever stole it: a receipt and a head, dated after that."""
    own = signing_key()
    revoke_key(fingerprint(own.public_key()))
    told = checks(copy, ledger=copy / "run", receipt=copy / "receipt.json")
    assert (told["key"].ok, told["receipt"].ok) == (None, None)  # it may be dated back
    assert verified(copy, ledger=copy / "run", receipt=copy / "receipt.json").anchored == ()
    document = json.loads((copy / "receipt.json").read_text()) | {"signed": LATER}
    (copy / "receipt.json").write_text(proof_json(sign(own, document)))
    told = checks(copy, receipt=copy / "receipt.json")
    assert told["receipt"].ok is False
    assert "its key: it was revoked at" in told["receipt"].detail
    with pytest.raises(CoveyError, match="it was revoked"):
        signing_key()  # of a log


def test_a_receipt_comes_before_any_answer_and_its_salt_outlives_a_crash(copy):
    class KilledError(Exception):
        pass

    def die(*_: object) -> None:
        raise KilledError

    held = load(copy / "run")
    for place in ("on_receipt", "on_answer"):
        name = sorted(held.names)[0]
        before = {each.request for each in held.unacknowledged}
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
        assert mine.request not in {each.request for each in held.unacknowledged}
        with pytest.raises(CoveyError, match="acknowledged once"):
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
    proof, (note, key) = base / "proof.json", witnessed(base)
    for words in (
        [pipe],
        [proof, "--receipt", endless],
        [proof, "--key", endless],
        [proof, "--witness", endless, key],
        [proof, "--witness", note, pipe],
    ):
        code, out, err = command("verify", *words)
        assert code in (1, 2), words
        assert "must be a regular file" in out + err or "bytes at most" in out + err, words


def rewrite(folder: Path) -> None:
    """Change what stands in the first event with an accuracy, and seal all after it."""
    old = '"accuracy":'
    place = sqlite3.connect(folder / "ledger.sqlite")
    rows = place.execute("SELECT position, round, kind, body FROM events ORDER BY 1").fetchall()
    head, changed = GENESIS, 0
    for position, round_index, kind, packed in rows:
        body = zlib.decompress(packed).decode()
        if not changed and old in body:
            body, changed = body.replace(old, f"{old} ", 1), position
        head = link(head, round_index, kind, body)
        place.execute(
            "UPDATE events SET body = ?, hash = ? WHERE position = ?",
            (zlib.compress(body.encode()), head, position),
        )
    place.commit()
    place.close()
    assert changed
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        ledger.verify()  # the chain alone shows nothing
