"""The strongest attack that was run on each final model, and models that diverged."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from covey.base.events import ClientExposed
from covey.base.history import History
from covey.base.names import Handle, round_number
from covey.base.risk import DIVERGED

NOT_FINISHED = "it is measured when a run ends, and this one has not"


def diverged_models(history: History) -> list[dict[str, Any]]:
    """Return each cluster whose model is none now: since which round, and why."""
    return [
        {"cluster": j, "round": each.round_index, "reason": each.reason}
        for j, each in sorted(history.diverged.items())
    ]


def diverged_sentences(history: History) -> list[str]:
    """Return one sentence per cluster whose model is none now, for a person."""
    rounds = history.started.rounds if history.started else None
    return [
        f"the model of cluster {j} diverged (round {round_number(each.round_index, rounds)}): "
        f"{each.reason}"
        for j, each in sorted(history.diverged.items())
    ]


def sits_in_diverged(history: History) -> frozenset[int]:
    """Return the diverged clusters that some client uses."""
    return frozenset(history.diverged.keys() & set(history.assignment.values()))


def reaches_diverged(history: History, client: ClientExposed) -> bool:
    """Say whether a model that is none now was ever reached by a client's examples."""
    return not history.diverged.keys().isdisjoint(_touched_clusters(history, client))


def _touched_clusters(history: History, client: ClientExposed) -> set[int]:
    """Return the clusters whose model a client uses, or its examples ever reached."""
    touched = {client.cluster, *history.trained.get(client.handle, ())}
    return touched | {j for j, reached in history.reached.items() if client.handle in reached}


def why_unknown(history: History, clusters: Collection[int] = ()) -> str:
    """Say why a figure over clients is null: models diverged, or there is no truth.

    `clusters`: those that the figure rests on and that diverged.
    """
    if clusters:
        names = ", ".join(str(j) for j in sorted(clusters))
        plural = "s" if len(clusters) > 1 else ""
        return f"{DIVERGED}: it rests on the model{plural} of cluster{plural} {names}"
    if not history.exposures:
        return NOT_FINISHED
    users = history.clusters_of_clients()
    unknown = [a for a in history.audits if users[a.cluster] and a.true_risk is None]
    reasons = dict.fromkeys(audit.reason for audit in unknown)
    return f"no model in use has a true risk: {'; '.join(reasons) or 'none was audited'}"


LOSS = "loss"
"""The loss threshold of every run's end, by the name that it has in an audit."""


class Attacked(NamedTuple):
    """What an attack achieves on a final model; no figure stands without the name."""

    attack: str
    risk: float
    standard_error: float | None
    tpr_at_1: float | None = None
    worst_client: float | None = None

    def lower_bound(self) -> float:
        """Return what the risk is at least, with 97.5%."""
        return self.risk - 1.96 * (self.standard_error or 0.0)


def strongest(attacks: Iterable[Attacked]) -> Attacked | None:
    """Return the attack that succeeds most often; None: no attack has a figure."""
    return max(attacks, key=lambda each: each.risk, default=None)


def attacks_on(history: History, cluster: int) -> tuple[Attacked, ...]:
    """Return every attack on the model that a cluster ended with; none if it diverged."""
    if cluster in history.diverged:
        return ()
    now = history.finished.model_hash if history.finished else None
    by_loss = [
        Attacked(LOSS, each.true_risk, each.standard_error, each.tpr_at_1, each.worst_client)
        for each in history.audits
        if each.cluster == cluster and each.true_risk is not None
    ]
    others = [
        Attacked(each.attack, each.risk, each.standard_error, each.tpr_at_1, each.worst_client)
        for each in history.attacks
        if each.cluster == cluster and each.model_hash == now and not each.client
    ]
    return (*by_loss, *others)


def attacks_on_client(history: History, handle: Handle) -> tuple[Attacked, ...]:
    """Return what is known of a client's own records, whose weight is its own.

    No attack on a whole cluster says more of them: the bound holds for every attack.
    """
    now = history.finished.model_hash if history.finished else None
    return tuple(
        Attacked(each.attack, each.risk, each.standard_error)
        for each in history.attacks
        if each.client == handle and each.model_hash == now
    )


def final_risk(history: History, client: ClientExposed, by: str | None = None) -> Attacked | None:
    """Return the strongest attack on the model that a client ended with.

    `by`: of all attacks only this one.
    """
    by_loss = [
        Attacked(LOSS, risk, client.standard_error) for risk in (client.risk,) if risk is not None
    ]
    if by == LOSS:
        return strongest(by_loss)
    own = attacks_on_client(history, client.handle)
    return strongest(own or (*by_loss, *attacks_on(history, client.cluster)))


def final_exposure(history: History, client: ClientExposed, by: str | None = None) -> float | None:
    """Return the highest risk of all models that a client's examples ever reached.

    The loss threshold is tried on those who trained a model, every other attack on those
    who use it: the highest of all is taken. None where the former is unknown.
    """
    if by == LOSS:
        return client.exposure
    if own := strongest(attacks_on_client(history, client.handle)):
        return own.risk
    if client.exposure is None:
        return None
    attacks = (each for j in _touched_clusters(history, client) for each in attacks_on(history, j))
    return max([client.exposure, *(each.risk for each in attacks)])


def final_risks(history: History) -> tuple[ClientExposed, ...]:
    """Return what each client ends with, by the strongest attack on each model."""

    def end(client: ClientExposed) -> ClientExposed:
        attack = final_risk(history, client)
        return replace(
            client,
            risk=attack.risk if attack else None,
            standard_error=attack.standard_error if attack else None,
            exposure=final_exposure(history, client),
        )

    return tuple(map(end, history.exposures))
