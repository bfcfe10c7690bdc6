"""What is told of clients that ask to leave: `covey forget` and `covey explain`."""

from typing import NotRequired

from typing_extensions import TypedDict

from covey.cli.outputs.run import Budget
from covey.runtime.places.found import Place
from covey.types import Basis
from covey.unlearning.proof_text import AnswerKind, Fate

__all__ = ["Explanation", "ForgetPlans", "Forgotten", "Queued", "Unacknowledged"]


class CopyTold(TypedDict):
    """A copy that had been written out of the run.

    Attributes:
        what: a model, or a page.
        cluster: of a model.
        written: when, ISO 8601.
        fate: what became of it.
        notify: whether the recipient is to be told.
    """

    what: str
    cluster: int | None
    path: str
    sha256: str | None
    written: str
    recipient: str | None
    fate: Fate
    notify: bool


class AnswerGiven(TypedDict):
    """One client's answer.

    Attributes:
        first_affected_round: that the answer takes back.
        first_replayed_round: where the run was taken up again; None: nowhere.
        model_hash: SHA-256 of all models, after it.
        proof: the signed proof's file.
        salt: for the requester; it is told once.
        sealed_record_kept: whether name and salt together still find the client.
        request: the request's identifier.
        receipt: what was signed when it was asked.
    """

    client: str
    answer: AnswerKind
    first_affected_round: int | None
    first_replayed_round: int | None
    rounds_replayed: int
    seconds: float
    model_changed: bool
    model_hash: str
    proof: str
    salt: str
    copies: list[CopyTold]
    basis: Basis
    sealed_record_kept: bool
    request: str
    receipt: str | None


class Forgotten(TypedDict):
    """Clients that left.

    Attributes:
        budget: how many more can be denied; None: `budget_reason` says why.
    """

    run: str
    answers: list[AnswerGiven]
    budget: Budget | None
    budget_reason: str


class PendingAnswer(TypedDict):
    """A request that waits for the process that plays the run.

    Attributes:
        answer: `pending`.
    """

    client: str
    answer: str


class Queued(TypedDict):
    """Requests that were put down, where another process plays the run."""

    run: str
    answers: list[PendingAnswer]


class OptionTold(TypedDict):
    """One possible answer and its cost.

    Attributes:
        reason: why it cannot be given; empty: it can.
        first_affected_round: that it would take back.
        first_replayed_round: where the run would be taken up again.
        seconds: predicted; None: not known.
        bytes_deleted: of states and updates.
        afterwards: what would be true then.
    """

    answer: AnswerKind
    reason: str
    first_affected_round: int | None
    first_replayed_round: int | None
    rounds_replayed: int
    possible: bool
    seconds: float | None
    bytes_deleted: int
    afterwards: str


class ClientPlanned(TypedDict):
    """How one client could leave.

    Attributes:
        answer: that would be given; None: `reason` says why none.
    """

    client: str
    answer: AnswerKind | None
    reason: str
    basis: Basis
    options: list[OptionTold]


class SharedReplay(TypedDict):
    """The one replay that all these answers share."""

    first_replayed_round: int | None
    rounds_replayed: int


class ForgetPlans(TypedDict):
    """What would be answered; nothing was done."""

    run: str
    plans: list[ClientPlanned]
    together: SharedReplay


class HandoverTold(TypedDict):
    """An answer whose salt nobody has acknowledged.

    Attributes:
        answer: empty: not answered yet.
        proof: empty: there is none yet.
    """

    request: str
    salt: str
    answer: str
    proof: str


class Unacknowledged(TypedDict):
    """The salts that are still kept for requesters."""

    run: str
    unacknowledged: list[HandoverTold]


class SetTold(TypedDict):
    """An anonymity set that held the client.

    Attributes:
        diameter: the largest L2 distance between two of its updates.
    """

    round: int
    cluster: int
    members: int
    diameter: float | None


class RequestTold(TypedDict):
    """A request of the client's.

    Attributes:
        asked: when, ISO 8601.
    """

    wanted: str
    basis: Basis
    state: str
    asked: str


class Explanation(TypedDict):
    """What is held on one client, and where.

    Attributes:
        handle: by which the ledger's events name it.
        rounds_trained: in which its examples were used.
        risk_threshold: that it accepts; None: the client keeps it to itself.
        risk_figures_that_count_it: rounds.
        prices_that_count_it: rounds.
        states_that_depend_on_it: rounds.
        raw_updates_stored: rounds.
        not_searched: where covey could not look, a sentence each.
        page: the page that was written, with `--page`.
    """

    client: str
    handle: str
    rounds_trained: list[int]
    clusters_trained: list[int]
    risk_threshold: float | None
    anonymity_sets: list[SetTold]
    risk_figures_that_count_it: list[int]
    prices_that_count_it: list[int]
    states_that_depend_on_it: list[int]
    raw_updates_stored: list[int]
    requests: list[RequestTold]
    places: list[Place]
    not_searched: list[str]
    page: NotRequired[str]
