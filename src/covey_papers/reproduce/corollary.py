"""Corollary 5 of IFCA-MIR in numbers: how near to its optimum a model is, and after how long.

    T_hat = 8 L / (p lambda) log(2 Delta / epsilon)
    epsilon <= sigma s L log(n B) / (p^(5/2) lambda^2 delta sqrt(n B))
             + eta^2 L^2 s log(n B) / (p^2 lambda^4 delta Delta^4 B) + O~(1 / (B sqrt(n)))

with probability 1 - delta. The third term has a constant that is not printed: the first two
are computed, so that the bound on epsilon is this or more.

References:
    Jung, Biswas, Palamidessi, IFCA-MIR, 2025, section 4.4, Corollary 5.
"""

import math
from dataclasses import dataclass

import numpy as np

from covey import Streams
from covey_papers.reproduce.mixtures import MixtureSetting

FAILURE = 0.05
"""delta of what is shown."""
NEAR = 100
"""T_hat is shown for an epsilon of Delta over this."""


@dataclass(frozen=True, slots=True)
class Constants:
    """What the corollary is about.

    Attributes:
        clients: n.
        examples: B, of each client.
        clusters: s.
        share: p, the smallest cluster's share of the clients.
        smallest: lambda.
        largest: L.
        apart: Delta, the least distance between two optima.
        gradient_variance: sigma^2.
        loss_variance: eta^2.
    """

    clients: int
    examples: int
    clusters: int
    share: float
    smallest: float
    largest: float
    apart: float
    gradient_variance: float
    loss_variance: float

    def rounds(self, epsilon: float) -> float:
        """Return T_hat; 0 where epsilon is 2 Delta, or more."""
        rate = 8 * self.largest / (self.share * self.smallest)
        return rate * max(math.log(2 * self.apart / epsilon), 0.0)

    def epsilon(self, delta: float) -> float:
        """Return the first two terms of the bound on epsilon."""
        n, b, s, p = self.clients, self.examples, self.clusters, self.share
        log, sigma = math.log(n * b), math.sqrt(self.gradient_variance)
        of_gradients = sigma * s * self.largest * log
        of_gradients /= p**2.5 * self.smallest**2 * delta * math.sqrt(n * b)
        of_losses = self.loss_variance * self.largest**2 * s * log
        of_losses /= p**2 * self.smallest**4 * delta * self.apart**4 * b
        return of_gradients + of_losses


def constants_of(setting: MixtureSetting) -> Constants:
    """Return the constants of a mixture of linear regressions.

    No variance is bounded for every theta, as Assumptions 2 and 3 ask: here they are the
    largest ones at the optima. With d = theta*_i - theta*_j, H the Hessian and
    v = noise^2 + d' H d, f has variance v^2 / 2 and its gradient v tr H + |H d|^2.
    """
    mixture, s = setting.mixture, len(setting.shares)
    optima, spectrum = mixture.optima(s, Streams(0)), mixture.spectrum
    off = optima[:, None] - optima
    v = mixture.noise**2 + (spectrum * off**2).sum(axis=2)
    of_gradients = v * spectrum.sum() + ((spectrum * off) ** 2).sum(axis=2)
    apart = np.linalg.norm(off, axis=2)[~np.eye(s, dtype=bool)].min()
    return Constants(
        clients=setting.clients,
        examples=setting.examples,
        clusters=s,
        share=min(setting.shares),
        smallest=setting.smallest,
        largest=setting.largest,
        apart=float(apart),
        gradient_variance=float(of_gradients.max()),
        loss_variance=float((v**2 / 2).max()),
    )


def promise(name: str, setting: MixtureSetting) -> str:
    """Say what the corollary promises of a setting, in one sentence or two."""
    constants = constants_of(setting)
    needed, least = constants.rounds(constants.apart / NEAR), constants.epsilon(FAILURE)
    begins = f"Assumption 4 has every model begin within Delta / 2 = {constants.apart / 2:.3g}"
    return (
        f"Corollary 5, {name}: T_hat for an epsilon of Delta / {NEAR} is {needed:,.0f} rounds. "
        f"At delta = {FAILURE:g} the first two terms of its bound on epsilon, with the variances "
        f"at the optima, come to {least:,.1f}, and {begins}"
        f"{': it promises nothing here' if least >= constants.apart / 2 else ''}."
    )
