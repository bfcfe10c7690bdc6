"""Every honest answer to a client that asks to leave, and what each of them costs.

    deny        every anonymity set that held the client keeps at least x members
    subtract    the client's sums are taken off those that models are solved from
    roll_back   some set falls below x in round r: rounds from r on are played again
    retrain     everything from the client's first round on is played again, choosing anew
    calibrate   stored updates are calibrated (FedEraser): approximate
    stop        no later round uses the client's data; nothing is erased, its name neither

Which of them go with what a request rests on; what the law asks is not decided here.

    erasure      never a denial or a stop; of "auto" the subtraction where there is one, which
                 leaves nothing of the client in any model, else the retraining, the only answer
                 after which no round holds the client
    objection    of "auto" a stop (GDPR Art. 21); on demand what an erasure may be answered
                 (Art. 17(1)(c))
    withdrawal   whatever "none" gives, or else a stop: the client is in no later round; what
                 was done before may stay
    restriction  a stop alone: every other answer deletes something
    none         the cheapest answer that is exact

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024, 3.1.
    Liu et al., FedEraser: Enabling Efficient Client-Level Data Removal from Federated
    Learning Models, 2021.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

from covey.base.errors import RunError
from covey.base.events import ClientsAssigned, Event, PricesSet, RiskMeasured, RoundMeasured
from covey.base.names import ANSWERS, AnswerKind, Basis, Handle, round_number
from covey.ledger.participation import AnonymitySet, Participation

NO_SETS = (
    "A denial needs a run that hides updates in anonymity sets, found another aggregation "
    "(aggregation.name): ask with --answer retrain."
)

REMOVING: tuple[Basis, ...] = ("erasure", "objection")
"""After these nothing of the client may stay in a round that counts."""

_SPENT = (
    "; privacy.releases are spent: the bound of clients who stay rises above what they accept, "
    "and keeps only if the model stays"
)

_AFTERWARDS: Mapping[AnswerKind, str] = {
    "deny": "nothing is removed from the model, which is unchanged; the client's update "
    "may have been the one used in any round, and each set that held it keeps at least "
    "x members",
    "subtract": "the models are solved from the sums over everybody else, whose clusters "
    "stay as they were chosen beside the client",
    "roll_back": "the model is as if the client had left before the first replayed "
    "round; the rounds before it still include the client",
    "retrain": "the model is the one of a run that never met the client",
    "calibrate": "the model is an approximation of one without the client",
    "stop": "no later round uses the client's data; nothing is erased, and the model holds what "
    "it learnt from them",
}


@dataclass(frozen=True, slots=True)
class Influence:
    """A published value that depended on the requester's presence.

    Numbers alone, so that no one else can be named here.

    Attributes:
        value: clients, a risk or a price; None where the cluster was left.
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    round_index: int
    what: Literal["cluster size", "risk", "price", "cluster left"]
    cluster: int
    value: int | float | None = None


def influences_on(
    events: Iterable[tuple[int | None, Event]], handle: Handle
) -> Iterator[Influence]:
    """Yield the sizes, risks and prices of the clusters that it was in, and its moves."""
    state: int | None = None
    for t, event in events:
        if t is None:
            continue
        if isinstance(event, ClientsAssigned):
            now = event.clusters.get(handle, state)
            if state is not None and now != state:
                yield Influence(t, "cluster left", state)
            state = now
        elif state is None:
            continue
        elif isinstance(event, RiskMeasured) and event.cluster == state:
            yield Influence(t, "risk", state, event.estimate.figure.value)
        elif isinstance(event, PricesSet):
            yield Influence(t, "price", state, event.prices[state])
        elif isinstance(event, RoundMeasured):
            yield Influence(t, "cluster size", state, event.clients[state])


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """What a run allows.

    Attributes:
        deniability_threshold: the paper's x; None: the run has no anonymity sets.
        stored_updates: whether raw updates are on disk.
        restorable: the rounds r such that the state before r can be had; 0 is one.
        next_round: the first round that has not been played.
        prefix_independent: whether rounds before a client's first one are what they
            would be without it; else it can only be removed from round 0 on.
        subtracts: whether the models depend on clients' data through sums alone.
        own_models: whether each client has a model of its own, which no other one is in.
        rounds_left: how many rounds may be played again while every client's bound stays
            within what it accepts (`privacy.releases`); None: no bound depends on that.
    """

    deniability_threshold: int | None
    stored_updates: bool
    restorable: tuple[int, ...]
    next_round: int
    prefix_independent: bool = True
    subtracts: bool = False
    own_models: bool = False
    rounds_left: int | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One answer, and what it takes.

    Attributes:
        reason: why it is not possible; empty if it is.
        first_affected_round: the first round that the answer takes back; None: none.
        first_replayed_round: where the run is taken up again, at or before that.
        rounds_replayed: how many rounds are played again.
        seconds: predicted from how long the run's rounds took; None: not known.
        bytes_deleted: of states and updates that the answer makes obsolete; None: not known.
        exceeds_releases: whether so many rounds again leave the clients who stay a bound above
            what they accept.
    """

    answer: AnswerKind
    reason: str = ""
    first_affected_round: int | None = None
    first_replayed_round: int | None = None
    rounds_replayed: int = 0
    seconds: float | None = None
    bytes_deleted: int | None = None
    exceeds_releases: bool = False

    @property
    def possible(self) -> bool:
        """Whether the answer is true, and possible."""
        return not self.reason

    def obsoletes_state(self, round_index: int) -> bool:
        """Say whether the state after this round is deleted once the answer is signed."""
        first = 0 if self.answer == "subtract" else self.first_replayed_round
        return self.first_replayed_round is not None and round_index >= (first or 0)

    def obsoletes_updates(self, round_index: int) -> bool:
        """Say whether this round's stored updates are deleted: a calibration needs them."""
        first = self.first_replayed_round
        return self.answer != "calibrate" and first is not None and round_index >= first

    @property
    def afterwards(self) -> str:
        """What is then true of the run's models, or why the answer is not possible."""
        return self.reason or _AFTERWARDS[self.answer] + _SPENT * self.exceeds_releases


def options(participation: Participation, handle: Handle, rules: AnswerRules) -> tuple[Option, ...]:
    """Return all answers: those that let a client go, cheapest first, then the stop."""
    if rules.own_models:
        reason = (
            "Who leaves must share a model, found that each has its own: delete that client's "
            "model instead, or stop its training: --answer stop."
        )
        return (*(Option(name, reason) for name in ANSWERS if name != "stop"), Option("stop"))
    broken = _first_broken(participation, handle, rules)
    first = participation.first_trace(handle)
    in_the_open = participation.first_handed_out(handle)
    return (
        _deny(broken, rules, in_the_open),
        _subtract(first, rules),
        _roll_back(broken, rules),
        _from_first("retrain", first, rules),
        _calibrate(first, rules),
        Option("stop"),
    )


def option_for(
    answer: str, participation: Participation, handle: Handle, rules: AnswerRules
) -> Option:
    """Return one answer, and what it takes or why it is not possible."""
    possible = options(participation, handle, rules)
    return next(option for option in possible if option.answer == answer)


def cheapest(options: Sequence[Option], wanted: str) -> Option:
    """Return the requested answer; of "auto" the cheapest one that is exact.

    A roll-back to the client's first round with the others' choices made anew is no
    dearer and says more: it is `retrain`.

    Raises:
        RunError: that answer would not be true, or is not possible.
    """
    by_name = {option.answer: option for option in options}
    if wanted in by_name:
        chosen = by_name[wanted]
        if not chosen.possible:
            raise RunError(chosen.reason)
        return chosen
    deny, back, anew = (by_name[name] for name in ("deny", "roll_back", "retrain"))
    for option in (deny, by_name["subtract"]):
        if option.possible:
            return option
    if back.first_affected_round is None:
        raise RunError(deny.reason)
    if back.first_replayed_round == anew.first_replayed_round:
        return anew
    return back


def at_risk(participation: Participation, x: int) -> frozenset[Handle]:
    """Return the clients whose leaving would make some set fall below x."""
    left = frozenset(participation.left)
    broken = (_breaking(hidden, left, x) for hidden in participation.sets)
    return frozenset[Handle]().union(*broken)


def _first_broken(participation: Participation, handle: Handle, rules: AnswerRules) -> int | None:
    """Return the first round in which a set with this client would fall below x.

    Where a user's own algorithm was handed the client itself, no set hides it.
    """
    x = rules.deniability_threshold
    if x is None:
        return None
    left = frozenset(participation.left) - {handle}
    held = participation.sets_of(handle)
    broken = [hidden.round_index for hidden in held if handle in _breaking(hidden, left, x)]
    if (in_the_open := participation.first_handed_out(handle)) is not None:
        broken.append(in_the_open)
    return min(broken, default=None)


def _breaking(held: AnonymitySet, left: frozenset[Handle], x: int) -> frozenset[Handle]:
    """Return the members whose leaving would leave a member fewer than x others.

    A client that was denied before counts on the same set, and must stay deniable too.
    """
    stay = held.members - left
    if held.near is None:  # all count for all: x and the leaver
        return stay if len(stay) <= x else frozenset()
    remaining = {gone: near - left - {gone} for gone, near in held.near.items()}
    broken = {one for one in stay if len(remaining[one]) < x}
    for gone in held.members & left:
        if len(remaining[gone]) <= x:
            broken |= stay if len(remaining[gone]) < x else remaining[gone]
    return frozenset(broken)


def sizes_left(
    participation: Participation, handle: Handle
) -> tuple[tuple[AnonymitySet, int], ...]:
    """Return the sets that held this client, with how many still speak for it."""
    left = frozenset((*participation.left, handle))
    return tuple(
        (hidden, hidden.plausible_members(handle, left)) for hidden in participation.sets_of(handle)
    )


def _deny(broken: int | None, rules: AnswerRules, in_the_open: int | None) -> Option:
    x = rules.deniability_threshold
    if x is None:
        return Option("deny", NO_SETS)
    if rules.stored_updates:
        return Option(
            "deny",
            "A participation can be denied only where nobody finds whose update spoke for a set, "
            "found raw updates kept (leaving.store_updates): delete updates/ for good, or ask with "
            "--answer retrain.",
        )
    if in_the_open is not None:
        return Option(
            "deny",
            f"A denial needs models that a client's data reach through anonymity sets alone, found "
            f"the client handed to your own algorithm (method.name), first in round {in_the_open}: "
            f"ask with --answer auto, roll_back or retrain.",
        )
    if broken is not None:
        return Option(
            "deny",
            f"A denial must leave at least {x} members in every anonymity set that held the "
            f"client, found fewer in round {round_number(broken)}: ask with --answer auto, "
            f"roll_back or retrain.",
        )
    return Option("deny")


def _subtract(first: int | None, rules: AnswerRules) -> Option:
    if not rules.subtracts:
        return Option(
            "subtract",
            "A subtraction needs models that depend on data through sums alone, found others "
            "(method.name): ask with --answer retrain.",
        )
    if first is None or rules.next_round == 0:
        return Option("subtract")
    last = rules.next_round - 1
    return Option("subtract", "", last, last, 1)


def _roll_back(broken: int | None, rules: AnswerRules) -> Option:
    if rules.deniability_threshold is None:
        return Option("roll_back", NO_SETS)
    if broken is None:
        return Option(
            "roll_back",
            "A roll-back must have a round in which a set would become too small, found none: ask "
            "with --answer deny or retrain.",
        )
    return _replay_option("roll_back", broken, rules)


def _calibrate(first: int | None, rules: AnswerRules) -> Option:
    if not rules.stored_updates:
        return Option(
            "calibrate",
            "A calibration needs stored updates, found leaving.store_updates = 0: ask with "
            "--answer retrain.",
        )
    return _from_first("calibrate", first, rules)


def _from_first(answer: AnswerKind, first: int | None, rules: AnswerRules) -> Option:
    start = first if rules.prefix_independent else 0
    return Option(answer) if start is None else _replay_option(answer, start, rules)


def _replay_option(answer: AnswerKind, affected: int, rules: AnswerRules) -> Option:
    start = max(r for r in rules.restorable if r <= affected)
    replayed, left = rules.next_round - start, rules.rounds_left
    spent = left is not None and replayed > left
    return Option(answer, "", affected, start, replayed, exceeds_releases=spent)


def check_basis(wanted: str, basis: str) -> None:
    """Refuse an answer that does not go with what the request rests on.

    Raises:
        RunError: it does not.
    """
    if (basis == "erasure" and wanted == "stop") or (basis in REMOVING and wanted == "deny"):
        raise RunError(
            f"A request for {basis} must change the model, found --answer {wanted}, which removes "
            f"nothing from it: ask with --answer retrain, or state another --basis."
        )
    if basis == "restriction" and wanted not in ("auto", "stop"):
        raise RunError(
            f"A restriction must delete nothing and leave the data alone, found --answer {wanted}, "
            f"which deletes the client's name: ask with --answer stop, or state another --basis."
        )


def answer_for(options: Sequence[Option], wanted: str, basis: Basis) -> Option:
    """Return the requested answer; of "auto" the one that goes with the basis.

    Raises:
        RunError: that answer would not be true, is not possible, or does not go with
            the basis.
    """
    check_basis(wanted, basis)
    if wanted != "auto" or basis == "none":
        return cheapest(options, wanted)
    match basis:
        case "erasure":
            subtracted = any(option.answer == "subtract" and option.possible for option in options)
            return cheapest(options, "subtract" if subtracted else "retrain")
        case "withdrawal":
            try:
                return cheapest(options, wanted)
            except RunError:
                return cheapest(options, "stop")
        case _:
            return cheapest(options, "stop")


ReplayKind = Literal["recorded", "anew", "calibrated", "subtracted"]
"""The others keep the clusters that are recorded, choose anew, or only calibrate; or they
send nothing at all, since their sums are known ("subtracted")."""

REPLAY_KINDS: dict[str, ReplayKind] = {
    "roll_back": "recorded",
    "calibrate": "calibrated",
    "subtract": "subtracted",
}


def replay_kind(chosen: Sequence[Option]) -> ReplayKind:
    """Return how rounds are played again for these answers at once.

    The others' old choices were made in the presence of all who leave: as soon as one
    of these is owed a run that never met it, they choose anew.
    """
    kinds: set[ReplayKind] = {REPLAY_KINDS.get(option.answer, "anew") for option in chosen}
    return "anew" if len(kinds) > 1 else kinds.pop()
