"""Letters, as HTML pages to print, made of what signed proofs say and of nothing more.

Every letter is a template; one of the same name in a folder of the user's stands in its
place, and `letterhead.html` in all of them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, FileSystemLoader, PackageLoader, StrictUndefined
from jinja2.exceptions import TemplateError
from jinja2.sandbox import SandboxedEnvironment

from covey.base.errors import ConfigError, RunError
from covey.base.files import make_folder, read_bounded, replace_whole
from covey.desk.answering import handover_of
from covey.desk.case import ANSWER_LETTER, Case, LetterWritten, Register, RunAnswered, due_date
from covey.desk.intake import Load, line_of
from covey.runs.run import Run
from covey.runtime.copies import copies_of
from covey.runtime.folder import RunFolder
from covey.unlearning.proof import read_proof
from covey.unlearning.proof_text import sentences

REFUSAL = "refusal.html"

ITEM_WORDS: Mapping[str, str] = {
    "source": "Files that the data came from",
    "backup": "Backups and logs",
    "recipient": "Organisations that were given a model",
    "downstream": "Copies of models and pages, and what was built on them",
    "other": "Other places",
}


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter that was written.

    Attributes:
        to: who it is for, in words; never a name.
        sha256: of its bytes.
    """

    path: Path
    to: str
    sha256: str


def write_letters(
    register: Register,
    number: str,
    signer: str,
    out: Path | None = None,
    templates: Path | None = None,
    load: Load = Run,
    today: date | None = None,
    refused: str = "",
) -> tuple[Letter, ...]:
    """Write a case's letters: the answer, that it takes longer or is refused, notices.

    Every proof is verified first, against its run's ledger. Beside the letters lie the
    proofs and receipts that go with them.

    Args:
        register: open to be written.
        number: the case's.
        signer: whose name stands below the letters.
        out: the folder; None: one of the register's, which is emptied when the case is
            closed.
        templates: a folder whose templates stand in the place of covey's own.
        load: how a run is loaded.
        today: the letters' date; None: today.
        refused: why nothing is done (GDPR Art. 12(4)), where no run was asked.

    Raises:
        ConfigError: nothing is to be written yet, a run was asked although the request is
            to be refused, or a template cannot be used.
        RunError: a proof is not there, or a check of it fails.
    """
    case = register.case(number)
    _check_writable(case, refused)
    given = [_answer_told(register, each, load) for each in case.answered.values()]
    told = {
        "case": number,
        "name": register.text(case.person),
        "received": case.received,
        "due": case.due,
        "basis": case.basis,
        "signer": signer,
        "today": today or date.today(),
        "answers": given,
        "shared": _shared([each["proof"]["limits"] for each in given]),
        "items": list(_items_told(register, case)),
        "first_due": due_date(case.received),
        "extension": case.extended and register.text(case.extended.reason),
        "refused": line_of(refused, "--refused") if refused else "",
    }
    folder, environment = out or register.letters / number, _templates(templates)
    made: list[Letter] = []
    for file, to, template, view in _letters(case, told):
        try:
            page = environment.get_template(template).render(**view)
        except TemplateError as error:
            raise ConfigError(
                f"The letter {template} must be a template that can be filled in, but: "
                f"{error}. Compare it with covey's own: `covey requests templates FOLDER`."
            ) from error
        content = page.encode("utf-8", "surrogatepass")
        digest = sha256(content).hexdigest()
        make_folder(folder)
        replace_whole(folder / file, content, mode=0o600)
        register.record([LetterWritten(case=number, letter=file, sha256=digest)])
        made.append(Letter(folder / file, to, digest))
    for each in given:
        for path in each["files"]:
            name = f"{path.parent.name.rstrip('s')}-{path.name}"
            replace_whole(folder / name, read_bounded(path), mode=0o600)
    return tuple(made)


def _shared(limits: Sequence[Sequence[str]]) -> list[str]:
    """Return the sentences that are true of several runs alike: they are said once."""
    if len(limits) < 2:
        return []
    first, *others = limits
    return [each for each in first if all(each in other for other in others)]


def _check_writable(case: Case, refused: str) -> None:
    if case.closing is not None:
        raise ConfigError(
            f"Letters are written before a case is closed, found case {case.number} "
            f"{case.state}. Its letters were handed out, and are not kept."
        )
    if refused and case.state != "open":
        raise ConfigError(
            f"A request is refused before any run is asked, found case {case.number} "
            f"{case.state}. Go on with it: `covey requests answer {case.number}`."
        )
    waits = case.state in ("open", "answering")
    if waits and not refused and case.extended is None:
        raise ConfigError(
            f"Letters are written once all runs have answered, or to say that it takes "
            f"longer, found case {case.number} {case.state}. Say `covey requests answer "
            f"{case.number}` first, or refuse it with --refused and the reason."
        )


def _letters(
    case: Case, told: Mapping[str, Any]
) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yield each letter's file, who it is for, its template, and what that is filled with."""
    if told["refused"]:
        yield REFUSAL, "the requester", REFUSAL, told
        return
    if case.state in ("open", "answering"):
        yield "extension.html", "the requester", "extension.html", told
        return
    yield ANSWER_LETTER, "the requester", ANSWER_LETTER, told
    for i, (recipient, models) in enumerate(_owed(told["answers"]).items(), start=1):
        notice = {"recipient": recipient, "models": models, "name": "", "answers": [], "items": []}
        yield f"notice-{i}.html", "a recipient", "notice.html", {**told, **notice}


def _owed(answers: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return which models each recipient is to be told about."""
    owed: dict[str, list[Mapping[str, Any]]] = {}
    for each in answers:
        for copy in each["proof"]["copies"]:
            if copy["notify"] and copy["recipient"]:
                model = {**copy, "run": each["run"], "proof": each["proof"]["request"]}
                model["written"] = each["written"].get(copy["sha256"], "")
                owed.setdefault(copy["recipient"], []).append(model)
    return owed


def _answer_told(register: Register, given: RunAnswered, load: Load) -> dict[str, Any]:
    """Return what one run's proof says, once every check of it has passed.

    Raises:
        RunError: it is not the proof that was signed, or a check fails.
    """
    place = Path(register.text(given.run))
    folder = RunFolder.existing(place)
    path = folder.proofs / f"{given.request}.json"
    try:
        written = read_bounded(path)
    except OSError as error:
        raise RunError(
            f"{path} must be the proof of what this run answered, but it cannot be read: "
            f"{error.strerror or error}. Restore it from a copy."
        ) from error
    if sha256(written).hexdigest() != given.proof_sha256:
        raise RunError(
            f"{path} must be the proof that was signed when the run answered, whose "
            f"SHA-256 is {given.proof_sha256[:16]}..., and it is another. Restore it."
        )
    run = load(place)
    checks = run.verify(path)
    failed = [f"{each.name}: {each.detail}" for each in checks if each.ok is False]
    if failed:
        raise RunError(
            f"A letter is written from a proof that every check passes, but {path} fails "
            f"{'; '.join(failed)}. Look with `covey verify`, and send nothing."
        )
    receipt = folder.receipts / f"{given.request}.json"
    handover, proof = handover_of(run, given.request), read_proof(written)
    return {
        "run": place.name,
        "proof": {**asdict(proof), **sentences(proof)},
        "proof_file": f"proof-{path.name}",
        "proof_sha256": given.proof_sha256,
        "files": [path, path.with_suffix(".html"), *([receipt] if receipt.is_file() else [])],
        "salt": handover.salt if handover else "",
        "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks],
        "written": {copy.sha256: copy.written[:10] for copy in copies_of(folder)},
    }


def _items_told(register: Register, case: Case) -> Iterator[dict[str, Any]]:
    """Yield how many things by hand there were, by kind: their texts are the officer's.

    What is kept for a reason is not dealt with, and the reason is told.
    """
    for kind, words in ITEM_WORDS.items():
        items = [each for each in case.items if each.kind == kind]
        if items:
            signed = [each.signed_on for each in items if each.signed_on]
            last = max(signed) if len(signed) == len(items) else ""
            kept = Counter(register.text(each.kept) for each in items if each.kept)
            yield {
                "kind": words,
                "count": len(items),
                "done": len(signed) - kept.total(),
                "kept": dict(kept),
                "open": len(items) - len(signed),
                "last": last,
            }


def _templates(own: Path | None) -> SandboxedEnvironment:
    """Return templates, the user's own before covey's."""
    if own is not None and not own.is_dir():
        raise ConfigError(
            f"--templates takes a folder of templates, found {own}, which is "
            f"none. `covey requests templates FOLDER` writes covey's own there."
        )
    first = [FileSystemLoader(own)] if own else []
    return SandboxedEnvironment(
        loader=ChoiceLoader([*first, PackageLoader("covey.desk")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
