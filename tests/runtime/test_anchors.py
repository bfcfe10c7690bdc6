"""History that is rewritten and sealed again, and what holds it fast."""

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import command
from covey import Config, CoveyError, LedgerError, load, run, verify
from covey.base.errors import LedgerLocked
from covey.ledger.chain import sealed_text
from covey.ledger.store import Ledger
from covey.ledger.tree import LogProof, TreeHead, entries_of, head_of, inclusion_proof
from covey.report.signed import FORMAT, VERSION, check_report
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
from runtime.rewriting import rewrite
from runtime.witnesses import Witness, serving

LEAVER = "client-00003"
SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
    "engine": {"name": "reference"},
    "aggregation": {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run that a client has left, its receipt, and a witness that saw it before."""
    base = tmp_path_factory.mktemp("anchors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(base / "keys"))
        held = run(config=Config.of(SETTINGS), out=base / "run")
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


def dated(base: Path, seconds: int, run: str = "run") -> Path:
    """Return what a witness shows that sees a log for the first time, and says when."""
    with serving(Witness(signing_key().public_key(), seconds)) as witness:
        return shown(base, witness, run)


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


def test_without_the_ledger_receipt_and_proof_hold_together_by_a_few_hashes(base):
    told = checks(base, receipt=base / "receipt.json", witness=witnessed(base))
    assert told["receipt"].ok
    assert told["witness"].ok is True  # it saw the very tree of the proof
    early = checks(base, witness=witnessed(base, "early"))
    assert early["witness"].ok is None
    proof = json.loads((base / "proof.json").read_text())
    assert len(proof["consistency"]) <= proof["ledger_events"].bit_length() + 1


def test_nobody_is_named_by_a_receipt_a_head_or_a_path(base):
    with Ledger.read(base / "before" / "ledger.sqlite") as ledger:
        names = ledger.names()
    for name in ("receipt.json", "proof.json", "run/witnessed.tlog-proof"):
        written = (base / name).read_text()
        assert not [n for pair in names.items() for n in pair if n in written]


def test_a_history_that_was_rewritten_and_sealed_again_is_refused_everywhere(copy):
    folder = copy / "run"
    rewrite(folder, '"accuracy":', '"accuracy": ')
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


def test_an_operator_who_rewrites_everything_it_holds_is_caught_by_who_holds_something(copy):
    """The chain, the receipts and the proof in the run's folder: all made anew."""
    folder = copy / "run"
    rewrite(folder, '"accuracy":', '"accuracy": ')
    shutil.rmtree(folder / "receipts")
    assert load(folder).summary.model_hash  # the folder alone shows nothing any more
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        hashes = [each.hash for each in ledger.links()]
    from covey.runtime.anchors import head_of

    document = json.loads((copy / "proof.json").read_text())
    at = document["ledger_events"]
    document |= {"ledger_head": hashes[at - 1], "consistency": [], "receipt": None}
    path = inclusion_proof(entries_of(hashes[:at]), at - 1)
    document |= {"inclusion": [each.hex() for each in path]}
    document |= {"tree_root": head_of(hashes[:at]).root.hex()}
    (copy / "proof.json").write_text(proof_json(sign(signing_key(), document)))
    told = checks(copy, ledger=folder)
    assert all(check.ok is not False for check in told.values())
    told = checks(copy, ledger=folder, receipt=copy / "receipt.json")
    assert "another receipt, or to none" in told["receipt"].detail
    told = checks(copy, ledger=folder, witness=witnessed(copy))
    assert "is another one" in told["witness"].detail


def test_a_log_that_does_not_continue_what_a_witness_saw_is_refused(copy):
    run = RunFolder(copy / "run")
    links = log_heads(copy, {"run": run})
    hashes, known, key = (
        [each.hash for each in links],
        key_records(copy / "witness.key"),
        signing_key(),
    )
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
        for answer in (
            (200, ""),
            (200, "x"),
            (200, "\ud800"),
            (200, "—" * 10**6),
            (500, "x" * 10**6),
        ):
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


def test_only_one_process_at_a_time_adds_to_a_log(copy):
    with Ledger.open(copy / "heads.sqlite", str), pytest.raises(LedgerLocked):
        log_heads(copy, {"run": RunFolder(copy / "run")})


def test_a_witness_that_saw_an_answer_before_it_was_asked_for_is_refused(copy):
    log_heads(copy, {"run": RunFolder(copy / "run")})
    seen = dated(copy, 10**9), copy / "witness.key"
    found = verified(copy, ledger=copy / "run", witness=seen)
    (told,) = found.failed
    assert "before it was made" in told.detail
    assert not found.anchored
    # what was seen before the request holds the history before it fast, and nothing more
    (copy / "heads.sqlite").unlink()
    (copy / "run").rename(copy / "after")
    (copy / "before").rename(copy / "run")
    early = dated(copy, 10**9)
    found = verified(copy, ledger=copy / "after", witness=(early, copy / "witness.key"))
    assert found.valid
    assert [each.by for each in found.anchored] == ["witness"]
    assert {"history", "dates"} <= {*found.operator}


@pytest.mark.parametrize("kind", ["index", "path", "entry", "another event", "another run", "size"])
def test_what_a_log_does_not_hold_anchors_nothing(copy, kind):
    path, key = witnessed(copy)
    proof = LogProof.parse(path.read_text())
    previous, *_, body = json.loads(proof.extra)
    changed = {
        "index": replace(proof, index=0),
        "path": replace(proof, path=(bytes(32),)),
        "entry": replace(proof, extra=proof.extra.replace(b"2", b"3")),
        "another event": replace(proof, extra=sealed_text(previous, None, "Another", body)),
        "another run": replace(proof, extra=proof.extra.replace(b"covey.run/", b"covey.run/0")),
        "size": replace(proof, head=replace(proof.head, size=2**63 - 1)),
    }[kind]
    path.write_text(changed.text())
    found = verified(copy, ledger=copy / "run", witness=(path, key))
    assert [each.name for each in found.failed] == ["witness"]
    assert not found.anchored


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "another request": ({"request": "0" * 16}, "request:"),
    "another client": ({"subject": "0" * 64}, "subject:"),
    "another moment": ({"asked": "1999-01-01T00:00:00.000+00:00"}, "asked:"),
    "another wish": ({"wanted": "retrain"}, "wanted:"),
    "another basis": ({"basis": "erasure"}, "basis:"),
    "no head": ({"checkpoint": "-"}, "must be the receipt of a request"),
    "another format": ({"format": "covey-proof"}, "must be the receipt of a request"),
    "a later one": ({"signed": "2099-01-01T00:00:00.000+00:00"}, "another receipt"),
}


@pytest.mark.parametrize("head", ["of size 0", "of no run", "of a stranger", "invented"])
def test_a_receipt_of_an_invented_tree_is_refused(copy, head):
    """Signed by the operator, and linked by the proof, which is signed again."""
    receipt, proof = (json.loads((copy / f"{n}.json").read_text()) for n in ("receipt", "proof"))
    own = TreeHead.parse(receipt["checkpoint"])
    forged = {
        "of size 0": replace(own, size=0, root=hashlib.sha256().digest()),
        "of no run": replace(own, origin="covey.run/0123456789abcdef"),
        "of a stranger": own,
        "invented": replace(own, root=bytes(32)),
    }[head]
    signer = (
        signing_key(copy / "stranger" / "key.pem") if head == "of a stranger" else signing_key()
    )
    receipt |= {"checkpoint": forged.signed(signer).note()}
    written = proof_json(sign(signing_key(), receipt)).encode()
    proof |= {"receipt": hashlib.sha256(written).hexdigest()}
    proof |= {"consistency": [] if head == "of size 0" else proof["consistency"]}
    (copy / "proof.json").write_text(proof_json(sign(signing_key(), proof)))
    (copy / "forged.json").write_bytes(written)
    for place in (None, copy / "run"):
        found = verified(copy, receipt=copy / "forged.json", ledger=place)
        assert "receipt" in [each.name for each in found.failed]
        assert not found.anchored
    (record,) = (each for each in found.failed if each.name == "record")
    assert "receipt: the run's folder holds another" in record.detail
    # the same file in the run's folder
    (kept,) = (copy / "run" / "receipts").glob("*.json")
    kept.write_bytes(written)
    if head in ("of size 0", "invented"):
        with pytest.raises(LedgerError, match="was signed for"):
            load(copy / "run").forget("client-00001", "deny")


@pytest.mark.parametrize(
    "changes", [{"receipt": "0" * 64}, {"receipt": None}, {"consistency": ["0" * 64]}]
)
def test_what_a_proof_says_of_its_receipt_is_compared_with_the_runs(copy, changes):
    document = json.loads((copy / "proof.json").read_text()) | changes
    (copy / "proof.json").write_text(proof_json(sign(signing_key(), document)))
    told = checks(copy, ledger=copy / "run")
    assert "receipt: the run's folder holds another" in told["record"].detail


@pytest.mark.parametrize("kind", FORGED)
def test_a_receipt_that_does_not_fit_is_refused(copy, kind):
    changes, said = FORGED[kind]
    receipt = json.loads((copy / "receipt.json").read_text()) | changes
    path = copy / "forged.json"
    path.write_text(proof_json(sign(signing_key(), receipt)))
    told = checks(copy, ledger=copy / "run", receipt=path)
    assert told["receipt"].ok is False
    assert said in told["receipt"].detail


def test_a_strangers_receipt_and_a_strangers_cosignature_are_refused(copy):
    stranger = signing_key(copy / "stranger" / "key.pem")
    receipt = json.loads((copy / "receipt.json").read_text())
    (copy / "forged.json").write_text(proof_json(sign(stranger, receipt)))
    told = checks(copy, receipt=copy / "forged.json")
    assert "its trust" in told["receipt"].detail
    note, _ = witnessed(copy)
    told = checks(copy, witness=(note, copy / "stranger" / "key.pub.pem"))
    assert "no key that you trust cosigned" in told["witness"].detail
    told = checks(copy, witness=(copy / "receipt.json", copy / "witness.key"))
    assert told["witness"].ok is False


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
    """Of whoever stole it: a receipt, a report and a head, all dated after that."""
    own = signing_key()
    revoke_key(fingerprint(own.public_key()))
    document = json.loads((copy / "receipt.json").read_text()) | {"signed": LATER}
    (copy / "receipt.json").write_text(proof_json(sign(own, document)))
    told = checks(copy, receipt=copy / "receipt.json")
    assert told["receipt"].ok is False
    assert "its key: it was revoked at" in told["receipt"].detail
    report = {"format": FORMAT, "version": VERSION, "written": LATER}
    (copy / "report.json").write_text(json.dumps(sign(own, report)))
    found = {c.name: c for c in check_report(copy / "report.json", key=keys(copy))}
    assert found["signature"].ok
    assert found["key"].ok is False
    with pytest.raises(CoveyError, match="it was revoked"):
        signing_key()  # of a log


def test_what_a_revoked_key_dates_back_anchors_nothing(copy):
    revoke_key(fingerprint(signing_key().public_key()))
    told = checks(copy, ledger=copy / "run", receipt=copy / "receipt.json")
    assert (told["key"].ok, told["receipt"].ok) == (None, None)
    assert verified(copy, ledger=copy / "run", receipt=copy / "receipt.json").anchored == ()


@pytest.mark.parametrize(("revoked", "ok"), [("2096", False), ("2098", None)])
def test_a_witness_whose_key_was_revoked_anchors_nothing(copy, revoked, ok):
    note, key = witnessed(copy)
    line = f"revoked: {revoked}-01-01T00:00:00.000+00:00\n"
    key.write_text(line + key.read_text())
    found = verified(copy, ledger=copy / "run", witness=(note, key))
    told = {each.name: each for each in found.checks}["witness"]
    assert told.ok is ok
    assert f"it was revoked at {revoked}" in told.detail
    assert found.anchored == ()


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


def test_sealed_salts_open_for_the_operator_alone(copy):
    sealed = next((copy / "run" / "unacknowledged").iterdir())
    salt = (copy / "salt").read_text()
    assert salt.encode() not in sealed.read_bytes()
    assert [each.salt for each in load(copy / "run").unacknowledged] == [salt]
    rotate_key()
    with pytest.raises(CoveyError, match="the key was replaced"):
        load(copy / "run").unacknowledged  # noqa: B018


def endless(folder: Path, kind: str) -> Path:
    """A file that nobody may read to its end: a pipe, a device, or 20 GB of nothing."""
    place = folder / "endless"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place = Path("/dev/zero")
    else:
        with place.open("wb") as file:
            file.truncate(20 * 2**30)
    return place


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
@pytest.mark.parametrize("option", ["proof", "--receipt", "--key", "note", "witness"])
def test_what_never_ends_is_refused_before_it_is_read(base, tmp_path, kind, option):
    place = endless(tmp_path, kind)
    note, key = witnessed(base)
    words = {
        "proof": [place],
        "--receipt": [base / "proof.json", "--receipt", place],
        "--key": [base / "proof.json", "--key", place],
        "note": [base / "proof.json", "--witness", place, key],
        "witness": [base / "proof.json", "--witness", note, place],
    }[option]

    told = command("verify", *words)

    assert told[0] in (1, 2)
    assert "must be a regular file" in told[1] + told[2] or "bytes at most" in (told[1] + told[2])


@pytest.mark.parametrize("kind", ["pipe", "sparse"])
def test_a_receipt_in_the_folder_that_never_ends_is_refused(copy, tmp_path, kind):
    (receipt,) = (copy / "run" / "receipts").glob("*.json")
    receipt.unlink()
    endless(tmp_path, kind).rename(receipt)
    with pytest.raises(LedgerError, match="must be the receipt of a request"):
        load(copy / "run").forget("client-00001", "deny")
