"""History that is rewritten and sealed again, and what holds it fast."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import command
from covey import Config, CoveyError, LedgerError, load, run, verify
from covey.ledger.chain import entries_of, inclusion_proof
from covey.ledger.store import Ledger
from covey.report.signed import FORMAT, VERSION, check_report
from covey.runtime.folder import RunFolder
from covey.runtime.verification import Verification
from covey.runtime.witness import HeadUpdate, head_update, read_update, witness_head, witnessed_size
from covey.unlearning.proof import proof_json
from covey.unlearning.signature import (
    Anchor,
    Check,
    fingerprint,
    public_keys_path,
    revoke_key,
    rotate_key,
    sign,
    signing_key,
)
from covey.unlearning.tree_head import TreeHead
from runtime.rewriting import rewrite

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
        operator = public_keys_path()
        signing_key()
        folder = RunFolder(base / "run")
        witness_head(base / "witness", head_update(folder), operator, lambda: 4_000_000_000)
        given = []
        (one,) = held.forget(LEAVER, "deny", on_receipt=lambda *told: given.append(told))
        assert given == [(LEAVER, one.receipt)]
        assert one.receipt is not None
        assert one.receipt.salt == one.answered.salt
        shutil.copy(one.answered.proof, base / "proof.json")
        shutil.copy(one.receipt.path, base / "receipt.json")
        (base / "salt").write_text(one.answered.salt)
        shutil.copytree(base / "witness", base / "witness-early")
        known = witnessed_size(base / "witness", head_update(folder).head.origin)
        update = head_update(folder, known)
        (base / "update.json").write_text(update.text())
        witness_head(base / "witness", update, None, lambda: 4_000_000_100)
    return base


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


def witnessed(base: Path, name: str = "witness") -> tuple[Path, Path]:
    (note,) = (base / name).glob("*.checkpoint")
    return note, base / name / "witness-key.pub.pem"


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
    told = checks(base, ledger=base / "run", witness=witnessed(base, "witness-early"))
    assert "is later" in told["witness"].detail
    alone = verified(base)
    assert (alone.anchored, alone.operator) == ((), ("facts", "history", "dates"))


def test_without_the_ledger_receipt_and_proof_hold_together_by_a_few_hashes(base):
    told = checks(base, receipt=base / "receipt.json", witness=witnessed(base))
    assert told["receipt"].ok
    assert told["witness"].ok is True  # it saw the very tree of the proof
    early = checks(base, witness=witnessed(base, "witness-early"))
    assert early["witness"].ok is None
    proof = json.loads((base / "proof.json").read_text())
    assert len(proof["consistency"]) <= proof["ledger_events"].bit_length() + 1


def test_nobody_is_named_by_a_receipt_a_head_or_a_path(base):
    with Ledger.read(base / "before" / "ledger.sqlite") as ledger:
        names = ledger.names()
    for name in ("receipt.json", "proof.json", "update.json"):
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
    known = witnessed_size(copy / "witness", head_update(RunFolder(folder)).head.origin)
    with pytest.raises(LedgerError, match="cut off or rewritten"):
        witness_head(copy / "witness", head_update(RunFolder(folder), known))


def test_an_operator_who_rewrites_everything_it_holds_is_caught_by_who_holds_something(copy):
    """The chain, the receipts and the proof in the run's folder: all made anew."""
    folder = copy / "run"
    rewrite(folder, '"accuracy":', '"accuracy": ')
    shutil.rmtree(folder / "receipts")
    assert load(folder).summary.model_hash  # the folder alone shows nothing any more
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        hashes = ledger.hashes()
    from covey.runtime.receipts import head_of

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


def test_a_witness_refuses_what_does_not_continue_what_it_saw(copy):
    folder, place = RunFolder(copy / "run"), copy / "witness"
    known = witnessed_size(place, head_update(folder).head.origin)
    shorter = HeadUpdate(head_update(RunFolder(copy / "before")).head, 0)
    assert shorter.head.size < known
    note = witnessed(copy)[0].read_bytes()
    with pytest.raises(LedgerError, match=r"must begin|cut off or rewritten"):
        witness_head(place, shorter)
    forged = TreeHead(shorter.head.origin, known + 1, bytes(32)).signed(signing_key())
    for path in ((), (bytes(32),), (bytes(32),) * 7):
        with pytest.raises(LedgerError, match="cut off or rewritten"):
            witness_head(place, HeadUpdate(forged, known, path))
    other = TreeHead(forged.origin, known, bytes(32)).signed(signing_key())
    with pytest.raises(LedgerError, match="cut off or rewritten"):
        witness_head(place, HeadUpdate(other, known))
    unsigned = TreeHead(forged.origin, known + 1, bytes(32))
    with pytest.raises(LedgerError, match="must be signed by the operator"):
        witness_head(place, HeadUpdate(unsigned, known))
    for origin in ("covey.run/../../etc", "covey.run/", "elsewhere"):
        with pytest.raises(LedgerError, match="must be of a covey run"):
            witness_head(place, HeadUpdate(TreeHead(origin, 1, bytes(32)), 0))
    assert witnessed(copy)[0].read_bytes() == note
    with pytest.raises(LedgerError, match="--key"):
        witness_head(copy / "new", head_update(folder))


def test_a_witness_that_was_cut_off_signs_again_what_it_saw(copy):
    update = read_update(copy / "update.json")
    early = copy / "witness-early"
    first = witness_head(early, update)
    assert witness_head(early, update).root == first.root


def test_a_cut_off_ledger_cannot_be_shown_to_a_witness_that_saw_more(copy):
    with pytest.raises(CoveyError, match="events were taken out"):
        head_update(RunFolder(copy / "before"), 10_000)


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
    head = head_update(RunFolder(copy / "before"), key=own)
    with pytest.raises(LedgerError, match="it was revoked at"):
        witness_head(copy / "new", head, keys(copy))


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


def test_a_head_signed_by_a_key_that_was_replaced_is_not_cosigned(copy):
    old = signing_key()
    rotate_key()
    update = head_update(RunFolder(copy / "before"), key=old)
    with pytest.raises(LedgerError, match="it was replaced at"):
        witness_head(copy / "new", update, keys(copy), lambda: 4_000_000_000)


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
