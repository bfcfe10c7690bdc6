"""The strongest attack that was run on each final model, and models that diverged."""

from collections.abc import Collection, Iterable

from covey.base.events import ClientExposed
from covey.base.figure import Figure, RiskEstimate
from covey.base.history import History
from covey.base.names import Handle, round_number
from covey.components.built_ins import LOSS

NOT_FINISHED = "it is measured when a run ends, and this one has not"


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
        return f"diverged: it rests on the model{plural} of cluster{plural} {names}"
    if not history.exposures:
        return NOT_FINISHED
    users = history.clusters_of_clients()
    truths = (each.truth for each in history.audits if users[each.cluster])
    reasons = dict.fromkeys(each.reason for each in truths if not each.is_known)
    return f"no model in use has a true risk: {'; '.join(reasons) or 'none was audited'}"


def strongest(attacks: Iterable[RiskEstimate]) -> RiskEstimate | None:
    """Return the attack that succeeds most often; None: no attack has a figure."""
    return max(attacks, key=lambda each: each.risk, default=None)


def attacks_on(history: History, cluster: int) -> tuple[RiskEstimate, ...]:
    """Return every attack on the model that a cluster ended with; none if it diverged."""
    if cluster in history.diverged:
        return ()
    now = history.finished.model_hash if history.finished else None
    truths = (e.truth for e in history.audits if e.cluster == cluster and e.truth.is_known)
    others = (
        each.estimate
        for each in history.attacks
        if each.cluster == cluster and each.model_hash == now and not each.client
    )
    return (*truths, *others)


def attacks_on_client(history: History, handle: Handle) -> tuple[RiskEstimate, ...]:
    """Return what is known of a client's own records, whose weight is its own.

    No attack on a whole cluster says more of them: the bound holds for every attack.
    """
    now = history.finished.model_hash if history.finished else None
    return tuple(
        each.estimate
        for each in history.attacks
        if each.client == handle and each.model_hash == now
    )


def final_risk(
    history: History, client: ClientExposed, by: str | None = None
) -> RiskEstimate | None:
    """Return the strongest attack on the model that a client ended with.

    `by`: of all attacks only this one.
    """
    of_all = attacks_on(history, client.cluster)
    if by is not None:
        return strongest(each for each in of_all if each.source == by)
    return strongest(attacks_on_client(history, client.handle) or of_all)


def final_exposure(history: History, client: ClientExposed, by: str | None = None) -> Figure:
    """Return the highest risk of all models that a client's examples ever reached.

    The loss threshold is tried on those who trained a model, every other attack on those
    who use it: the highest of all is taken. Unknown where the former is.
    """
    if by == LOSS:
        return client.exposure
    if own := strongest(attacks_on_client(history, client.handle)):
        return own.figure
    if client.exposure.value is None:
        return client.exposure
    attacks = (each for j in _touched_clusters(history, client) for each in attacks_on(history, j))
    return max([client.exposure, *(each.figure for each in attacks)], key=float)
