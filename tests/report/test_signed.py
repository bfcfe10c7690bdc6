"""A signed report says what the ledger says, names no client, and shows every change."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import covey
from covey import Run
from covey.ledger.store import Ledger
from covey.report.signed import check_report
from covey.unlearning.signature import sign

SMALL = {
    "rounds": 1,
    "population": {"clients": 4, "examples_per_client": 20, "audit_examples": 60},
    "model": {"name": "linear"},
    "engine": {"name": "reference"},
    "risk": {"name": "none"},
}


@pytest.fixture(scope="session")
def left(once) -> Path:
    """A run that one client left, and its signed report; only to be read."""

    def play(folder: Path) -> None:
        key = str(folder / "key.pem")
        run = covey.run(config={**SMALL, "secrets": {"key_path": key}}, out=folder / "run")
        run.forget("client-00001", "retrain")
        covey.load(run.folder).report(folder / "out" / "page.html", sign=True)

    return once("signed", play)


@pytest.fixture
def run(left: Path, tmp_path: Path) -> Run:
    """The same, in a folder of its own."""
    return covey.load(shutil.copytree(left / "run", tmp_path / "run"))


@pytest.fixture
def signed(left: Path, tmp_path: Path) -> Path:
    return shutil.copytree(left / "out", tmp_path / "out") / "page.json"


@pytest.fixture(scope="module")
def other_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def failed(path: Path, run: Path | None = None, key: Path | None = None) -> set[str]:
    return {each.name for each in check_report(path, run, key) if each.ok is False}


def test_every_check_passes_with_the_ledger_and_the_key(run: Run, signed: Path, left: Path):
    checks = check_report(signed, run.folder, left / "key.pub.pem")
    names = ("signature", "trust", "key", "files", "ledger")
    assert {each.name: each.ok for each in checks} == dict.fromkeys(names, True)
    summary = json.loads(signed.read_text())["summary"]
    assert summary["violations"]["count"] == run.summary.violations.count


def test_it_names_no_client_and_no_handle(run: Run, signed: Path):
    with Ledger.read(run.folder / "ledger.sqlite") as ledger:
        names = ledger.names()
    everything = signed.read_bytes() + signed.with_suffix(".html").read_bytes()
    for handle, name in names.items():
        assert handle.encode() not in everything
        assert name.encode() not in everything
    assert b"client-00001" not in everything


@pytest.mark.parametrize("suffix", [".json", ".html"])
def test_any_flipped_byte_is_seen(signed: Path, suffix: str):
    path = signed.with_suffix(suffix)
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), max(1, len(content) // 9)):
        flipped = content.copy()
        flipped[place] ^= 1
        path.write_bytes(flipped)
        assert failed(signed), place
    path.write_bytes(content)
    assert not failed(signed)


def signed_again(signed: Path, key: Ed25519PrivateKey, *keys: Any, value: Any) -> None:
    document = inner = json.loads(signed.read_text())
    for each in keys[:-1]:
        inner = inner[each]
    inner[keys[-1]] = value
    signed.write_text(json.dumps(sign(key, document)))


@pytest.mark.parametrize(
    "keys",
    [
        ("summary", "clusters", 0, "true_risk"),
        ("summary", "violations", "count"),
        ("run", "data_hash"),
    ],
)
def test_a_better_figure_signed_again_is_refuted_by_the_ledger(
    run: Run, signed: Path, keys: tuple[Any, ...], other_key: Ed25519PrivateKey
):
    signed_again(signed, other_key, *keys, value=0.5)
    assert failed(signed, run.folder) == {"ledger"}


def test_a_file_outside_is_not_read(signed: Path, other_key: Ed25519PrivateKey):
    signed_again(signed, other_key, "files", "../secret", value="0" * 64)
    assert failed(signed) == {"files"}


@pytest.mark.slow
def test_a_later_answer_leaves_it_valid_and_takes_the_one_in_the_runs_folder(
    run: Run, signed: Path
):
    run.report(sign=True)
    assert not failed(run.folder / "report.json", run.folder)
    run.forget("client-00002", "retrain")
    assert not (run.folder / "report.json").exists()
    assert not failed(signed, run.folder)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": "covey-report"}'])
def test_what_is_no_signed_report_is_said_to_be_none(tmp_path: Path, content: bytes):
    (tmp_path / "report.json").write_bytes(content)
    assert failed(tmp_path / "report.json") == {"report"}


def test_its_name_cannot_bring_a_script(run: Run):
    renamed = run.folder.with_name("<script>alert(1)<")
    run.folder.rename(renamed)
    assert "<script>" not in covey.load(renamed).report(sign=True).read_text()
