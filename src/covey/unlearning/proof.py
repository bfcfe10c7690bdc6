"""Proofs: what was answered to a client that asked to leave, for anybody to check.

A proof is one JSON file in one form, signed. It names nobody: the requester recognises
itself by a salt that it alone was given.
"""

import hmac
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import TypeAdapter, ValidationError

from covey.errors import LedgerError
from covey.unlearning.proof_text import (
    FORBIDDEN,
    STRICT,
    Facts,
    claim,
    left_to_do,
    limits,
    refuters,
)
from covey.unlearning.signature import Check, PublicKey, canonical, check_signature
from covey.unlearning.telling import answer_sentences, summary_sentences

__all__ = [
    "ChainView",
    "Proof",
    "proof_document",
    "proof_json",
    "proof_page",
    "refutation_success",
    "subject_mark",
    "verify",
]

FORMAT: Literal["covey-proof"] = "covey-proof"
VERSION: Literal[2] = 2
SINCE_2 = ("copies", "done", "left_to_do", "refuters", "summary")
"""What proofs of version 1 did not hold."""

IDENTIFIERS = {"request", "run", "copies"}
"""Given from outside, and claiming nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(Facts):
    """The document's shape: the facts, and what follows from them.

    Attributes:
        model_changed: whether the two model hashes differ.
        claim: the one thing that the proof claims.
        summary: the answer in three plain sentences; since version 2.
        done: what was done, in plain words; this and the next two are since version 2,
            and stood in `limits` before.
        refuters: what was used of the requester, and who could know or show it.
        left_to_do: for people.
        limits: what it does not say or do.
        signature: of everything else, see `covey.unlearning.signature`.
    """

    __pydantic_config__ = STRICT

    format: Literal["covey-proof"]
    version: Literal[1, 2]
    model_changed: bool
    claim: str
    summary: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    refuters: tuple[str, ...] = ()
    left_to_do: tuple[str, ...] = ()
    limits: tuple[str, ...]
    signature: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChainView:
    """What a proof is compared with, of the ledger that it speaks of.

    Attributes:
        hashes: of every event; the first one is at position 1.
        verified: whether the ledger's own chain is whole.
        head_model_hash: the model hash that the ledger had recorded when the answer was
            given, at the proof's position; None if it records none.
    """

    hashes: Sequence[str]
    verified: bool
    head_model_hash: str | None = None


def proof_document(facts: Facts) -> dict[str, Any]:
    """Return the document of an answer, in plain JSON values, not yet signed.

    Raises:
        LedgerError: a text that was given says what no proof may say, or JSON has no
            word for some value.
    """
    document = {
        **asdict(facts),
        "format": FORMAT,
        "version": VERSION,
        "model_changed": facts.model_before != facts.model_after,
        "claim": claim(facts),
        "summary": summary_sentences(facts),
        "done": answer_sentences(facts),
        "refuters": refuters(facts),
        "left_to_do": left_to_do(facts),
        "limits": limits(facts),
    }
    _refuse_forbidden({k: v for k, v in document.items() if k not in IDENTIFIERS})
    return json.loads(canonical(document))


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


def verify(
    written: bytes,
    trusted: Sequence[PublicKey] | None = None,
    chain: ChainView | None = None,
    name_and_salt: tuple[str, bytes] | None = None,
) -> list[Check]:
    """Check a proof's file; whatever the bytes are, this returns what failed.

    Args:
        written: the file as it is: any byte that differs from its one form fails.
        trusted: the signer's keys, from elsewhere than the proof.
        chain: of the ledger that the proof speaks of, if it is at hand.
        name_and_salt: of the requester, if it is the one who checks.
    """
    try:
        document = json.loads(written.decode("ascii"))
        parsed = _reader()(written)
        one_form = proof_json(document).encode() == written
        _require_fields_of(parsed.version, document)
    except (ValueError, RecursionError) as error:
        return [Check.failed("format", f"not a covey proof: {_reason(error)}")]
    checks = [
        _check_form(parsed, one_form=one_form),
        *check_signature(document, trusted),
        _check_set_sizes(parsed),
        _check_model(parsed),
    ]
    if chain is not None:
        checks.append(_check_ledger(parsed, chain))
    if name_and_salt is not None:
        checks.append(_check_subject(parsed, *name_and_salt))
    return checks


def proof_page(document: Mapping[str, Any]) -> str:
    """Return a signed proof as one printable page that needs nothing beside it."""
    environment = Environment(
        loader=PackageLoader("covey.unlearning"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["digits"] = _digits
    return environment.get_template("proof.html").render(proof=document)


def _digits(value: object) -> object:
    """Return a figure in three digits, and anything else as it is."""
    return f"{value:.3g}" if isinstance(value, float) else value


@cache
def _reader() -> Callable[[bytes], Proof]:
    return TypeAdapter(Proof).validate_json


def _refuse_forbidden(told: Mapping[str, Any]) -> None:
    said = canonical(told).decode().lower()
    found = [phrase for phrase in FORBIDDEN if phrase in said]
    if "cosine" in json.dumps(told["guarantee"]).lower():
        found.append("a guarantee that rests on a cosine distance")
    if found:
        raise LedgerError(
            f"A proof must claim no more than a run's record shows, but a text that "
            f"was given for it says: {', '.join(found)}. Put it in other words, or "
            f"leave it out."
        )


def _reason(error: Exception) -> str:
    """Return what is wrong and where, fit for a terminal whatever the bytes were."""
    if not isinstance(error, ValidationError):
        return ascii(str(error))
    first = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(ascii, first['loc'])) or 'document'}: {first['msg']}"


def _require_fields_of(version: int, document: Mapping[str, Any]) -> None:
    """Raise ValueError where a field is left out, or belongs to a later version."""
    for field in SINCE_2:
        if (field in document) != (version > 1):
            raise ValueError(
                f"{field}: belongs to proofs since version 2, and to those"
            )


def _check_form(told: Proof, *, one_form: bool) -> Check:
    if not one_form:
        return Check.failed("format", "the file is not in the one form of a proof")
    said = (
        (told.limits,) if told.version == 1 else (told.limits, told.done, told.summary)
    )
    if not all(said):
        return Check.failed("format", "what was done, or its limits, are not said")
    return Check.passed("format", f"{told.format} version {told.version}")


def _check_set_sizes(told: Proof) -> Check:
    if told.answer != "deny":
        return Check.passed("set sizes", f"{told.answer} does not rest on them")
    x = told.deniability_threshold
    if x is None:
        return Check.failed("set sizes", "a denial needs a deniability_threshold")
    small = [held for held in told.rounds if held.size_left < x]
    if small:
        return Check.failed(
            "set sizes",
            f"in round {small[0].round_index} {small[0].size_left} members remain, "
            f"fewer than {x}",
        )
    return Check.passed("set sizes", f"at least {x} members remain in every set")


def _check_model(told: Proof) -> Check:
    changed = told.model_before != told.model_after
    if told.model_changed != changed:
        return Check.failed("model", "model_changed contradicts the two hashes")
    if changed and told.answer == "deny":
        return Check.failed("model", "a denial must not change the model")
    return Check.passed("model", "changed" if changed else "not changed")


def _check_ledger(told: Proof, chain: ChainView) -> Check:
    at, count = told.ledger_events, len(chain.hashes)
    recorded = chain.head_model_hash
    if not chain.verified:
        found = "the ledger's own chain is broken"
    elif not 1 <= at <= count:
        found = f"the proof was made at event {at}, but the ledger has {count}"
    elif chain.hashes[at - 1] != told.ledger_head:
        found = f"event {at} of the ledger is not the one that the proof was made at"
    elif recorded is not None and recorded != told.model_after:
        found = "the ledger recorded another model when the answer was given"
    else:
        return Check.passed("ledger", f"the proof was made at event {at} of {count}")
    return Check.failed("ledger", found)


def _check_subject(told: Proof, name: str, salt: bytes) -> Check:
    mark = subject_mark(name, salt)
    if hmac.compare_digest(mark.encode(), told.subject.encode()):
        return Check.passed("subject", "the proof is about this client")
    return Check.failed("subject", "the proof is about somebody else, or another salt")
