"""A request to leave, from when it is made until it is answered, and answers to several at once.

Each is judged as if those before it had left already, so that no set loses two members
and is counted for each of them alone. Clients that need a replay share one, which starts
where the earliest of them starts; those who are subtracted have one of their own.

The sealed record that finds a client whose name was erased, by name and salt:

    key    = HKDF-SHA256(salt, info = name)
    sealed = nonce || AES-256-GCM(key, nonce, handle)

The salt is 16 random bytes that only the requester receives, so a holder of the sealed
record can open it for no name that it guesses.
"""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidTag
from pydantic import TypeAdapter, ValidationError

from covey.base.errors import LedgerError, RunError
from covey.base.names import Basis, ClientName, Handle
from covey.base.sealing import seal, unseal
from covey.leaving.facts import STRICT, AttackFigure, Superseded, Unmeasured, ValueOrReason
from covey.leaving.plan import REPLAY_KINDS, AnswerRules, Option, ReplayKind, answer_for, options
from covey.ledger.participation import Participation
from covey.ledger.requests import Mark, Request, damaged_note

SALT_BYTES = 16


def fresh_mark(handle: Handle, name: ClientName) -> Mark:
    """Draw a salt, and make the marks that go with it."""
    salt = secrets.token_bytes(SALT_BYTES)
    return Mark(salt.hex(), subject_mark(name, salt), sealed(handle, name, salt))


def subject_mark(name: ClientName, salt: bytes) -> str:
    """Return HMAC-SHA256 of a client's name under its salt, as hex digits.

    Names can be guessed, so the salt must be random and 16 bytes or more.
    """
    return hmac.new(salt, name.encode("utf-8", "surrogatepass"), "sha256").hexdigest()


def sealed(handle: Handle, name: ClientName, salt: bytes) -> str:
    """Return the handle in hex digits that only name and salt together open."""
    return seal(salt, _purpose(name), handle.encode()).hex()


def unsealed(record: str, name: ClientName, salt: bytes) -> Handle | None:
    """Return the handle; None: the record is of another name, or of another salt."""
    try:
        return unseal(salt, _purpose(name), bytes.fromhex(record)).decode()
    except InvalidTag:
        return None


def _purpose(name: ClientName) -> bytes:
    return b"covey: the handle of " + name.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that is being served: what its proof needs, and no event holds.

    Attributes:
        option: the answer, and the rounds that are played again.
        until: the round before which all of them have been played.
        salt: hex; what the requester receives with the answer.
        subject: its mark.
        model_before: SHA-256 of the cluster models before the answer.
        measured_before: how well the model gave the requester away.
        updates_stored: whether there are raw updates to delete.
        superseded: how many artefacts of each kind the answer makes obsolete.
        cluster: the one cluster that ever met the client; None: there may be more.
    """

    __pydantic_config__ = STRICT

    option: Option
    until: int
    salt: str = field(repr=False)
    subject: str
    model_before: str
    measured_before: ValueOrReason[AttackFigure, Unmeasured]
    updates_stored: bool
    superseded: Mapping[Superseded, int]
    cluster: int | None = None

    @classmethod
    def of(cls, request: Request) -> "Served":
        """Return what is known of a request that is being served.

        Raises:
            LedgerError: it is not, or what stands with it is something else.
        """
        if request.served is None:
            raise LedgerError(
                f"The request {request.id} must be served for this step, but it is "
                f"{request.state}. Look at the requests again and take each step once."
            )
        try:
            return _json.validate_json(request.served)
        except ValidationError as error:
            raise damaged_note(request.id, error) from error

    def noted(self, request: Request, sealed: str | None) -> Request:
        """Return a request with what its answer needs, and with what finds the client again."""
        return replace(request, served=_json.dump_json(self).decode(), sealed=sealed)

    @property
    def subtracts(self) -> bool:
        """Whether the last round is solved again from sums without the requester."""
        return self.option.answer == "subtract" and self.option.first_replayed_round is not None


_json = TypeAdapter(Served)


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What one client could be answered beside the others, and what it is.

    Attributes:
        options: of this client, once those who ask with it and before it have left.
        chosen: the answer, with the rounds that are replayed for all; None: see `reason`.
        reason: why no answer would be true; "": one is.
        basis: what the request rests on.
    """

    client: ClientName
    options: tuple[Option, ...]
    chosen: Option | None
    reason: str = ""
    basis: Basis = "none"


def choose_answers(
    participation: Participation, requests: Sequence[Request], rules: AnswerRules
) -> tuple[ClientPlan, ...]:
    """Return what each client is answered if all of them leave at once."""
    plans: list[ClientPlan] = []
    for request in requests:
        choice = _choose_alone(participation, request, rules)
        plans.append(choice)
        if choice.chosen is not None:
            left = dict.fromkeys((*participation.left, request.handle))
            participation = replace(participation, left=tuple(left))
    return _in_one_replay(plans, requests, rules)


def replay_kind(chosen: Sequence[Option]) -> ReplayKind:
    """Return how rounds are played again for these answers at once.

    The others' old choices were made in the presence of all who leave: as soon as one
    of these is owed a run that never met it, they choose anew.
    """
    kinds: set[ReplayKind] = {REPLAY_KINDS.get(each.answer, "anew") for each in chosen}
    return "anew" if len(kinds) > 1 else kinds.pop()


def _choose_alone(participation: Participation, request: Request, rules: AnswerRules) -> ClientPlan:
    handle = request.handle
    possible = options(participation, handle, rules)
    if handle in participation.stopped:
        possible = tuple(
            Option("stop", "No later round uses this client's data: that was answered before.")
            if each.answer == "stop"
            else each
            for each in possible
        )
    elif handle in participation.left:
        # neither deny or stop it a second time, nor subtract one that a replay left out
        weak = {"deny": "denial", "stop": "stop"}
        if handle in participation.lingering:
            weak["subtract"] = "subtraction"
        possible = tuple(
            Option(
                each.answer,
                f"Who left a run can get a stronger answer than the one it got, and a "
                f"{weak[each.answer]} is none. Ask with --answer retrain.",
            )
            if each.answer in weak
            else each
            for each in possible
        )
    chosen, reason, basis = None, "", request.basis
    try:
        chosen = answer_for(possible, request.wanted, basis)
    except RunError as error:
        reason = str(error)
    return ClientPlan(request.client, possible, chosen, reason, basis)


def _in_one_replay(
    choices: Sequence[ClientPlan], requests: Sequence[Request], rules: AnswerRules
) -> tuple[ClientPlan, ...]:
    starts = [first for each in choices if (first := _trained_from(each.chosen)) is not None]
    if len(starts) < 2:
        return tuple(choices)
    start, shared = min(starts), list(choices)
    anew = any(each.chosen and each.chosen.answer == "retrain" for each in choices)
    for i, (choice, wanted) in enumerate(zip(choices, requests, strict=True)):
        chosen = choice.chosen
        if chosen is None or _trained_from(chosen) is None:
            continue
        retrain = next(each for each in choice.options if each.answer == "retrain")
        first = retrain.first_affected_round
        if anew and wanted.wanted == "auto" and first is not None and start <= first:
            chosen = retrain  # every round of this client is played again anew anyway
        replayed = rules.next_round - start
        chosen = replace(chosen, first_replayed_round=start, rounds_replayed=replayed)
        shared[i] = replace(choice, chosen=chosen)
    return tuple(shared)


def _trained_from(chosen: Option | None) -> int | None:
    """Return the round from which rounds are trained again; None: none is."""
    return None if chosen is None or chosen.answer == "subtract" else chosen.first_replayed_round
