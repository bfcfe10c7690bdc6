"""The pack that is handed over to a person: a statement in plain words, and what proves it.

A folder and a zip file of `statement.html`, `annex.json`, the proofs and the receipts. Every
proof is verified first. Every sentence of the statement is chosen by a fact; its words stand in
one template per language.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from covey import Run, RunError
from covey.base.as_json import json_of
from covey.base.files import delete_whole, make_folder, read_bounded, replace_whole
from covey.leaving.places import YOU
from covey.report.queries import csv_of
from covey.runs.folder import RunFolder
from covey_desk.answering import Load, open_requests, proof_of
from covey_desk.controller import read_controller
from covey_desk.register import PACKS, read_register, register_at
from covey_desk.request import ARTICLES, Ending, Request, RunOfRequest, by_hand, proof_path

Said = (
    Literal["removed", "subtracted", "never", "partly", "estimated", "denied", "stopped", "holds"]
    | Ending
)
"""What is true of a run's models, or why the run says nothing."""


WEAK: tuple[Said, ...] = ("partly", "estimated", "denied", "stopped", "unclear")
"""After which a stronger answer can be asked for."""


SAYS: Mapping[str, Said] = {
    "retrain": "removed",
    "subtract": "subtracted",
    "roll_back": "partly",
    "calibrate": "estimated",
    "deny": "denied",
    "stop": "stopped",
}


@dataclass(frozen=True, slots=True)
class RunStatement:
    """What one run did about a person; rounds count from 1.

    Attributes:
        run: its folder's name.
        day: of the answer, ISO 8601; "": there is none.
        learnt: rounds whose training its models still hold; empty: none, or not recorded.
        replayed: how many rounds were played again.
        others: at least so many others may have sent what was used (a denial).
        kept: states of models that depend on its data (what a run holds).
    """

    run: str
    says: Said
    day: str = ""
    learnt: tuple[int, ...] = ()
    replayed: int = 0
    others: int | None = None
    kept: int = 0


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack that was written.

    Attributes:
        archive: the zip file of the folder; sha256: of that.
    """

    request: str
    name: str
    folder: Path
    archive: Path
    sha256: str


def write_packs(folder: Path, numbers: Sequence[str] = (), load: Load = Run) -> tuple[Pack, ...]:
    """Write the packs of requests that every run has answered, and that have none yet.

    Args:
        folder: the register's.
        numbers: of requests, whose packs are written anew; none: all that are open.
        load: how a run is loaded.

    Raises:
        RunError: a proof is not there, is another one, or a check of it fails.
    """
    with read_register(folder) as held:
        requests = open_requests(held, numbers)
    made: list[Pack] = []
    for request in requests:
        if request.state not in ("answered", "denied"):
            continue
        for index, name in enumerate(request.entry.names, 1):
            if request.has_pack(index) and not numbers:
                continue
            into = folder / PACKS / request.pack_name(index)
            runs = [run for run in request.runs if run.index == index]
            pack = _written(request, name, runs, into, load)
            with register_at(folder) as held:
                is_open = held.request(request.request).is_open
                if is_open:
                    held.note_pack(request.request, index)
            if is_open:
                made.append(pack)
            else:  # another process closed it meanwhile, and deleted its packs
                delete_whole(pack.folder)
                delete_whole(pack.archive)
    return tuple(made)


def _written(
    request: Request, name: str, runs: Sequence[RunOfRequest], into: Path, load: Load
) -> Pack:
    today, statements = date.today(), list[RunStatement]()
    annex: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for outcome in runs:
        place, holds = outcome.run, json.loads(outcome.held or "{}")
        about: dict[str, Any] = {
            "run": Path(place).name,
            "held_before": _public_holdings(holds, place) or None,
        }
        if outcome.answer:
            proof, salt = _verified(outcome, load)
            statements.append(_statement(outcome, proof, holds))
            about |= {
                "request": outcome.run_request,
                "answer": outcome.answer,
                "salt": salt,
                "proof": proof,
            }
            path, run = proof_path(Path(place), outcome.run_request), RunFolder(Path(place))
            inside = {
                "proof": path,
                "page": path.with_suffix(".html"),
                "receipt": run.receipts / path.name,
            }
            for kind, source in inside.items():
                if source.is_file():
                    files[f"{kind}-{outcome.run_request}{source.suffix}"] = read_bounded(source)
        else:
            why: Said = outcome.ended or "holds"
            statements.append(_of_held(place, why, holds))
            about["ended"] = outcome.ended
        annex.append(about)
    entry, own = request.entry, {(item.kind, item.where) for item in by_hand(runs, {})}
    controller, places = read_controller(), [entry.run for entry in runs]
    texts = ("recipient", "not listed")
    left = [
        replace(e, how="", where=e.where if e.kind in texts else _without_paths(e.where, places))
        for e in request.by_hand
        if (e.kind, e.where) in own
    ]
    view = {
        "controller": controller,
        "article": ARTICLES[entry.basis],
        "due": entry.due,
        "recipients": [
            (about["run"], recipient)
            for about in annex
            for recipient in (about["held_before"] or {}).get("recipients", ())
        ],
        "name": name,
        "entry": entry,
        "received": date.fromisoformat(entry.received),
        "today": today,
        "runs": statements,
        "left": left,
        "weak": any(statement.says in WEAK for statement in statements),
        "has_proofs": any("proof" in page for page in annex),
        "has_weaker": any(page["proof"]["sealed_record_kept"] for page in annex if "proof" in page),
    }
    facts = {
        "request": request.request,
        "name": name,
        "basis": entry.basis,
        "reference": entry.reference,
        "received": entry.received,
        "due": request.due,
        "extended": entry.extended,
        "written": today.isoformat(),
        "statements": [asdict(statement) for statement in statements],
        "runs": annex,
        "controller": controller,
        "left_to_do": [asdict(item) for item in left],
        "files": sorted([*files, "annex.json", "statement.html"]),
    }
    page = _templates().get_template(f"statement.{entry.language}.html").render(view)
    files["statement.html"] = page.encode("utf-8", "surrogatepass")
    files["annex.json"] = json.dumps(facts, indent=1).encode("ascii")
    delete_whole(into)
    make_folder(into.parent)
    make_folder(into)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in sorted(files.items()):
            replace_whole(into / file, content, mode=0o600)
            moment = (today.year, today.month, today.day, 0, 0, 0)
            archive.writestr(zipfile.ZipInfo(f"{into.name}/{file}", moment), content)
    path = into.with_name(f"{into.name}.zip")
    replace_whole(path, buffer.getvalue(), mode=0o600)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    return Pack(request.request, name, into, path, digest)


def _public_holdings(holds: dict[str, Any], place: str) -> dict[str, Any]:
    """Return what a run held, without paths of this machine and words to the operator."""
    places = [
        {
            "where": _without_paths(held["path"], [place]),
            "what": held["what"],
            "kind": held["kind"],
            "deleted_by": "a person" if held["who_must_act"] == YOU else "the program",
        }
        for held in holds.get("places", ())
    ]
    elsewhere = [_without_paths(copy, [place]) for copy in holds.get("not_listed", ())]
    unread = {"problem": "it could not be read"} if "problem" in holds else {}
    return holds and holds | {"places": places, "not_listed": elsewhere} | unread


def _without_paths(text: str, places: Sequence[str]) -> str:
    """Return a text in which a run is called by its name, and what lies elsewhere by its own."""
    for place in places:
        text = text.replace(f"{place}/", f"{Path(place).name}/")
    return "a database" if "://" in text else Path(text).name if Path(text).is_absolute() else text


def write_export(requests: Sequence[Request], period: str, out: Path) -> None:
    """Write requests for a regulator as JSON, and beside it as a page and as CSV."""
    controller = read_controller()
    rows = [
        {
            "request": request.request,
            "received": request.entry.received,
            "due": request.due,
            "basis": request.entry.basis,
            "article": f"GDPR Art. {ARTICLES[request.entry.basis]}",
            "state": request.state,
            "closed": request.closed,
            "run": Path(run.run).name if run else "",
            "answer": request.outcome(run) if run else "no run has the name",
            "answered": run.answered[:10] if run else "",
            "proof_sha256": run.proof_sha256 if run else "",
        }
        for request in requests
        for run in request.runs or (None,)
    ]
    view = {"controller": controller, "rows": rows, "period": period, "requests": requests}
    facts = {"controller": controller, "requests": json_of(requests)}
    written = {
        ".json": json.dumps(facts, indent=1),
        ".html": _templates().get_template("export.html").render(view),
        ".csv": csv_of(rows),
    }
    for suffix, text in written.items():
        replace_whole(out.with_suffix(suffix), text.encode("utf-8", "surrogatepass"), mode=0o600)


def _verified(outcome: RunOfRequest, load: Load) -> tuple[dict[str, Any], str]:
    """Return a proof that every check passes, and its salt; "": that was handed over before.

    Raises:
        RunError: it is not the proof that was signed, or a check fails.
    """
    path = proof_path(Path(outcome.run), outcome.run_request)
    written, proof = proof_of(path)
    if hashlib.sha256(written).hexdigest() != outcome.proof_sha256:
        raise RunError(
            f"{path} must be the proof signed when the run answered, of SHA-256 "
            f"{outcome.proof_sha256[:16]}..., found another: restore it."
        )
    run = load(Path(outcome.run))
    if failed := [f"{e.name}: {e.detail}" for e in run.verify(path).failed]:
        raise RunError(
            f"{path} must pass every check to be handed over, found {'; '.join(failed)}: look with "
            f"`covey verify`, and hand over nothing."
        )
    salts = (
        delivery.salt for delivery in run.unacknowledged if delivery.request == outcome.run_request
    )
    return proof, next(salts, "")


def _statement(
    outcome: RunOfRequest, proof: Mapping[str, Any], holds: Mapping[str, Any]
) -> RunStatement:
    trained = tuple(t + 1 for t in holds.get("rounds_trained", ()))
    says, start = SAYS[outcome.answer], proof["first_replayed_round"]
    if says == "subtracted" and start is None:
        says = "removed"  # what no sum holds was not taken out of any
    if proof["first_round"] is None and start is None and not trained:
        says = "never"
    learnt = trained if says in ("denied", "stopped") else ()
    if says == "partly":
        learnt = tuple(t for t in trained if t <= start)
    return RunStatement(
        run=Path(outcome.run).name,
        says=says,
        day=outcome.answered[:10],
        learnt=learnt,
        replayed=proof["rounds_replayed"],
        others=proof["deniability_threshold"] if says == "denied" else None,
    )


def _of_held(place: str, why: Said, holds: Mapping[str, Any]) -> RunStatement:
    if "problem" in holds:
        why = "unreadable"
    learnt = tuple(t + 1 for t in holds.get("rounds_trained", ()))
    if why == "holds" and not learnt:
        why = "never"
    kept = len(holds.get("states_that_depend_on_it", ()))
    return RunStatement(Path(place).name, why, learnt=learnt, kept=kept)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("covey_desk"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["day"] = lambda day, how: date.fromisoformat(str(day)).strftime(how)
    return environment
