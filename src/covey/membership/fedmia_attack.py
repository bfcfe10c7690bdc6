"""FedMIA: what a server sees of each client, with the other clients as references.

References:
    Zhu, Liu, Gong, Xu, Li, Fan, FedMIA: An Effective Membership Inference Attack
    Exploiting the "All for One" Principle in Federated Learning, CVPR 2025.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from covey.errors import ConfigError

__all__ = ["fedmia"]

MIN_OTHERS = 2
SMALLEST = 1e-6


def fedmia(
    signals: Float[ndarray, "rounds clients records"],
    suspects: Int[ndarray, " records"],
) -> Float[ndarray, " records"]:
    """Return how far the suspect's update stands out from the others', in [0, 1].

    mean_t Phi((s_t,k(x) - mu_t(x)) / sigma_t(x)), mu and sigma over all clients but k

    Whoever did not train on x is an OUT model, and comes for free.

    Args:
        signals: s, what client k's model of round t says of x; higher is more
            member-like: minus the loss, or the cosine of x's gradient and the update.
        suspects: k, the client that is suspected of holding x.

    Raises:
        ConfigError: there are fewer than two other clients.
    """
    from scipy.special import ndtr

    _, clients, records = signals.shape
    if clients <= MIN_OTHERS:
        raise ConfigError(
            f"FedMIA compares a client with at least {MIN_OTHERS} others of its "
            f"cluster, found {clients} clients in all. Leave this attack out."
        )
    others = np.arange(clients)[:, None] != suspects
    mu = signals.mean(axis=1, where=others)
    sigma = np.maximum(signals.std(axis=1, where=others), SMALLEST)
    own = signals[:, suspects, np.arange(records)]
    return ndtr(np.float64((own - mu) / sigma)).mean(axis=0)
