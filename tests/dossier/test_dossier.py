"""A dossier says what the ledger says, names nobody, and shows every change."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import covey
from covey import Run, RunError
from covey.ledger.store import Ledger
from covey.report.dossier import check_dossier
from covey.report.dossier_facts import annex_iv, dossier_facts, likelihoods
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerRecord
from covey.unlearning.signature import sign


def failed(path: Path, run: Path | None = None, key: Path | None = None) -> set[str]:
    return {each.name for each in check_dossier(path, run, key) if each.ok is False}


def public_key(run: Run) -> Path:
    private = Path(RunFolder(run.folder).config().secrets.key_path)
    return private.with_suffix(".pub.pem")


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "dossier.json").read_text())


@pytest.fixture
def dossier(run: Run, tmp_path: Path) -> Path:
    return run.dossier(tmp_path / "dossier")


def test_every_check_passes_with_the_ledger_and_the_key(run: Run, dossier: Path):
    key = public_key(run)
    checks = check_dossier(dossier, run.folder, key)
    assert {each.name: each.ok for each in checks} == dict.fromkeys(
        ("signature", "trust", "key", "files", "text", "ledger"), True
    )


def test_without_ledger_and_key_that_is_left_open(dossier: Path):
    open_ones = {each.name for each in check_dossier(dossier) if each.ok is None}
    assert open_ones == {"trust", "ledger"}


def test_an_archive_is_the_same(run: Run, tmp_path: Path):
    archive = run.dossier(tmp_path / "dossier.zip")
    assert failed(archive, run.folder) == set()
    with zipfile.ZipFile(archive) as opened:
        assert "dossier.html" in opened.namelist()


def test_it_names_no_client_and_no_handle(run: Run, dossier: Path):
    with Ledger.read(run.folder / "ledger.sqlite") as ledger:
        names = ledger.names()
    everything = b"".join(each.read_bytes() for each in dossier.iterdir())
    for handle, name in names.items():
        assert handle.encode() not in everything
        assert name.encode() not in everything
    assert b"client-00001" not in everything


@pytest.mark.parametrize("name", ["dossier.json", "dossier.html", "audit.json"])
def test_any_flipped_byte_is_seen(dossier: Path, name: str):
    path = dossier / name
    content = bytearray(path.read_bytes())
    for place in range(0, len(content), max(1, len(content) // 7)):
        flipped = content.copy()
        flipped[place] ^= 1
        path.write_bytes(flipped)
        assert failed(dossier), place
    path.write_bytes(content)
    assert not failed(dossier)


@pytest.mark.parametrize("model", [0, 1])
def test_a_better_figure_signed_again_is_refuted_by_the_ledger(
    run: Run, dossier: Path, model: int, other_key: Any
):
    told = document(dossier)
    told["facts"]["models"][model]["true_risk"] = 0.5
    (dossier / "dossier.json").write_text(json.dumps(sign(other_key, told)))
    assert "ledger" in failed(dossier, run.folder)
    assert "text" in failed(dossier), "its sentences are of the old figure"


def test_a_sentence_that_the_figures_do_not_make_is_seen(dossier: Path, other_key: Any):
    told = document(dossier)
    told["likelihoods"]["extraction"]["unknown"] = []
    (dossier / "dossier.json").write_text(json.dumps(sign(other_key, told)))
    assert failed(dossier) == {"text"}


def test_another_key_is_not_trusted(run: Run, dossier: Path, other_key: Any):
    told = sign(other_key, document(dossier))
    (dossier / "dossier.json").write_text(json.dumps(told))
    key = public_key(run)
    assert failed(dossier, run.folder, key) == {"trust"}


def test_every_figure_names_its_events(run: Run, dossier: Path):
    told = document(dossier)
    with Ledger.read(run.folder / "ledger.sqlite") as ledger:
        links = ledger.links()
    traced = {each["figure"]: each for each in told["traces"]}
    for each in traced.values():
        assert each["hashes"] == [links[p - 1].hash for p in each["positions"]]
    for model in told["facts"]["models"]:
        (place,) = traced[f"models[{model['cluster']}].true_risk"]["positions"]
        body = links[place - 1].record().body
        assert body["cluster"] == model["cluster"]
        assert body["true_risk"] == model["true_risk"]
    assert traced["guarantees"]["positions"] == []


def test_a_later_event_leaves_an_older_dossier_valid(run: Run, dossier: Path):
    run.forget("client-00002", "retrain")
    assert failed(dossier, run.folder) == set()


def test_the_order_in_which_answers_came_changes_no_sentence(dossier: Path):
    facts = document(dossier)["facts"]
    there, back = ({**facts, "answers": dict(each)} for each in (ANSWERED, ANSWERED[::-1]))
    assert annex_iv(there) == annex_iv(back)


ANSWERED = (("retrain", 1), ("deny", 2))
MODEL = {
    "cluster": 0,
    "risk": 0.6,
    "risk_standard_error": None,
    "source": "federated",
    "reason": "",
    "true_risk": 0.7,
    "true_risk_standard_error": None,
    "true_risk_reason": "",
    "strongest_attack": {"attack": "lira", "risk": 0.8, "standard_error": None},
}


def test_an_error_that_is_not_known_is_never_told_as_none():
    facts = {"guarantees": [], "guarantee_reason": "", "models": [MODEL]}
    measured = " ".join(likelihoods(facts, [])["queries"]["measured"])
    assert measured.count("standard error unknown") == 3
    assert "± 0" not in measured


def test_a_risk_is_traced_to_the_event_that_holds_it(run: Run, dossier: Path):
    told = document(dossier)
    with Ledger.read(run.folder / "ledger.sqlite") as ledger:
        links = ledger.links()
    traced = {each["figure"]: each["positions"] for each in told["traces"]}
    for model in told["facts"]["models"]:
        if model["risk"] is not None:
            (place,) = traced[f"models[{model['cluster']}].risk"]
            assert links[place - 1].record().body["risk"] == model["risk"]


def test_a_run_that_nobody_could_measure_says_so_and_not_that_it_goes_on(audited: Path):
    folder = RunFolder(audited)
    with Ledger.read(folder.ledger) as ledger:
        record = folder.reader.read(ledger)
    kept = [
        (digest, each)
        for digest, each in zip(record.hashes, record.records, strict=True)
        if each.kind != "ClusterAudited"
    ]
    facts = dossier_facts(LedgerRecord([d for d, _ in kept], [e for _, e in kept]))
    assert facts["run"]["finished"]
    for model in facts["models"]:
        assert model["true_risk"] is None
        assert "simulation" in model["true_risk_reason"]


def test_no_noise_is_told_as_unknown_and_never_as_safe(dossier: Path):
    told = document(dossier)
    unknown = " ".join(told["likelihoods"]["extraction"]["unknown"])
    assert "No differential privacy guarantee" in unknown
    assert "insignificant" not in json.dumps(told["likelihoods"])


def test_nothing_is_written_over(run: Run, dossier: Path):
    with pytest.raises(RunError, match="is there already"):
        run.dossier(dossier)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": "covey dossier"}'])
def test_what_is_no_dossier_is_said_to_be_none(tmp_path: Path, content: bytes):
    (tmp_path / "dossier.json").write_bytes(content)
    assert failed(tmp_path) == {"dossier"}


def test_a_file_outside_is_not_read(dossier: Path, other_key: Any):
    told = document(dossier)
    told["files"]["../secret"] = "0" * 64
    (dossier / "dossier.json").write_text(json.dumps(sign(other_key, told)))
    assert "files" in failed(dossier)


def test_an_unfinished_run_has_a_dossier_of_what_is_known(tmp_path: Path, audited):
    from covey.runtime.folder import RunFolder

    folder = RunFolder(shutil.copytree(audited, tmp_path / "run"))
    with Ledger.read(folder.ledger) as ledger:
        record = folder.reader.read(ledger)
    began = LedgerRecord(record.hashes[:1], record.records[:1])
    facts = dossier_facts(began)
    assert facts["accuracy"]["overall"] is None
    assert all(each["true_risk"] is None for each in facts["models"])
    assert all(each["reason"] for each in facts["models"])


def test_its_name_cannot_bring_a_script(run: Run, tmp_path: Path):
    renamed = run.folder.with_name("<script>alert(1)<")
    run.folder.rename(renamed)
    page = covey.load(renamed).dossier(tmp_path / "d") / "dossier.html"
    assert "<script>" not in page.read_text()
