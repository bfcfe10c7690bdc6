"""Sums of remote clients under masks: all groups take each step at the same time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from covey.algorithms.client_requests import ClientContext, ClientRequest, Send, SumStep
from covey.algorithms.state import Cohort
from covey.base.events import AnswerRefused, Event, SumGivenUp
from covey.base.names import Handle, SummedUp
from covey.data.examples import Client
from covey.ridge.sums import SumCohorts
from covey.secure_sums.messages import Reason, RoundGivenUpError, Terms
from covey.secure_sums.server import ServerRound

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
    def begin(cls, clients: Iterable[Client], terms: Terms) -> "GroupSum":
        """Return a group of which no client has got a request yet."""
        cohort = tuple(sorted(clients, key=lambda client: client.name))
        names = tuple(client.name for client in cohort)
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
    cohort: Cohort,
    minimum: int,
    cohorts: SumCohorts | None = None,
) -> tuple[GroupSum, ...]:
    """Return the sums over these clients, in groups that take every step at the same time.

    Each round has a number that no other has: a server that was killed begins others, and
    what clients sent in the first ones opens nothing.

    Args:
        send: sends clients a request.
        request: what clients need to make their numbers, which they are sent in the step in
            which they send these; in all others it goes without models.
        summed: what is added up, and how many numbers these are.
        cohort: whose sums are needed.
        minimum: the fewest clients that a sum may be over.
        cohorts: who were in one sum before, of the same numbers; None: nobody.
    """
    (of, length), cohorts = summed, cohorts or SumCohorts()
    members = {client.handle: client for client in cohort}
    bare = replace(request, models=(), available=(), contexts={}, broadcast={})
    groups = [
        GroupSum.begin([members[handle] for handle in group], Terms.new(length, minimum))
        for group in cohorts.groups(members, minimum)
    ]
    while playing := [group for group in groups if group.letters]:
        step = playing[0].round.step
        pairs = [(g, c) for g in playing for c in g.cohort if c.name in g.letters]
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
        answers = {answer.handle: answer.letter for answer in sent}
        playing = [group.taking(answers) for group in playing]
        if step == "masked":  # groups of which too few are left, or would be left behind
            may = cohorts.groups(frozenset[Handle]().union(*(g.sent for g in playing)), minimum)
            few = Reason.TOO_FEW_CLIENTS
            playing = [g if g.sent in may else g.giving_up(few) for g in playing]
        after = iter([group if group.given_up else group.closed() for group in playing])
        groups = [next(after) if group.letters else group for group in groups]
    return tuple(groups)
