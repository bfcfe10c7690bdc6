"""What was exported or shown is on record, and what an answer makes of it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import covey
from covey import ConfigError, RunError
from covey.leaving.copies import (
    Copy,
    copies_of,
    delete_obsolete_copies,
    erase_from_copies,
    exported_hashes,
    hash_of_model,
    header_of,
    model_bytes,
    record_copy,
)
from covey.leaving.exports import export_model
from covey.ledger.requests import LeaveRequest
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from ledger.served import SERVED

OLD, NEW, OTHER = ({"w": torch.full((2,), v)} for v in (1.0, 2.0, 3.0))
NAMES = ("anna", "annabel", "bob")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    return RunFolder(tmp_path / "run")


def request(first: int | None) -> LeaveRequest:
    """A request that is being served, and where its replay began."""
    option = replace(SERVED.option, first_replayed_round=first)
    served, requested_at = replace(SERVED, option=option), "2000-01-01T00:00:00.000+00:00"
    leave_request = LeaveRequest("h-1", id="r", state="serving", requested_at=requested_at)
    return served.noted(leave_request, None)


def put(folder: RunFolder, path: Path, model: Any = OLD, what: Any = "model", **more: Any) -> Copy:
    """A copy with its record, as a command writes them."""
    digest = hash_of_model(model)
    payload = model_bytes(model, header_of("c0ffee", 4, 0, digest))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(payload)
    fields = {"round_index": 4, "model_hash": digest if what == "model" else "", **more}
    return record_copy(folder, what, path, hashlib.sha256(payload).hexdigest(), **fields)


def fates(folder: RunFolder, first: int | None) -> dict[str, tuple[str, bool]]:
    outcomes = delete_obsolete_copies(folder, request(first), exported_hashes([NEW, OTHER]))
    return {Path(outcome.copy.path).name: (outcome.fate, outcome.notify) for outcome in outcomes}


def test_after_a_replay_what_holds_an_old_model_is_deleted_or_to_be_told_of(folder, tmp_path):
    inside = folder.exports / "old"
    put(folder, inside, recipient="a hospital")
    put(folder, folder.exports / "other", OTHER)
    put(folder, tmp_path / "outside", recipient="a clinic")
    put(folder, tmp_path / "for-nobody")
    put(folder, tmp_path / "gone", recipient="a school").location(folder).unlink()
    put(folder, tmp_path / "earlier", round_index=2, recipient="a firm")
    assert fates(folder, 2) == {
        "old": ("deleted", True),
        "other": ("unchanged", False),
        "outside": ("outside", True),
        "for-nobody": ("outside", False),
        "gone": ("missing", True),
        "earlier": ("unchanged", False),
    }
    assert not inside.exists()
    assert (folder.exports / "other").is_file()
    assert (tmp_path / "outside").is_file()


def test_after_a_denial_models_stay_and_pages_do_not(folder: RunFolder, tmp_path: Path):
    model, page = folder.exports / "model", folder.path / "page.html"
    put(folder, model, recipient="a hospital")
    put(folder, page, what="report")
    put(folder, tmp_path / "both.html", what="comparison")
    assert fates(folder, None) == {
        "model": ("unchanged", False),
        "page.html": ("deleted", False),
        "both.html": ("outside", False),
    }
    assert model.is_file()
    assert not page.exists()


def test_an_export_without_a_record_is_found_where_exports_lie(folder: RunFolder):
    folder.exports.mkdir()
    (folder.exports / "x.safetensors").write_bytes(model_bytes(OLD))
    (folder.exports / "torn.safetensors").write_bytes(model_bytes(OTHER)[:-1])
    copy_path = folder.exports / "cluster-1.safetensors"
    copy_path.write_bytes(model_bytes(OTHER, header_of("c0ffee", 4, 1, hash_of_model(OTHER))))
    assert set(fates(folder, 0).values()) == {("deleted", False), ("unchanged", False)}
    assert list(folder.path.rglob("*.safetensors")) == [copy_path]


def test_an_export_of_an_earlier_version_has_no_header_and_is_judged_by_its_bytes(
    folder: RunFolder,
):
    folder.exports.mkdir()
    for name, model in (("old", OLD), ("new", NEW)):
        path = folder.exports / name
        path.write_bytes(model_bytes(model))
        record_copy(folder, "model", path, hash_of_model(model), round_index=4)
    assert fates(folder, 0) == {"old": ("deleted", False), "new": ("unchanged", False)}


def test_a_page_about_one_client_is_told_to_that_client_alone(folder: RunFolder, tmp_path: Path):
    put(folder, tmp_path / "mine.html", what="explanation", subject="h-1")
    put(folder, tmp_path / "hers.html", what="explanation", subject="h-2")
    assert list(fates(folder, None)) == ["mine.html"]


def test_who_leaves_is_in_no_record_afterwards_and_everybody_else_still_is(folder, tmp_path):
    put(folder, tmp_path / "for-anna.safetensors", recipient="anna and annabel")
    put(folder, folder.exports / "anna.safetensors")
    put(folder, tmp_path / "annabel.safetensors", recipient="Dr. Hannah")
    erase_from_copies(folder, "anna", NAMES)
    assert not (folder.exports / "anna.safetensors").exists()
    recipients = {Path(c.path).name: c.recipient for c in copies_of(folder)}
    assert recipients == {
        "for-[requester].safetensors": "[requester] and annabel",
        "[requester].safetensors": "",
        "annabel.safetensors": "Dr. Hannah",
    }
    # a masked path cannot be looked at: what was there is still there for all we know
    assert fates(folder, 0)["for-[requester].safetensors"] == ("outside", True)


def test_a_proof_gets_no_path_and_no_clients_name(folder: RunFolder, tmp_path: Path):
    put(folder, tmp_path / "x", recipient="bob of the clinic")
    (one,) = delete_obsolete_copies(folder, request(0), exported_hashes([NEW]))
    proved = one.as_proof_fact(NAMES)
    assert proved.recipient == "[a client of the run] of the clinic"
    assert str(tmp_path) not in str(proved)
    assert len(proved.path_sha256) == 64


def test_the_record_of_a_run_inside_the_run_outlives_it(folder: RunFolder, tmp_path: Path):
    inner = RunFolder(folder.path / "baseline")
    inner.path.mkdir()
    put(inner, tmp_path / "outside", recipient="a clinic", round_index=0)
    put(inner, inner.exports / "inside", recipient="a school")
    for _ in range(2):
        erase_from_copies(folder, "anna", NAMES)
    assert copies_of(inner) == ()
    assert fates(folder, 3) == {"outside": ("outside", True), "inside": ("deleted", True)}


def test_an_export_is_on_record_with_its_round_and_for_whom(play, tmp_path):
    folder = RunFolder(play().folder)
    copy = export_model(folder, 0, recipient=" The Clinic ")
    (only_copy,) = copies_of(folder)
    assert only_copy == copy
    assert copy.location(folder) == folder.path / "exports" / "cluster-0.safetensors"
    assert copy.location(folder).is_file()
    assert (copy.cluster, copy.round_index, copy.recipient) == (0, 4, "The Clinic")
    with pytest.raises(ConfigError, match="--recipient must be one printable line"):
        export_model(folder, 0, recipient="two\nlines")
    with pytest.raises(RunError, match="An export and its record"):
        export_model(folder, 0, out=tmp_path)
    assert copies_of(folder) == (only_copy,)


def test_an_export_says_where_it_is_from_and_names_no_client(play):
    run = play()
    folder = RunFolder(run.folder)
    copy = export_model(folder, 0, recipient="anna")
    with safe_open(copy.location(folder), framework="pt") as file:
        header = file.metadata()
    assert list(header) == ["covey"]
    with Ledger.read(folder.ledger) as ledger:
        record, names = folder.reader.read(ledger), ledger.names()
    assert json.loads(header["covey"]) == {
        "covey_version": covey.__version__,
        "run": record.hashes[0],
        "rounds": 4,
        "cluster": 0,
        "model_hash": hash_of_model(run.params(0)),
    }
    private = (*names, *names.values(), "anna", folder.path.name, str(folder.path))
    assert [text for text in private if text in header["covey"]] == []
    tensors = load_file(copy.location(folder))
    assert tensors.keys() == run.params(0).keys()
    assert hash_of_model(tensors) == copy.model_hash
    first = copy.location(folder).read_bytes()
    assert hashlib.sha256(first).hexdigest() == copy.sha256
    export_model(folder, 0)
    assert copy.location(folder).read_bytes() == first
