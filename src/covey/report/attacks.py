"""The strongest attack that was run on each final model: what violations follow."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from covey.events import ClientExposed
from covey.history import History
from covey.report.divergence import touched_clusters
from covey.types import Handle

__all__ = [
    "LOSS",
    "Attacked",
    "attacks_on",
    "attacks_on_client",
    "final_exposure",
    "final_risk",
    "final_risks",
    "strongest",
]

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
        Attacked(
            LOSS,
            each.true_risk,
            each.standard_error,
            each.tpr_at_1,
            each.worst_client,
        )
        for each in history.audits
        if each.cluster == cluster and each.true_risk is not None
    ]
    others = [
        Attacked(
            each.attack,
            each.risk,
            each.standard_error,
            each.tpr_at_1,
            each.worst_client,
        )
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


def final_risk(
    history: History, client: ClientExposed, by: str | None = None
) -> Attacked | None:
    """Return the strongest attack on the model that a client ended with.

    `by`: of all attacks only this one.
    """
    own = () if by == LOSS else attacks_on_client(history, client.handle)
    if own:
        return strongest(own)
    by_loss = [
        Attacked(LOSS, risk, client.standard_error)
        for risk in (client.risk,)
        if risk is not None
    ]
    others = () if by == LOSS else attacks_on(history, client.cluster)
    return strongest((*by_loss, *others))


def final_exposure(
    history: History, client: ClientExposed, by: str | None = None
) -> float | None:
    """Return the highest risk of all models that a client's examples ever reached.

    The loss threshold is tried on whoever trained a model, every other attack on those
    who use it: the highest of all is taken. None where the former is unknown.
    """
    if by != LOSS and (own := strongest(attacks_on_client(history, client.handle))):
        return own.risk
    if client.exposure is None or by == LOSS:
        return client.exposure
    clusters = touched_clusters(history, client)
    found = (strongest(attacks_on(history, j)) for j in sorted(clusters))
    return max([client.exposure, *(each.risk for each in found if each is not None)])


def final_risks(history: History) -> tuple[ClientExposed, ...]:
    """Return what each client ends with, by the strongest attack on each model."""

    def end(client: ClientExposed) -> ClientExposed:
        found = final_risk(history, client)
        return replace(
            client,
            risk=found and found.risk,
            standard_error=found and found.standard_error,
            exposure=final_exposure(history, client),
        )

    return tuple(map(end, history.exposures))
