"""Sums of remote clients under masks: all groups take each step at the same time."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from covey.algorithms.client_requests import ClientContext, ClientRequest, Send, SumStep
from covey.algorithms.state import Cohort
from covey.base.events import AnswerRefused, Event, SumGivenUp
from covey.base.names import Handle, SummedUp
from covey.secure_sums.messages import Reason, RoundGivenUpError, Terms
from covey.secure_sums.server import ServerRound

Sound = Callable[[Collection[Handle]], Collection[frozenset[Handle]]]
"""Which groups may be summed if these clients are all who sent their numbers."""

OPENING = ("agreements", "unmasking", "over")


@dataclass(frozen=True, slots=True, eq=False)
class GroupSum:
    """One group of clients in a round of its own, between two messages.

    Attributes:
        cohort: who got the first request.
        letters: what is sent next, by name; empty once the round is over.
        given_up: why no sum came.
    """

    cohort: Cohort
    round: ServerRound
    letters: Mapping[str, bytes]
    given_up: str = ""

    @classmethod
    def begin(cls, cohort: Cohort, terms: Terms) -> "GroupSum":
        """Return a group of which no client has got a request yet."""
        names = tuple(sorted(client.name for client in cohort))
        return cls(cohort, ServerRound(terms, names), dict.fromkeys(names, b""))

    @property
    def values(self) -> Int64[np.ndarray, " numbers"] | None:
        """The sum, once it came."""
        return None if self.round.result is None else self.round.result.values

    @property
    def sent(self) -> frozenset[Handle]:
        """Whose numbers came."""
        return frozenset(c.handle for c in self.cohort if c.name in self.round.masked)

    @property
    def shown(self) -> frozenset[Handle]:
        """Who got a request to open a sum: that is over these."""
        return self.sent if self.round.step in OPENING else frozenset()

    def taking(self, answers: Mapping[Handle, bytes]) -> "GroupSum":
        """Return the group with what its clients sent, or why it is refused."""
        played = self.round
        for client in self.cohort:
            if client.handle in answers:
                played = played.accept(client.name, answers[client.handle])
        return replace(self, round=played)

    def closed(self) -> "GroupSum":
        """Return the group after a step that is over, with what is sent next."""
        try:
            after, letters = self.round.close()
        except RoundGivenUpError as error:
            return self.giving_up(error.reason)
        return replace(self, round=after, letters=letters)

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
    request: ClientRequest,
    summed: tuple[SummedUp, int],
    groups: Sequence[Cohort],
    minimum: int,
    sound: Sound,
) -> tuple[GroupSum, ...]:
    """Return the sums of some groups, all of which take every step at the same time.

    Each round has a number that no other has: a server that was killed begins others, and
    what clients sent in the first ones opens nothing.

    Args:
        send: sends clients a request.
        request: what clients need to make their numbers, which they are sent in the step in
            which they send these; in all others it goes without models.
        summed: what is added up, and how many numbers these are.
        groups: whose sums are needed, each group's together.
        minimum: the fewest clients that a sum may be over.
        sound: which groups may be summed of those who are left.
    """
    of, length = summed
    bare = replace(request, models=(), available=(), contexts={}, broadcast={})
    running = [GroupSum.begin(cohort, Terms.new(length, minimum)) for cohort in groups]
    while waited_for := [each for each in running if each.letters]:
        step = waited_for[0].round.step
        pairs = [(g, c) for g in waited_for for c in g.cohort if c.name in g.letters]
        whole = request if step == "masked" else bare
        contexts = {
            c.handle: replace(
                whole.contexts.get(c.handle, ClientContext()), session=g.round.terms.session.hex()
            )
            for g, c in pairs
        }
        question = replace(
            whole,
            task="masked",
            contexts=contexts,
            sums=SumStep(step, length, of),
            letters={c.handle: g.letters[c.name] for g, c in pairs},
        )
        sent = send(question, tuple(client for _, client in pairs))
        answers = {each.handle: each.letter for each in sent}
        running = [each.taking(answers) if each.letters else each for each in running]
        if step == "masked":  # groups of which too few are left, or would be left behind
            may = sound(frozenset[Handle]().union(*(g.sent for g in running if g.letters)))
            few = Reason.TOO_FEW_CLIENTS
            running = [g.giving_up(few) if g.letters and g.sent not in may else g for g in running]
        running = [each.closed() if each.letters else each for each in running]
    return tuple(running)
