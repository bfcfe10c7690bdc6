"""`covey forget`, `covey explain`, `covey join` and `covey update`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.base.errors import ConfigError, LedgerLocked, RunError
from covey.base.names import BASES, Basis
from covey.cli.answer import HIDDEN, INLINE, OPTIONAL, Answer, JsonOption, brief, short, tabled
from covey.cli.app import app, errors, stoppable
from covey.cli.progress import shown
from covey.unlearning.plan import AFTERWARDS, ANSWERS, check_basis

if TYPE_CHECKING:
    from covey.runtime.answers import AnsweredRequest
    from covey.runtime.changing import ChangedRecords
    from covey.runtime.folder import RunFolder
    from covey.runtime.leaving import ForgetResult
    from covey.runtime.planning import AnswerCost, ClientPlan
    from covey.runtime.receipts import Receipt
    from covey.runtime.requests import Returning
    from covey.runtime.secrets import Handover
    from covey.unlearning.plan import AnswerKind, Option


NOTHING = "nothing"

NOT_DENIED = (
    "A denial removes nothing from the model: it says only that nobody can tell the "
    "client's updates from those of others by the record of the run."
)


@dataclass(frozen=True, slots=True)
class OptionPlanned:
    """One possible answer and its cost.

    Attributes:
        possible: whether it can be given.
        afterwards: what would be true then.
    """

    option: Option = field(metadata=INLINE)
    possible: bool
    cost: AnswerCost = field(metadata=INLINE)
    afterwards: str

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of a table."""
        return (
            self.option.answer,
            "yes" if self.possible else "no",
            str(self.option.rounds_replayed),
            short(self.cost.seconds),
            f"{self.cost.bytes_deleted:,}",
            self.afterwards if self.possible else self.option.reason,
        )


@dataclass(frozen=True, slots=True)
class ClientPlanned:
    """How one client could leave.

    Attributes:
        answer: that would be given; None: `reason` says why none.
    """

    client: str
    answer: AnswerKind | None
    reason: str
    basis: Basis
    options: Sequence[OptionPlanned]

    @classmethod
    def of(cls, plan: ClientPlan) -> ClientPlanned:
        """Return a plan with what each answer would mean."""
        options = [
            OptionPlanned(option, option.possible, cost, AFTERWARDS[option.answer])
            for option, cost in plan.options
        ]
        chosen = plan.chosen.answer if plan.chosen else None
        return cls(plan.client, chosen, plan.reason, plan.basis, options)

    @property
    def text(self) -> str:
        """The answer that would be given, and a row per answer."""
        heads = ("answer", "possible", "rounds to replay", "seconds", "bytes deleted", "then")
        table = tabled(heads, (each.row for each in self.options))
        return f"{self.client}: {self.answer or self.reason}\n{table}"


@dataclass(frozen=True, slots=True)
class SharedReplay:
    """The one replay that all these answers share."""

    first_replayed_round: int | None
    rounds_replayed: int


@dataclass(frozen=True, slots=True)
class ForgetPlans(Answer):
    """What would be answered; nothing was done."""

    run: Path
    plans: Sequence[ClientPlanned]
    together: SharedReplay

    @classmethod
    def of(cls, run: Path, plans: Sequence[ClientPlan]) -> ForgetPlans:
        """Return plans of clients that leave together."""
        first = next((each.chosen for each in plans if each.chosen and _replays(each)), None)
        replay = (first.first_replayed_round, first.rounds_replayed) if first else (None, 0)
        return cls(run, list(map(ClientPlanned.of, plans)), SharedReplay(*replay))

    def lines(self) -> Iterator[str]:
        """Yield every answer of every client."""
        yield "\n\n".join(each.text for each in self.plans)
        if len(self.plans) > 1 and self.together.rounds_replayed:
            yield f"\nOne replay of {self.together.rounds_replayed} rounds serves all of them."


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """A request that waits for the process that plays the run.

    Attributes:
        answer: `pending`.
    """

    client: str
    answer: str = "pending"


@dataclass(frozen=True, slots=True)
class Queued(Answer):
    """Requests that were put down, where another process plays the run."""

    run: Path
    answers: Sequence[PendingAnswer]
    proofs: Path = field(metadata=HIDDEN)

    def lines(self) -> Iterator[str]:
        """Yield who is answered when."""
        yield (
            f"{', '.join(each.client for each in self.answers)}: put down. It is answered "
            f"between two rounds by whoever plays the run, now or with `covey resume "
            f"{self.run}`; see {self.proofs}."
        )


@dataclass(frozen=True, slots=True)
class ClientAnswered:
    """One client's answer.

    Attributes:
        first_affected_round: that the answer takes back.
        first_replayed_round: where the run was taken up again; None: nowhere.
        model_hash: SHA-256 of all models, after it.
        proof: the signed proof's file.
        salt: for the requester; it is told once.
        copies: what had been written out of the run, and what became of it.
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
    proof: Path
    salt: str
    copies: Sequence[Mapping[str, Any]]
    basis: Basis
    sealed_record_kept: bool
    request: str
    receipt: Path | None

    @classmethod
    def of(cls, done: ForgetResult) -> ClientAnswered:
        """Return what came of a request."""
        answered, option = done.answered, done.answered.option
        return cls(
            client=done.client,
            answer=option.answer,
            first_affected_round=option.first_affected_round,
            first_replayed_round=option.first_replayed_round,
            rounds_replayed=option.rounds_replayed,
            seconds=round(done.seconds, 3),
            model_changed=answered.model_changed,
            model_hash=answered.model_hash,
            proof=answered.proof,
            salt=answered.salt,
            copies=[each.describe() for each in answered.copies],
            basis=answered.basis,
            sealed_record_kept=answered.sealed_record_kept,
            request=answered.request,
            receipt=done.receipt.path if done.receipt else None,
        )

    def lines(self, run: Path) -> Iterator[str]:
        """Yield the answer, and what is still to be done."""
        from covey.runtime.copies import outcome_lines

        changed = "changed" if self.model_changed else "unchanged"
        if self.answer == "deny":
            changed += ": nothing was removed from it"
        back = "; with it a stronger answer can be asked for later, see docs/leaving.md"
        yield (
            f"{self.client}: {self.answer}, {self.rounds_replayed} rounds played again in "
            f"{self.seconds:.1f} s, the model is {changed}"
        )
        yield f"proof: {self.proof}"
        yield f"receipt: {self.receipt}"
        yield f"salt for the requester: {self.salt}{back if self.sealed_record_kept else ''}"
        yield (
            f"kept sealed until you say that it arrived: covey forget {run} --received "
            f"{self.request}"
        )
        yield from outcome_lines(self.copies)


@dataclass(frozen=True, slots=True)
class Forgotten(Answer):
    """Clients that left.

    Attributes:
        budget: how many more can be denied; None: `budget_reason` says why.
    """

    run: Path
    answers: Sequence[ClientAnswered]
    budget: Mapping[str, Any] | None
    budget_reason: str

    def lines(self) -> Iterator[str]:
        """Yield each answer."""
        for each in self.answers:
            yield from each.lines(self.run)


@dataclass(frozen=True, slots=True)
class Unacknowledged(Answer):
    """The salts that are still kept for requesters."""

    run: Path
    unacknowledged: Sequence[Handover]

    def lines(self) -> Iterator[str]:
        """Yield a line per salt."""
        for each in self.unacknowledged:
            yield (
                f"request {each.request}: {each.answer or 'not answered yet'}, "
                f"{each.proof or 'no proof yet'}, salt for the requester: {each.salt}"
            )
        if not self.unacknowledged:
            yield "Every salt was acknowledged."


def _chosen_in_dialogue(plans: Sequence[ClientPlan]) -> str | None:
    """Ask which answer it shall be, the same for all; None: nothing shall be done."""
    possible = [
        name
        for name in ANSWERS
        if all(
            option.possible for each in plans for option, _ in each.options if option.answer == name
        )
    ]
    automatic = ["auto"] if all(each.chosen for each in plans) else []
    offered = [*possible, *automatic, NOTHING]
    print(
        f"\nOnly a retraining takes a client out of the model from its first round on. "
        f"{NOT_DENIED}\n"
    )
    answer = ""
    while answer not in offered:
        answer = typer.prompt(f"Which answer ({', '.join(offered)})", default=NOTHING)
    if answer == NOTHING:
        return None
    answers = {
        each.client: each.chosen.answer if answer == "auto" and each.chosen else answer
        for each in plans
    }
    all_answers = ", ".join(f"{client}: {one}" for client, one in answers.items())
    denied = f" {NOT_DENIED}" if "deny" in answers.values() else ""
    gone = "" if {*answers.values()} == {"stop"} else " The name goes from the run."
    question = f"{all_answers}.{denied}{gone} Go ahead?"
    return answer if typer.confirm(question) else None


RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.")]


@app.command("forget")
def leave(
    run: RunArgument,
    clients: Annotated[list[str] | None, typer.Argument(help="Names of clients.")] = None,
    answer: Annotated[
        str | None, typer.Option(help="auto (the cheapest honest one), " + ", ".join(ANSWERS))
    ] = None,
    basis: Annotated[
        str | None,
        typer.Option(
            help=f"What it rests on: {', '.join(BASES)}. Erasure and objection are never denied."
        ),
    ] = None,
    salt: Annotated[
        str | None, typer.Option(help="Of a client that left and asks for a stronger answer.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show every answer and its cost; do nothing.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Show the salts that nobody acknowledged.")
    ] = False,
    received: Annotated[
        list[str] | None,
        typer.Option(metavar="REQUEST", help="Its requester has the salt: delete it."),
    ] = None,
    as_json: JsonOption = False,
) -> Iterator[Forgotten | Queued | ForgetPlans | Unacknowledged]:
    """Answer clients that ask to leave a run, and prove what was answered."""
    from covey.runs.parts import wanted_answer
    from covey.runtime.folder import RunFolder
    from covey.runtime.inputs import FederationMetadata, rebuilt_run
    from covey.runtime.leaving import enqueue_requests
    from covey.runtime.requests import Returning

    if again or received:
        held = covey.load(run)
        for each in received or ():
            held.acknowledge(each)
        yield Unacknowledged(run, held.unacknowledged)
        return
    names = list(dict.fromkeys(clients or ()))
    if not names:
        raise ConfigError(
            "Somebody has to leave, but no client is named. Name one, or look at the salts "
            "of earlier requests with --again."
        )
    wanted, known_basis = wanted_answer(answer or "auto", basis)
    check_basis(wanted, known_basis)
    if salt is not None and len(names) != 1:
        raise ConfigError(
            f"--salt is of one client that comes back, found {len(names)} names. Ask "
            f"for each of them alone."
        )
    who: list[str | Returning] = [*names] if salt is None else [Returning(names[0], salt)]
    folder = RunFolder.existing(run)
    held = covey.load(run)
    if plan:
        yield ForgetPlans.of(run, held.plan(who, wanted, known_basis))
        return
    is_open = answer is None and basis is None
    if is_open and (as_json or not (sys.stdin.isatty() and sys.stdout.isatty())):
        raise ConfigError(
            "A client is answered once it is said what is asked for, but neither "
            "--answer nor --basis is given, and there is no terminal to ask on. Give "
            f"--basis ({', '.join(BASES)}) or --answer (auto, {', '.join(ANSWERS)}); "
            "--plan shows every answer and does nothing."
        )
    try:  # all are known, before anybody leaves
        plans = held.plan(who, wanted, known_basis)
    except LedgerLocked:
        # no request could be queued for an erased name, nor one without an answer
        if salt is not None or is_open:
            raise
        plans = None
    if plans is not None and is_open:
        yield ForgetPlans.of(run, plans)
        chosen = _chosen_in_dialogue(plans)
        if chosen is None:
            print("Nothing was done.")
            raise typer.Exit(1)
        wanted = chosen
        plans = held.plan(who, wanted, known_basis)
    if plans is None or (FederationMetadata.of(folder) and any(map(_replays, plans))):
        if salt is None:
            _queue(folder, names, wanted, known_basis)
        else:
            enqueue_requests(rebuilt_run(folder), folder, who, wanted, known_basis)
        yield Queued(run, list(map(PendingAnswer, names)), folder.proofs)
        return
    yield from _forget(held, names, who, wanted, known_basis)


def _queue(folder: RunFolder, names: Sequence[str], wanted: str, basis: Basis) -> None:
    """Queue requests for the process that runs the rounds, now or next."""
    known = covey.load(folder.path).names
    if unknown := [name for name in names if name not in known]:
        raise RunError(f"{folder.path} has no client {unknown[0]!r}. Correct the name.")
    for name in names:
        folder.queue_request(name, wanted, basis)


def _forget(
    run: covey.Run, names: Sequence[str], who: list[str | Returning], wanted: str, basis: Basis
) -> Iterator[Forgotten]:
    from covey.report.summary import budget_of

    with stoppable(run.folder), shown(run.folder.name) as observe:
        signed: list[AnsweredRequest] = []
        try:
            done = run.forget(who, wanted, basis, observe, signed.append, _show_receipt)
        except BaseException:  # what was signed is said, whatever stops the others
            for each in signed:
                errors.print(each.message, soft_wrap=True)
            raise
    # printed before anything else is done: salts exist once
    yield Forgotten(run.folder, list(map(ClientAnswered.of, done)), **budget_of(run.history))
    run.report()
    answered = {each.client for each in done}
    if late := [name for name in names if name not in answered]:
        raise RunError(
            f"Requests from before were answered first, and then {', '.join(late)} could "
            f"not be given this answer any more. Look again with --plan."
        )


def _replays(plan: ClientPlan) -> bool:
    return plan.chosen is not None and plan.chosen.first_replayed_round is not None


def _show_receipt(client: str, receipt: Receipt) -> None:
    """Print what the requester needs before anything is done that could fail."""
    errors.print(
        f"{client}: asked, receipt {receipt.path}, salt for the requester: {receipt.salt}",
        soft_wrap=True,
    )


@dataclass(frozen=True, slots=True)
class Explained(Answer):
    """What is held on one client, and where.

    Attributes:
        page: the page that was written, with `--page`.
    """

    held: Mapping[str, Any] = field(metadata=INLINE)
    page: Path | None = field(default=None, metadata=OPTIONAL)

    def lines(self) -> Iterator[str]:
        """Yield what is held, the places by who has to act, and what was not searched."""
        for key, value in self.held.items():
            if key not in ("places", "not_searched"):
                yield f"{key.replace('_', ' ')}: {brief(value)}"
        heads = {
            "covey deletes it with forget": "covey deletes or replaces when the client leaves",
            "you": "you have to act on",
        }
        for actor, head in heads.items():
            yield f"{head}:"
            places = [each for each in self.held["places"] if each["who_must_act"] == actor]
            for each in places:
                yield f"  {each['path']}\n    {each['what']}. {each['how']}"
            if not places:
                yield "  nothing that was found"
        yield "not searched:"
        yield from (f"  {sentence}" for sentence in self.held["not_searched"])
        if self.page is not None:
            yield str(self.page)


@app.command()
def explain(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="The client's name.")],
    page: Annotated[
        Path | None, typer.Option("--page", help="Write it as an HTML page to print, too.")
    ] = None,
) -> Explained:
    """Show what is held on a client, and where, before anything is erased."""
    from covey.report.page import write_explanation
    from covey.runs.pages import on_record

    held = covey.load(run).explain(client)
    if page is not None:
        with on_record([run], "explanation", page, subject=held["handle"]):
            write_explanation(held, run.name, page)
    return Explained(held, page)


@dataclass(frozen=True, slots=True)
class RecordsChanged(Answer):
    """A client that came, or whose records are others now, where heads are solved.

    Attributes:
        exported: models on record that were solved with what was there before.
    """

    run: Path
    changed: ChangedRecords = field(metadata=INLINE)
    what: str = field(metadata=HIDDEN)

    def lines(self) -> Iterator[str]:
        """Yield what the client has now, and the models."""
        now = self.changed
        yield (
            f"{now.client}: {self.what}, {now.examples} records in cluster {now.cluster}, "
            f"whose sums are now {now.sums_after}"
        )
        yield f"models solved again in {now.seconds:.1f} s: {now.model_hash}"
        for each in now.exported:
            yield f"exported with what was there before: {each}"


DataOption = Annotated[Path, typer.Option(help="Its records: an .npz file with arrays x and y.")]


@app.command()
def join(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="A name that nobody has or had.")],
    data: DataOption,
    threshold: Annotated[
        float | None, typer.Option(help="The risk that it accepts, from 0 to 1.")
    ] = None,
    risk_weight: Annotated[
        float | None, typer.Option(help="How much a risk weighs in its choice, from 0 to 1.")
    ] = None,
) -> Iterator[RecordsChanged]:
    """Let a client join a run whose models are solved from sums over clients."""
    held = covey.load(run)
    with stoppable(run), shown(run.name) as observe:
        done = held.join(client, data, threshold, risk_weight, observe)
    yield from _changed(held, done, "joined")


@app.command()
def update(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="The client's name.")],
    data: DataOption,
    add: Annotated[bool, typer.Option("--add", help="Add to the records that it has.")] = False,
) -> Iterator[RecordsChanged]:
    """Replace a client's records, or add to them, and solve the models again."""
    held = covey.load(run)
    with stoppable(run), shown(run.name) as observe:
        done = held.update(client, data, add=add, observe=observe)
    yield from _changed(held, done, "updated")


def _changed(run: covey.Run, done: ChangedRecords, what: str) -> Iterator[RecordsChanged]:
    yield RecordsChanged(run.folder, replace(done, seconds=round(done.seconds, 3)), what)
    run.report()
