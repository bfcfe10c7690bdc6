"""What could be answered to clients that ask to leave, read from what is recorded.

Each of several is judged as if those before it had left already, so that no set loses two members
and is counted for each of them alone. Clients that need a replay share one, which starts
where the earliest of them starts; those who are subtracted have one of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from covey.base.errors import ConfigError, RunError
from covey.base.events import ModelsMerged
from covey.base.history import History, of_kinds
from covey.base.names import Basis, ClientName, Handle, client_name
from covey.base.own_code import no_foreign_code
from covey.leaving.handover import unsealed
from covey.leaving.plan import AnswerRules, Option, answer_for, options
from covey.ledger.participation import Participation
from covey.ledger.requests import ClientRoster, LeaveRequest
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, checkpoint_paths, round_of, rounds_in
from covey.runs.ledger_record import LedgerRecord
from covey.runs.reading import checked_ledger, unknown_client
from covey.runs.session import Session
from covey.runs.states import load_state, newest_whole_state
from covey.settings.aggregation import anonymity_of
from covey.settings.algorithm import depends_on_population
from covey.settings.load import Config


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
    participation: Participation, requests: Sequence[LeaveRequest], rules: AnswerRules
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


def _choose_alone(
    participation: Participation, request: LeaveRequest, rules: AnswerRules
) -> ClientPlan:
    handle = request.handle
    possible = options(participation, handle, rules)
    if handle in participation.stopped:
        possible = tuple(
            Option("stop", "No later round uses this client's data: that was answered before.")
            if option.answer == "stop"
            else option
            for option in possible
        )
    elif handle in participation.left:
        # neither deny or stop it a second time, nor subtract one that a replay left out
        weak = {"deny": "denial", "stop": "stop"}
        if handle in participation.lingering:
            weak["subtract"] = "subtraction"
        possible = tuple(
            Option(
                option.answer,
                f"Who left a run must get a stronger answer than it got, found a "
                f"{weak[option.answer]}: ask with --answer retrain.",
            )
            if option.answer in weak
            else option
            for option in possible
        )
    chosen, reason, basis = None, "", request.basis
    try:
        chosen = answer_for(possible, request.wanted, basis)
    except RunError as error:
        reason = str(error)
    return ClientPlan(request.client, possible, chosen, reason, basis)


def _in_one_replay(
    choices: Sequence[ClientPlan], requests: Sequence[LeaveRequest], rules: AnswerRules
) -> tuple[ClientPlan, ...]:
    starts = [first for choice in choices if (first := _trained_from(choice.chosen)) is not None]
    if len(starts) < 2:
        return tuple(choices)
    start, shared = min(starts), list(choices)
    anew = any(choice.chosen and choice.chosen.answer == "retrain" for choice in choices)
    for i, (choice, wanted) in enumerate(zip(choices, requests, strict=True)):
        chosen = choice.chosen
        if chosen is None or _trained_from(chosen) is None:
            continue
        retrain = next(option for option in choice.options if option.answer == "retrain")
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


@dataclass(frozen=True, slots=True)
class ReturningClient:
    """A client that has left, and comes back for a stronger answer.

    Attributes:
        salt: hex; the one that it got with its last answer.
    """

    client: ClientName
    salt: str = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", client_name(self.client))


def wanted_answers_of(
    roster: ClientRoster,
    folder: RunFolder,
    clients: Sequence[ClientName | ReturningClient],
    wanted: str,
    basis: Basis = "none",
) -> list[LeaveRequest]:
    """Return what clients ask for, each once, under the handles that a ledger has for them.

    Raises:
        RunError: a client is not known to the run.
    """
    handles = roster.handles
    by_client: dict[ClientName, LeaveRequest] = {}  # who is named twice asks once
    for client in clients:
        back = isinstance(client, ReturningClient)
        name = client.client if back else client
        handle = _unsealed_handle(roster, client) if back else handles.get(name)
        if handle is None:
            more = "; who left comes back with --salt and the salt of the last answer, unless that "
            raise unknown_client(folder, name, handles, f"{more}was a retraining")
        by_client[name] = LeaveRequest(handle, wanted, basis, name)
    return [*by_client.values()]


def _unsealed_handle(roster: ClientRoster, returning: ReturningClient) -> Handle | None:
    try:
        salt = bytes.fromhex(returning.salt)
    except ValueError as error:
        raise RunError(
            f"A salt must be hexadecimal, as an answer has it, found {error}: copy it."
        ) from error
    records = [request.sealed for request in roster.requests if request.sealed]
    opened = (unsealed(record, returning.client, salt) for record in records)
    return next((handle for handle in opened if handle is not None), None)


def client_plans(
    folder: RunFolder,
    clients: Sequence[ClientName | ReturningClient],
    wanted: str = "auto",
    basis: Basis = "none",
) -> tuple[ClientPlan, ...]:
    """Return what each client would be answered if all of them left now; nothing is done.

    Their data are not needed, and a process that plays the run goes on.

    Raises:
        RunError: a client is not known to the run, or they cannot all leave.
    """
    with checked_ledger(folder) as ledger:
        roster = ledger.roster()
        answers = wanted_answers_of(roster, folder, clients, wanted, basis)
        return plans_for(planning_config(folder), folder, ledger, roster, answers)


def planning_config(folder: RunFolder) -> Config:
    """Return a run's settings, with a user's own components where these can be imported."""
    try:
        return folder.checked_config()
    except ConfigError:
        return folder.config()


def plans_for(
    config: Config,
    folder: RunFolder,
    ledger: Ledger,
    roster: ClientRoster,
    wanted: Sequence[LeaveRequest],
) -> tuple[ClientPlan, ...]:
    """Return what each client is answered if all of them leave at once; nothing is done.

    Raises:
        RunError: no client can leave this run, or not all of them.
    """
    record = folder.reader.record
    rules = current_rules(config, folder, record.history)
    stopped, leaving = roster.stopped, {request.handle for request in wanted}
    present = {handle for handle, name in roster.names.items() if name not in stopped}
    if present <= leaving:
        reason = "this client is the last one" if len(leaving) == 1 else "all would leave"
        raise RunError(
            f"A run must go on with somebody, found that {reason}: delete the run's folder instead."
        )
    plans = choose_answers(record.participation, wanted, rules)
    took = ledger.seconds_per_round()
    return tuple(_priced(plan, folder, took) for plan in plans)


def current_rules(
    config: Config, folder: RunFolder, history: History, x: int | None = None
) -> AnswerRules:
    """Return what a run allows, after the rounds that are recorded.

    Args:
        config: the run's settings.
        folder: the same.
        history: the same.
        x: another deniability threshold than that of the settings.

    Raises:
        RunError: no client can leave this run yet.
    """
    next_round = history.rounds[-1].round_index + 1 if history.rounds else 0
    alone = config.method.traits.one_client_each
    if alone and next_round == 0:
        raise RunError(
            f"With method.name = {config.method.name!r} a client's model must have played a round, "
            f"found none in {folder.path}: play it, or list the client in population.exclude."
        )
    terms = anonymity_of(config)
    return AnswerRules(
        deniability_threshold=(x or terms.deniability_threshold) if terms else None,
        stored_updates=bool(rounds_in(folder.updates)),
        restorable=(0, *(t + 1 for t in rounds_in(folder.checkpoints))),
        next_round=next_round,
        prefix_independent=not depends_on_population(config),
        subtracts=config.method.declares("subtracts"),
        own_models=alone,
        rounds_left=_rounds_left(config, history, next_round),
    )


def _rounds_left(config: Config, history: History, next_round: int) -> int | None:
    """Return how many rounds may be played again for what clients accept to stay a bound."""
    plan = config.privacy_plan
    if plan.exposure == 1 or not plan.noise:
        return None
    released = sum(1 for _ in of_kinds(history.all_events, ModelsMerged))
    to_come = max(0, config.rounds - next_round)
    return plan.releases - released - to_come


def _priced(plan: ClientPlan, folder: RunFolder, took: Sequence[float]) -> ClientPlan:
    """Return the plan with what each option would take, by what the run's rounds took."""
    states, updates = map(checkpoint_paths, (folder.checkpoints, folder.updates))

    def priced(option: Option) -> Option:
        first = option.first_replayed_round
        if not option.possible or first is None:
            return replace(option, seconds=0.0, bytes_deleted=0)
        obsolete = [path for path in states if option.obsoletes_state(round_of(path))]
        obsolete += [path for path in updates if option.obsoletes_updates(round_of(path))]
        return replace(
            option,
            seconds=option.rounds_replayed * median(took) if took else None,
            bytes_deleted=sum(path.stat().st_size for path in obsolete),
        )

    return replace(plan, options=tuple(map(priced, plan.options)))


def plan_alone(folder: RunFolder, record: LedgerRecord, handle: Handle) -> ClientPlan:
    """Return what a client could be answered now, if it alone leaves.

    The right to write is not taken, so the run goes on meanwhile.

    Raises:
        CoveyError: the ledger or the settings cannot be read.
    """
    with Ledger.read(folder.ledger) as ledger, no_foreign_code():
        name = ledger.names().get(handle, "")
        try:
            rules = current_rules(folder.config(), folder, record.history)
        except RunError as error:
            return ClientPlan(name, (), None, str(error))
        (plan,) = choose_answers(record.participation, [LeaveRequest(handle, client=name)], rules)
        return _priced(plan, folder, ledger.seconds_per_round())


def unplayed_reason(session: Session) -> str:
    """Say what has to be played before this run can answer anybody; "": nothing.

    A request is answered between rounds, in the state after the last one that is recorded.
    """
    rounds, next_round = session.rounds, session.record.next_round
    newest = newest_whole_state(session.folder.checkpoints, session.ledger)
    if any(r.is_open for r in session.roster.requests) or any(session.folder.queued_requests()):
        return "earlier requests to leave it are not answered yet"
    state = load_state(newest)[0].round_index if newest else 0
    if not next_round or state < min(next_round, rounds):
        return "its newest state is older than its last recorded round"
    if next_round == rounds:
        return "its last round is played, and its end is not recorded yet"
    return ""
