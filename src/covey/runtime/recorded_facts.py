"""What a proof says of the time before an answer: read from the record, and measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from covey.algorithms import ServerState, divergences
from covey.build import algorithm_of, anonymity_of
from covey.checkpoints import checkpointed_rounds
from covey.data import Client
from covey.ledger import Request
from covey.membership import DIVERGED, no_better_than_guessing, self_estimates
from covey.params import model_hash
from covey.runtime.folder import RunFolder
from covey.runtime.planning import UnlearningPlan
from covey.runtime.session import Session
from covey.runtime.settling import RENDERED
from covey.runtime.updates import stored_rounds
from covey.types import Handle
from covey.unlearning.deniability_probability import representative_probability
from covey.unlearning.influence import influences_on
from covey.unlearning.jointly import ReplayKind
from covey.unlearning.participation import Participation
from covey.unlearning.plan import Option, sizes_left
from covey.unlearning.proof import refutation_success
from covey.unlearning.proof_text import HeldRound, ValueOrReason
from covey.unlearning.served import TOO_FEW, Mark, MeasuredFacts

__all__ = ["ChosenAnswer", "attack_leaver", "divergence", "recorded_facts"]

T = TypeVar("T")

NOT_AT_HAND = "the requester's data were not at hand"


@dataclass(frozen=True, slots=True)
class ChosenAnswer:
    """One request and its answer, before that is carried out.

    Attributes:
        mark: the requester's.
        replayed: how rounds are played again for all answers of the turn; None: none is.
    """

    request: Request
    option: Option
    mark: Mark
    replayed: ReplayKind | None

    @property
    def keeps_sealed_record(self) -> bool:
        """Whether the requester's name and salt will find it again."""
        return self.option.answer != "retrain"


def recorded_facts(
    session: Session, plan: UnlearningPlan, chosen: ChosenAnswer, state: ServerState
) -> MeasuredFacts:
    """Return what is known of an answer before it is carried out.

    Args:
        session: the run, the leaver included.
        plan: of the run, with all who leave with this one among those who left.
        chosen: the answer.
        state: the newest one.
    """
    request, option = chosen.request, chosen.option
    found, handle = plan.participation, request.handle
    terms = anonymity_of(session.run.config)
    held = sizes_left(found, handle)
    sizes = [len(each.members) for each, _ in held]
    leaver, placed = session.client(handle), _placed(state, found, handle)
    attacked, why_not = _attacked(session, leaver, placed)
    return MeasuredFacts(
        asked=request.asked_at,
        subject=chosen.mark.subject,
        answer=option.answer,
        model_before=model_hash(placed.clusters),
        rounds=tuple(
            HeldRound(
                each.round_index,
                each.cluster,
                left,
                _known(each.diameter, "the partition tells no distances"),
            )
            for each, left in held
        ),
        deniability_threshold=terms.deniability_threshold if terms else None,
        min_anonymity=terms.min_anonymity if terms else None,
        max_distance=(terms.max_distance or None) if terms else None,
        first_round=found.first_round(handle),
        first_affected_round=option.first_affected_round,
        first_replayed_round=option.first_replayed_round,
        rounds_replayed=option.rounds_replayed,
        representative_probability=_known(
            representative_probability(sizes) if terms else None,
            "updates were not hidden in anonymity sets: every one of them was used",
        ),
        refutation=_refutation(session, [each.diameter for each, _ in held]),
        touched=tuple(influences_on(plan.events, handle)),
        secrets=session.secrets.source,
        raw_updates_deleted=_known(
            True if stored_rounds(session.folder.updates) else None,
            "this run stored no raw updates, so there were none to delete",
        ),
        superseded_deleted=_superseded_counts(session.folder, option),
        basis=request.basis,
        replayed=chosen.replayed,
        sealed_record_kept=chosen.keeps_sealed_record,
        measured_before=attacked,
        unmeasured=why_not,
    )


def _placed(state: ServerState, found: Participation, handle: Handle) -> ServerState:
    """Return the state with a returning client in the cluster that it trained last."""
    trained = found.trained.get(handle)
    if handle in state.assignment or not trained:
        return state
    return state.with_choices({handle: trained[max(trained)]})


def _attacked(
    session: Session, leaver: Client | None, state: ServerState
) -> tuple[Mapping[str, float] | None, str]:
    """Return how well the model gives the leaver away, or why that is not known."""
    if leaver is None or not len(leaver.train):
        return None, NOT_AT_HAND
    if diverged := divergence(session, leaver, state):
        return None, f"before the answer the model {diverged}"
    return attack_leaver(session, leaver, state), TOO_FEW


def _refutation(
    session: Session, diameters: Sequence[float | None]
) -> ValueOrReason[float]:
    """Say how well the holder of two candidates' updates tells which one was used."""
    terms = anonymity_of(session.run.config)
    known = [d for d in diameters if d is not None]
    if terms is None or not diameters:
        return ValueOrReason(None, "no anonymity set held the requester")
    if terms.noise == 0:
        return ValueOrReason(1.0)
    if terms.noise is None or len(known) < len(diameters):
        return ValueOrReason(None, "how far the noise reaches is not recorded")
    return ValueOrReason(refutation_success(max(known), terms.noise))


def _known(value: T | None, reason: str) -> ValueOrReason[T]:
    return ValueOrReason(value, reason if value is None else "")


def _superseded_counts(folder: RunFolder, option: Option) -> dict[str, int]:
    first = option.first_replayed_round
    counts = {
        "of report, figures, metrics, audit and baseline": sum(
            (folder.path / name).exists() for name in RENDERED
        )
    }
    if first is None:
        return counts
    from_ = 0 if option.answer == "subtract" else first
    states = [t for t in checkpointed_rounds(folder.checkpoints) if t >= from_]
    updates = [t for t in stored_rounds(folder.updates) if t >= first]
    counts |= {"states": len(states)}
    return (
        counts if option.answer == "calibrate" else counts | {"updates": len(updates)}
    )


def divergence(session: Session, leaver: Client, state: ServerState) -> str:
    """Say why the model that the leaver uses is none, and attacks on it tell nothing."""
    j = state.assignment.get(leaver.handle, 0)
    reason = divergences(state).get(j, "")
    solved = algorithm_of(session.run.config).subtracts  # no training could diverge
    if not reason and state.round_index and not solved:
        users = [c for c in session.run.population.clients if _uses(state, c, j)]
        engine, model = session.run.engine, state.clusters[j]
        reason = no_better_than_guessing(engine, model, users or [leaver])
    return f"{DIVERGED}: {reason}" if reason else ""


def _uses(state: ServerState, client: Client, cluster: int) -> bool:
    return state.assignment.get(client.handle) == cluster


def attack_leaver(
    session: Session, leaver: Client, state: ServerState
) -> dict[str, float] | None:
    """Attack the leaver's own records with its holdout, under the model it uses."""
    j = state.assignment.get(leaver.handle, 0)
    streams = session.run.streams.at("leaving", state.round_index)
    models, engine = (state.clusters[j],), session.run.engine
    figure = self_estimates(engine, models, (leaver,), streams)[leaver.handle][0]
    if figure is None:
        return None
    half = 1.96 * figure.standard_error
    return {
        "cluster": float(j),
        "mia_accuracy": figure.risk,
        "low": figure.risk - half,
        "high": figure.risk + half,
    }
