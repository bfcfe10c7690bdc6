"""Proofs: what was answered to a client's request to leave, for anybody to check and to read.

A proof is one JSON file in one form: the facts, signed. It names no one: the requester
recognises itself by a salt that it alone received. Its sentences follow from the facts alone:
they stand in `templates/proof_words.txt`, one a line, by subject.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from pydantic import TypeAdapter, ValidationError

from covey.base.errors import LedgerError
from covey.base.guarantee import NoGuarantee, Term
from covey.base.names import another_format, round_number
from covey.base.signature import (
    Check,
    KeyRecord,
    SigningKey,
    canonical,
    check_signature,
    document_json,
    sign,
)
from covey.leaving.facts import STRICT, Facts, contradictions

VERSION = 11

_BY = "\t"
"""Between a sentence and the names of its facts."""

REASONS: Mapping[str, str] = {
    "no-distances": "the partition records no distances",
    "not-hidden": "updates were not hidden in anonymity sets: every one of them was used",
    "no-set": "no anonymity set held the requester",
    "noise-unknown": "how far the noise reaches is not recorded, or it is not Gaussian",
    "none-stored": "this run stored no raw updates, so there were none to delete",
    "too-few": "the requester holds too few examples to attack",
    "not-at-hand": "the requester's data were not at hand",
    "gone": "the answer was interrupted, and the data are gone since",
    "diverged-before": "before the answer the model had diverged, or was no better than guessing",
    "diverged-after": "after the answer the model has diverged, or is no better than guessing",
} | {member.name: member.value for member in NoGuarantee}
"""Codes of why a value is not known, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Facts):
    """The document's shape: the facts, signed.

    Attributes:
        signature: of everything else, see `covey.base.signature`.
    """

    __pydantic_config__ = STRICT

    format: Literal["covey-proof"]
    version: Literal[11]
    signature: Mapping[str, str]


def signed_proof(key: SigningKey, facts: Facts) -> dict[str, Any]:
    """Return the document of an answer, in plain JSON values.

    Raises:
        LedgerError: a fact is neither code nor number, or JSON has no word for it.
    """
    try:
        one_form = TypeAdapter(Facts).validate_json(canonical(asdict(facts)))
    except ValidationError as error:
        raise LedgerError(
            f"A proof must hold codes and numbers alone, found that {_first_error(error)}: report "
            f"it with the settings; nothing was signed."
        ) from error
    document = {"format": "covey-proof", "version": VERSION, **asdict(one_form)}
    return sign(key, json.loads(canonical(document)))


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(ascii, first['loc'])) or 'document'}: {first['msg']}"


def read_proof(written: bytes) -> Proof:
    """Read a proof's file; its signature and its facts are not checked.

    Raises:
        ValueError: it is none, of another format, or not in the one form of a proof; fit
            for a terminal whatever the bytes were.
    """
    try:
        document = json.loads(written.decode("ascii"))
        is_proof = isinstance(document, dict) and document.get("format") == "covey-proof"
        if is_proof and (version := document.get("version")) != VERSION:
            raise ValueError(another_format("it", brief(version), VERSION))  # noqa: TRY301
        proof = _reader()(written)
    except ValidationError as error:
        raise ValueError(_first_error(error)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(ascii(str(error))) from error
    if document_json(asdict(proof)).encode() != written:
        raise ValueError("the file is not in the one form of a proof")
    return proof


@cache
def _reader() -> Callable[[bytes], Proof]:
    return TypeAdapter(Proof).validate_json


def brief(value: object) -> str:
    """Return a value fit for a terminal."""
    written = ascii(value)
    return written if len(written) <= 80 else f"{written[:77]}..."


def check_proof(
    written: bytes, trusted: Sequence[KeyRecord] | None = None
) -> tuple[Proof | None, list[Check]]:
    """Check a proof's file by itself; whatever the bytes are, this returns what failed.

    Args:
        written: the file as it is: any byte that differs from its one form fails.
        trusted: the signer's keys, from elsewhere than the proof.

    Returns:
        The proof, or None if it is none, and the checks.
    """
    try:
        proof = read_proof(written)
    except ValueError as error:
        return None, [Check.failed("format", f"not a covey proof: {error}")]
    wrong = contradictions(proof)
    return proof, [
        Check.passed("format", f"{proof.format} of format {proof.version}"),
        *check_signature(asdict(proof), trusted, "answered"),
        Check.failed("facts", f"others contradict what is said of {', '.join(wrong)}")
        if wrong
        else Check.passed("facts", "they do not contradict each other"),
    ]


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence of a proof.

    Attributes:
        facts: names of those that it states; (): no event shows what it says.
    """

    text: str
    facts: tuple[str, ...] = ()

    def follows(self, operator: Collection[str]) -> bool:
        """Say whether it follows from a ledger, if these facts are the operator's word."""
        return bool(self.facts) and not {*self.facts, "facts"} & {*operator}


def statements(facts: Facts) -> dict[str, tuple[Statement, ...]]:
    """Return what a proof says in plain words, by subject.

    Returns:
        summary: the answer in three sentences.
        done: what was done.
        claim: the one thing that is claimed.
        limits: what the answer did not do and does not say.
        refuters: which of the requester's data were used, and who could know or show it.
        left_to_do: what people still have to do; empty if nothing is known of.
    """
    first, start = facts.first_round, facts.first_replayed_round
    fates = [copy.fate for copy in facts.copies]
    words = _templates().get_template("proof_words.txt")
    context = words.new_context(
        {field.name: getattr(facts, field.name) for field in fields(Facts)}
        | {
            "by": lambda names: f"{_BY}{names}",
            "first": first,
            "start": start,
            "earlier": first is not None and start is not None and first < start,
            "from_where": _start(start),
            "fates": fates,
            "elsewhere": sum(fate in ("outside", "missing") for fate in fates),
            "notified": sum(copy.notify for copy in facts.copies),
            "recipients": len({copy.recipient for copy in facts.copies if copy.notify}),
        }
    )
    return {
        subject: tuple(map(_statement, filter(None, "".join(block(context)).splitlines())))
        for subject, block in words.blocks.items()
    }


def _statement(line: str) -> Statement:
    text, _, names = line.partition(_BY)
    return Statement(text, tuple(names.split()))


def sentences(facts: Facts) -> dict[str, tuple[str, ...]]:
    """Return the texts of `statements`."""
    return {
        key: tuple(statement.text for statement in group)
        for key, group in statements(facts).items()
    }


def proof_page(proof: Proof) -> str:
    """Return a proof as one printable page that needs nothing beside it."""
    page = _templates().get_template("proof.html")
    return page.render(proof=asdict(proof), **sentences(proof))


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("covey.leaving"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "digits": lambda value: f"{value:.3g}" if isinstance(value, float) else value,
        "numbered": lambda t: None if t is None else round_number(t),
        "reason": REASONS.__getitem__,
        "term": lambda code: Term[code].value if code in Term.__members__ else code,
        "kind": lambda kind: (
            "of report, figures, metrics, audit and baseline" if kind == "pages" else kind
        ),
        "folded": lambda text: re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1...", text),
        "counted": _counted,
        "were": lambda n: f"{_counted(n, 'round')} {'was' if n == 1 else 'were'}",
        "percent": _percent,
    }
    return environment


def _counted(count: int, what: str, several: str = "") -> str:
    return f"{count} {what if count == 1 else several or f'{what}s'}"


def _start(start: int | None) -> str:
    """Return where a replay began, in words."""
    if start is None:
        return "from nowhere"
    return f"from just before {f'round {round_number(start)}' if start else 'the first round'}"


def _percent(probability: float) -> str:
    """Return three digits; what is not certain is never rounded to certainty."""
    return "more than 99.9%" if 0.9995 <= probability < 1 else f"{100 * probability:.3g}%"
