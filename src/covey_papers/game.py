"""The participation game on a finished run: can an adversary see who took part?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from covey import Config, Engine, Examples, History, Params, Run, RunError, ScoringJob, Streams
from covey.base.events import CohortSampled
from covey.data.examples import Client
from covey.membership.truth import blind_risk, has_finite_examples, mismatch
from covey.runs.session import Session, no_op, rounds_of
from covey.runs.states import kept_state
from covey.settings.aggregation import anonymity_of
from covey.settings.run import BuiltRun
from covey_papers.participation import (
    MIN_RESERVED,
    GameOutcome,
    client_scores,
    participation_game,
    reserved_clients,
)

MAX_CONTROL_CLIENTS = 5
"""Participants that the control run does without."""

VIEW = (
    "The adversary, in a simulation, holds all examples of a client and every final "
    "cluster model, and says whether the client took part. Reserved clients are made of "
    "matched non-members. Intervals (95%) are over clients. A figure near 0.5 says that "
    "this adversary finds nothing, not that nothing is there."
)
NO_CLIENT_LEFT = "no client has left this run"
NO_MATCH = "no reserved client is of a group that somebody left"

ByGroup = dict[int, list[Examples]]


@dataclass(frozen=True, slots=True)
class ControlRun:
    """A few participants, judged again in a run that never met them.

    Attributes:
        auc, low, high: under the models of that run: near 0.5, or the reserved clients
            are not like real ones.
        audited: of the same clients under the audited run's models.
    """

    auc: float
    low: float
    high: float
    clients: int
    audited: GameOutcome


@dataclass(frozen=True, slots=True)
class Game:
    """What the adversary achieves, with 95% intervals over clients.

    Attributes:
        participants, reserved: how many clients are compared; participants of a group
            that has too few reserved clients are not.
        left: those who took part once and were answered: the run may still show it.
        left_reason: "" where there is a figure.
        control: None: it was not played.
        view: what the adversary sees, in words.
    """

    auc: float
    low: float
    high: float
    participants: int
    reserved: int
    left: GameOutcome | None
    left_reason: str
    control: ControlRun | None
    view: str = VIEW


@dataclass(frozen=True, slots=True, eq=False)
class _Comparison:
    """What every question of the game needs."""

    engine: Engine
    reserved: ByGroup
    streams: Streams

    def against(self, clients: Sequence[Client]) -> int:
        """Count the reserved clients that these are compared with."""
        groups = {client.group for client in clients}
        return sum(len(sets) for group, sets in self.reserved.items() if group in groups)

    def outcome(
        self, models: Sequence[Params], clients: Sequence[Client], name: str
    ) -> GameOutcome | None:
        """Ask about these clients; None: their groups have no reserved clients."""
        inside: ByGroup = {}
        for client in clients:
            if client.group is not None and client.group in self.reserved:
                inside.setdefault(client.group, []).append(client.train)
        if not inside:
            return None
        others = {group: self.reserved[group] for group in inside}
        return participation_game(
            _scores(self.engine, models, inside),
            _scores(self.engine, models, others),
            self.streams.at(name),
        )


def play_game(
    run: Run, *, control: bool = False, observe: Callable[[History], None] = no_op
) -> Game:
    """Ask about every client of a finished run, against clients that never took part.

    Args:
        run: simulated here.
        control: play the run once more, in a temporary folder, without up to 5 randomly
            drawn participants.
        observe: called after every round of the control.

    Raises:
        CoveyError: the run is not finished, or no reserved clients like the real ones can be
            made.
    """
    with run.open_finished("covey_papers.play_game(...)", "The game") as session:
        return game_of(session, control=control, observe=observe)


def game_of(
    session: Session, *, control: bool = False, observe: Callable[[History], None] = no_op
) -> Game:
    """Play the game on a finished run that is open to be read."""
    run, record = session.run, session.record
    _check_alike(run.config)
    all_clients = session.whole.population.clients
    models = _models_of(session)
    sampled = (event for _, event in record.events if isinstance(event, CohortSampled))
    took_part = {handle for event in sampled for handle in event.handles}
    streams = run.streams.at("participation game")
    reserved = _reserved(run, all_clients, streams.at("reserved"))
    comparison = _Comparison(run.engine, reserved, streams)
    participants = [
        client
        for client in run.population.clients
        if client.handle in took_part and client.group in reserved and has_finite_examples(client)
    ]
    met = comparison.outcome(models, participants, "participants")
    if met is None:
        raise RunError(_too_few(run, all_clients))
    if gone := record.history.diverged:
        j, why = next(iter(sorted(gone.items())))
        raise RunError(
            f"Models must have learnt, but that of cluster {j} {why.reason}: play on another run."
        )
    blind = blind_risk(participants, run.reference, streams)
    if refused := mismatch(participants, run.reference, blind):
        raise RunError(f"The game is {refused}: play it on another population.")
    stay = {client.name for client in run.population.clients}
    gone = [client for client in all_clients if client.name not in stay]
    left = comparison.outcome(models, gone, "left")
    excluded = _control_clients(run, participants, streams) if control else []
    rounds = rounds_of(run.config, record.history)
    return Game(
        auc=met.auc,
        low=met.low,
        high=met.high,
        participants=met.clients,
        reserved=comparison.against(participants),
        left=left,
        left_reason="" if left else NO_MATCH if gone else NO_CLIENT_LEFT,
        control=_control(run, rounds, comparison, models, excluded, observe) if excluded else None,
    )


def _reserved(
    run: BuiltRun, clients: Sequence[Client], streams: Streams
) -> dict[int, list[Examples]]:
    """Make reserved clients: each with one shift for all its images, where real ones have one."""
    by_group, unshifted = run.reference.by_group, run.population.unshifted
    draws = streams.at("shift").generator()

    def held(group: int, own: Int[Tensor, " images"]) -> Examples:
        if unshifted is None or run.config.population.shift_per == "image":
            return by_group[group].take(own)
        images, shift = unshifted.take(own), run.population.groups[group].shift
        return Examples(shift.shifted(images.inputs, draws, alike=True), images.labels)

    return reserved_clients(clients, len(by_group[0]) if by_group else 0, held, streams)


def _models_of(session: Session) -> Sequence[Params]:
    return kept_state(session.folder, session.ledger).clusters


def _scores(engine: Engine, models: Sequence[Params], players: ByGroup) -> dict[int, ndarray]:
    """Return a score per client, group by group: each client takes its best model."""

    def of(sets: list[Examples]) -> ndarray:
        everything = Examples.joined(sets)
        jobs = [ScoringJob(params, everything) for params in models]
        losses = [scored.losses.double().cpu().numpy() for scored in engine.score(jobs)]
        return client_scores(np.stack(losses), [len(examples) for examples in sets])

    return {group: of(sets) for group, sets in players.items()}


def _control_clients(
    run: BuiltRun, participants: Sequence[Client], streams: Streams
) -> list[Client]:
    """Draw whom the control never meets: few enough that it is still the same run."""
    count = min(MAX_CONTROL_CLIENTS, max(1, len(participants) // 4))
    stay = len(run.population.clients) - count
    terms = anonymity_of(run.config)
    least = terms.min_anonymity if terms else 1
    if stay < least:
        raise RunError(
            f"--control must leave {least} clients of the run, found {stay}: leave it out."
        )
    order = streams.at("asked").generator().permutation(len(participants))
    return [participants[place] for place in sorted(order[:count])]


def _control(
    run: BuiltRun,
    rounds: int,
    comparison: _Comparison,
    models: Sequence[Params],
    clients: Sequence[Client],
    observe: Callable[[History], None],
) -> ControlRun:
    """Play the run as if it had never met these clients, and ask about them under both."""
    # nothing of it may outlive its folder or reach the run's own database, no client leaves it
    # half-way, and it has as many rounds as the run came to
    settings = run.config.model_dump()
    settings["rounds"], settings["stopping"], settings["leaving"] = rounds, {}, {}
    settings["secrets"]["source"] = "seeded"
    settings["ledger"]["url"], settings["tracking"] = "", []
    settings["checkpoints"] = {"every": rounds, "keep": "thin"}
    names = {client.name for client in clients}
    rest = tuple(c for c in run.population.clients if c.name not in names)
    without = replace(run, config=Config.of(settings)).with_clients(rest)
    with TemporaryDirectory(prefix="covey-control-") as place:
        played = Run.begin(Path(place) / "run", without).resume(observe)
        with played.open_finished("resume()", "The control") as session:
            without_them = _models_of(session)
        never_met = comparison.outcome(without_them, clients, "control")
    met = comparison.outcome(models, clients, "asked")
    assert never_met is not None  # noqa: S101 - all of them have reserved clients
    assert met is not None  # noqa: S101 - the same
    return ControlRun(never_met.auc, never_met.low, never_met.high, met.clients, met)


def _check_alike(config: Config) -> None:
    """Refuse settings under which non-members cannot pass for clients."""
    if config.audit.non_members != "matched":
        raise RunError(
            f"The game needs audit.non_members = 'matched', reserved clients like the real ones, "
            f"found {config.audit.non_members!r}: play it on another run."
        )


def _too_few(run: BuiltRun, clients: Sequence[Client]) -> str:
    """Say what is missing, in the words of the settings."""
    if not run.reference.by_group:
        return (
            "The game needs non-members to make reserved clients of, found clients with data of "
            "their own, which none match: play it on a simulated population."
        )
    groups = {c.group for c in clients}
    least = len(groups) * MIN_RESERVED * max(len(c.train) for c in clients)
    return (
        f"The game needs {MIN_RESERVED} reserved clients or more in a group with participants, "
        f"each as large as a real one, so up to {least:,} non-members, found "
        f"{len(run.reference.by_group[0]):,}: raise population.audit_examples, and run again."
    )
