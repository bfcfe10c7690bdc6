"""Sums of remote clients under masks: all groups take each step at the same time."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from covey.algorithms.client_requests import ClientContext, ClientRequest, Send, SumStep
from covey.algorithms.state import Cohort
from covey.base.events import AnswerRefused, Event, SumGivenUp
from covey.base.names import Handle
from covey.secure_sums.messages import Reason, RoundGivenUpError, SecureSum, Step, Terms
from covey.secure_sums.server import ServerRound

Sound = Callable[[Collection[Handle]], Collection[frozenset[Handle]]]
"""Which groups may be summed if these clients are all who sent their numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupSum:
    """One group of clients in a round of its own, between two messages.

    Attributes:
        cohort: who got the first request.
        letters: what is sent next, by name; empty once the round is over.
        shown: who got a request to open a sum.
        values: the sum over these, once it came.
        given_up: why none came.
    """

    cohort: Cohort
    round: ServerRound
    letters: Mapping[str, bytes]
    shown: frozenset[Handle] = frozenset()
    values: Int64[np.ndarray, " numbers"] | None = None
    given_up: str = ""

    @classmethod
    def begin(cls, cohort: Cohort, terms: Terms) -> "GroupSum":
        """Return a group of which no client has got a request yet."""
        names = tuple(sorted(client.name for client in cohort))
        return cls(cohort, ServerRound(terms, names), dict.fromkeys(names, b""))

    @property
    def letters_by_handle(self) -> dict[Handle, bytes]:
        """What is sent next, by handle."""
        letters = self.letters
        return {c.handle: letters[c.name] for c in self.cohort if c.name in letters}

    @property
    def sent(self) -> frozenset[Handle]:
        """Whose numbers came."""
        return frozenset(c.handle for c in self.cohort if c.name in self.round.masked)

    def taking(self, answers: Mapping[Handle, bytes]) -> "GroupSum":
        """Return the group with what its clients sent, or why it is refused."""
        played = self.round
        for client in self.cohort:
            if client.handle in answers:
                played = played.accept(client.name, answers[client.handle])
        return replace(self, round=played)

    def closed(self) -> "GroupSum":
        """Return the group after a step that is over, with what is sent next."""
        step = self.round.step
        try:
            after, letters = _closed(self.round)
        except RoundGivenUpError as error:
            return self.giving_up(error.reason)
        if isinstance(letters, SecureSum):
            return replace(self, round=after, letters={}, values=letters.values)
        shown = self.sent if step == "masked" else self.shown
        return replace(self, round=after, letters=letters, shown=shown)

    def giving_up(self, reason: Reason) -> "GroupSum":
        """Return the group without a sum."""
        return replace(self, letters={}, given_up=reason.value)

    def facts(self) -> Iterable[Event]:
        """Return what is to be recorded: each refusal once, and a sum that did not come."""
        handles = {client.name: client.handle for client in self.cohort}
        refused = ((r.sender, r.reason.value) for r in self.round.refused)
        for sender, reason in dict.fromkeys(refused):
            yield AnswerRefused(handles[sender], reason)
        if self.given_up:
            yield SumGivenUp(tuple(sorted(handles.values())), self.given_up)


def play_sums(
    send: Send,
    request: Callable[[Step], ClientRequest],
    groups: Sequence[Cohort],
    terms: Callable[[], Terms],
    sound: Sound,
) -> tuple[GroupSum, ...]:
    """Return the sums of some groups, all of which take every step at the same time.

    Each round has a number that no other has: a server that was killed begins others, and
    what clients sent in the first ones opens nothing.

    Args:
        send: sends clients a request.
        request: what is sent to all of them in a step, beside the protocol's own; its
            `sums` say what is added up.
        groups: whose sums are needed, each group's together.
        terms: makes those of a new round; all are alike but in their numbers.
        sound: which groups may be summed of those who are left.
    """
    running = [GroupSum.begin(cohort, terms()) for cohort in groups]
    while waited_for := [each for each in running if each.letters]:
        step = waited_for[0].round.step
        answers = _send_step(send, request(step), waited_for)
        running = [each.taking(answers) if each.letters else each for each in running]
        if step == "masked":  # groups of which too few are left, or would be left behind
            may = sound(frozenset[Handle]().union(*(g.sent for g in running if g.letters)))
            few = Reason.TOO_FEW_CLIENTS
            running = [g.giving_up(few) if g.letters and g.sent not in may else g for g in running]
        running = [each.closed() if each.letters else each for each in running]
    return tuple(running)


def _send_step(
    send: Send, request: ClientRequest, groups: Sequence[GroupSum]
) -> Mapping[Handle, bytes]:
    """Send all groups their next step at once; return what came."""
    letters = {handle: x for each in groups for handle, x in each.letters_by_handle.items()}
    sessions = {
        client.handle: each.round.terms.session.hex() for each in groups for client in each.cohort
    }
    contexts = request.contexts
    cohort = tuple(c for each in groups for c in each.cohort if c.handle in letters)
    terms = groups[0].round.terms
    of = request.sums.of if request.sums else "sums"
    step = replace(
        request,
        task="masked",
        contexts={
            h: replace(contexts.get(h, ClientContext()), session=sessions[h]) for h in letters
        },
        sums=SumStep(groups[0].round.step, terms.length, of),
        letters=letters,
    )
    return {each.handle: each.letter for each in send(step, cohort)}


def _closed(played: ServerRound) -> tuple[ServerRound, Mapping[str, bytes] | SecureSum]:
    """Return a round after its step, with what is sent to whom, or with its sum."""
    match played.step:
        case "keys":
            after, roster = played.close_keys()
            return after, dict.fromkeys(played.roster.names, roster)
        case "shares":
            return played.close_shares()
        case "masked":
            after, survivors = played.close_masked()
            return after, dict.fromkeys(played.survivors, survivors)
        case "agreements":
            after, signed = played.close_agreements()
            who = (each.sender for each in played.agreements)
            return after, dict.fromkeys(who, signed)
        case _:
            return played.close()
