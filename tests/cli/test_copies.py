"""What was exported or shown, by the command line, and when a client leaves."""

import html
import json
import re
import shutil
from typing import Any

import pytest

from covey import Config, run
from covey.base.files import file_hash
from covey.runtime.copies import copies_of, on_record
from covey.runtime.folder import RunFolder

LEAVER = "client-00003"
HIDDEN = {"name": "anonymity-sets", "min_anonymity": 4, "deniability_threshold": 3}
TINY: dict[str, Any] = {
    "rounds": 1,
    "population": {"clients": 8, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 20},
    "risk": {"name": "none"},
    "method": {"name": "fedavg"},
    "engine": {"name": "reference"},
    "aggregation": HIDDEN,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copies") / "run"
    run(config=Config.of(TINY), out=folder)
    return folder


@pytest.fixture
def copied(played, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    return shutil.copytree(played, tmp_path / "run")


def test_a_retraining_leaves_no_old_model_here_and_says_who_holds_one(copied, covey, tmp_path):
    covey("export", copied, "--cluster", "0")
    to_a_clinic = ("--out", tmp_path / "sent", "--recipient", "A Clinic")
    covey("export", copied, "--client", LEAVER, *to_a_clinic)
    code, out, err = covey("forget", copied, LEAVER, "--answer", "retrain")
    assert code == 0, err
    assert "\ndeleted: model of cluster 0 in exports/cluster-0.safetensors" in out
    assert f"\nto be deleted by you: model of cluster 0 in {tmp_path}/sent" in out
    assert "\n  to notify (GDPR Art. 19): A Clinic" in out
    assert not list(copied.glob("exports/*"))
    assert (tmp_path / "sent").is_file()
    (proof,) = copied.glob("proofs/*.json")
    facts = json.loads(proof.read_text())["copies"]
    assert [(each["fate"], each["recipient"], each["notify"]) for each in facts] == [
        ("deleted", None, False),
        ("outside", "A Clinic", True),
    ]
    page = proof.with_suffix(".html").read_text()
    assert "A Clinic" in page
    assert str(tmp_path) not in page
    assert covey("verify", proof, "--ledger", copied)[0] == 0
    for path in copied.rglob("*"):
        assert path.is_dir() or LEAVER.encode() not in path.read_bytes(), path


def test_a_page_is_on_record_before_it_is_written_and_whole_after(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    page = tmp_path / "page.html"
    with on_record(folders, "comparison", page):
        (kept,) = copies_of(RunFolder(folders[1]))
        assert (kept.path, kept.sha256) == (str(page), "")
        page.write_text("x")
    for folder in folders:
        (kept,) = copies_of(RunFolder(folder))
        assert kept.sha256 == file_hash(page)


@pytest.mark.slow
def test_pages_written_elsewhere_are_on_record_with_every_run_they_show(copied, answer, tmp_path):
    other = shutil.copytree(copied, tmp_path / "other")
    answer("report", copied, "--out", copied / "report.html")
    assert not (copied / "copies").exists()
    answer("report", copied, "--out", "page.html")
    answer("report", copied, other, "--out", "both.html")
    kept = {f.name: copies_of(RunFolder(f)) for f in (copied, other)}
    assert [(c.what, c.path) for c in kept["run"]] == [
        ("report", str(tmp_path / "page.html")),
        ("comparison", str(tmp_path / "both.html")),
    ]
    assert [c.path for c in kept["other"]] == [str(tmp_path / "both.html")]
    assert all(len(c.sha256) == 64 for c in (*kept["run"], *kept["other"]))


def test_what_is_held_on_a_client_is_a_page_to_print_and_lists_its_places(
    copied, answer, covey, tmp_path
):
    page = tmp_path / "held.html"
    told = answer("explain", copied, LEAVER, "--page", page)
    assert "name_is_kept_in" not in told
    kinds = {each["kind"] for each in told["places"]}
    assert kinds == {"ledger", "model", "secret"}
    assert all(each["how"] for each in told["places"])
    shown = html.unescape(page.read_text())
    assert LEAVER in shown
    assert "client-00001" not in shown
    assert all(each["path"] in shown for each in told["places"])
    assert all(sentence in shown for sentence in told["not_searched"])
    assert not re.search(r"https?:|<script|<link|<img", shown)
    # the page is itself a place, and for nobody but its client
    _, out, _ = covey("explain", copied, LEAVER)
    assert f"  {page}\n    a page: explanation" in out
    assert str(page) not in covey("explain", copied, "client-00001")[1]


@pytest.mark.slow
def test_a_run_whose_ledger_is_in_postgresql_keeps_the_record_too(
    postgres, answer, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))
    folder, url = tmp_path / "run", postgres.run("copies")
    run(config=Config.of({**TINY, "ledger": {"url": url}}), out=folder)
    answer("export", folder, "--cluster", 0, "--out", "x", "--recipient", "A Clinic")
    told = answer("explain", folder, LEAVER)
    ledgers = {each["path"] for each in told["places"] if each["kind"] == "ledger"}
    assert len(ledgers) == 1
    assert ledgers.pop().startswith("postgresql://")
    assert any("write-ahead log" in sentence for sentence in told["not_searched"])
    (one,) = answer("forget", folder, LEAVER, "--answer", "retrain")["answers"]
    (copy,) = one["copies"]
    assert (copy["fate"], copy["notify"]) == ("outside", True)
