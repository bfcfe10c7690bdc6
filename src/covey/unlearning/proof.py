"""Proofs: what was answered to a client that asked to leave, for anybody to check.

A proof is one JSON file in one form, signed. It names nobody: the requester recognises
itself by a salt that it alone was given.
"""

import hmac
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from covey.errors import LedgerError
from covey.types import round_number
from covey.unlearning.proof_text import (
    FORBIDDEN,
    STRICT,
    Facts,
    claim,
    left_to_do,
    limits,
    refuters,
)
from covey.unlearning.signature import canonical
from covey.unlearning.telling import answer_sentences, summary_sentences

__all__ = [
    "Proof",
    "derived_text",
    "forbidden_phrases",
    "proof_document",
    "proof_json",
    "proof_page",
    "refutation_success",
    "subject_mark",
]

FORMAT: Literal["covey-proof"] = "covey-proof"
VERSION: Literal[5] = 5

IDENTIFIERS = {"request", "run", "copies"}
"""Given from outside, and claiming nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Facts):
    """The document's shape: the facts, and what follows from them.

    Attributes:
        model_changed: whether the two model hashes differ.
        claim: the one thing that the proof claims.
        summary: the answer in three plain sentences.
        done: what was done, in plain words.
        refuters: what was used of the requester, and who could know or show it.
        left_to_do: for people.
        limits: what it does not say or do.
        signature: of everything else, see `covey.unlearning.signature`.
    """

    __pydantic_config__ = STRICT

    format: Literal["covey-proof"]
    version: Literal[5]
    model_changed: bool
    claim: str
    summary: tuple[str, ...]
    done: tuple[str, ...]
    refuters: tuple[str, ...]
    left_to_do: tuple[str, ...]
    limits: tuple[str, ...]
    signature: Mapping[str, str]


def proof_document(facts: Facts) -> dict[str, Any]:
    """Return the document of an answer, in plain JSON values, not yet signed.

    Raises:
        LedgerError: a text that was given says what no proof may say, or JSON has no
            word for some value.
    """
    known = asdict(facts)
    if not facts.subtracted:
        del known["subtracted"]
    if facts.earlier_heads is None:
        del known["earlier_heads"]
    if not facts.own_sums_kept:
        del known["own_sums_kept"]
    document = {
        **known,
        "format": FORMAT,
        "version": VERSION,
        "model_changed": facts.model_before != facts.model_after,
        **derived_text(facts),
    }
    if found := forbidden_phrases(document):
        raise LedgerError(
            f"A proof must claim no more than a run's record shows, but a text that "
            f"was given for it says: {', '.join(found)}. Put it in other words, or "
            f"leave it out."
        )
    return json.loads(canonical(document))


def derived_text(facts: Facts) -> dict[str, str | tuple[str, ...]]:
    """Return every sentence of a proof, by field: all of them follow from its facts."""
    return {
        "claim": claim(facts),
        "summary": summary_sentences(facts),
        "done": answer_sentences(facts),
        "refuters": refuters(facts),
        "left_to_do": left_to_do(facts),
        "limits": limits(facts),
    }


def forbidden_phrases(document: Mapping[str, Any]) -> list[str]:
    """Return what a document says that no proof may say; identifiers claim nothing."""
    claiming = {k: v for k, v in document.items() if k not in IDENTIFIERS}
    said = canonical(claiming).decode().lower()
    found = [phrase for phrase in FORBIDDEN if phrase in said]
    if "cosine" in json.dumps(claiming["guarantee"]).lower():
        found.append("a guarantee that rests on a cosine distance")
    return found


def subject_mark(name: str, salt: bytes) -> str:
    """Return HMAC-SHA256 of a client's name under its salt, as hex digits.

    Names can be guessed, so the salt must be random and 16 bytes or more.
    """
    return hmac.new(salt, name.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def refutation_success(distance: float, noise_std: float) -> float:
    """Return the success of an adversary who holds both candidates' updates.

    1 - Phi(-d / (2 s)), the best test of one perturbed release; 1 without noise.

    Args:
        distance: d, L2 between the two updates, 0 or more.
        noise_std: s, of the Gaussian noise on every coordinate, 0 or more.
    """
    if noise_std == 0:
        return 1.0
    return (1 + math.erf(distance / (2 * noise_std) / math.sqrt(2))) / 2


def proof_json(document: Mapping[str, Any]) -> str:
    """Return the one form of a proof's file: indented ASCII JSON, keys sorted."""
    return json.dumps(document, indent=2, sort_keys=True, allow_nan=False) + "\n"


def proof_page(document: Mapping[str, Any]) -> str:
    """Return a signed proof as one printable page that needs nothing beside it."""
    return _page().render(proof=document)


@cache
def _page() -> Template:
    environment = Environment(
        loader=PackageLoader("covey.unlearning"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["digits"] = _digits
    environment.filters["numbered"] = _numbered
    return environment.get_template("proof.html")


def _numbered(t: int | None) -> int | None:
    return None if t is None else round_number(t)


def _digits(value: object) -> object:
    """Return a figure in three digits, and anything else as it is."""
    return f"{value:.3g}" if isinstance(value, float) else value
