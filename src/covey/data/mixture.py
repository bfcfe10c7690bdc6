"""A mixture of linear regressions: groups of clients whose best models are known.

References:
    Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
    Learning, 2020, section 6.1: x ~ N(0, I_d), y = <x, theta*_j> + noise.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64
from numpy import ndarray

from covey.base.names import ClientName
from covey.base.rng import Streams
from covey.data.examples import Client, Examples, Preference
from covey.data.population import Group, Population, PopulationSpec, draw_groups, handle_of, reserve

TEST_EXAMPLES = 1_000
"""Unseen examples per group."""


@dataclass(frozen=True, slots=True)
class MixtureSpec:
    """What the examples of all groups are drawn from.

    x ~ N(0, diag(spectrum)),   y = <x, theta*_j> + N(0, noise^2)

    Attributes:
        dimension: d, of x.
        noise: standard deviation of what no model can know.
        separation: R, the norm of every theta*_j.
        condition: L / lambda, of the largest variance of x along an axis, 1, to the
            smallest; 1 is the paper's N(0, I).
    """

    dimension: int
    noise: float
    separation: float
    condition: float = 1.0

    @property
    def spectrum(self) -> Float64[ndarray, " dimension"]:
        """The variances of x, from 1 down to 1 / condition by equal factors.

        They are the eigenvalues of the Hessian of every group's mean loss, under
        f = (y - <x, theta>)^2 / 2.
        """
        return np.geomspace(1.0, 1 / self.condition, self.dimension)

    def optima(self, num_groups: int, streams: Streams) -> Float64[ndarray, "groups dimension"]:
        """Return theta*_j of every group j, a function of the run's streams alone.

        Random directions of length R, orthogonal as far as there are dimensions: any two
        of up to d groups are Delta = sqrt(2) R apart.
        """
        generator = streams.at("optima").generator()
        drawn = generator.normal(size=(num_groups, self.dimension))
        if num_groups <= self.dimension:
            drawn = np.linalg.qr(drawn.T)[0].T
        return self.separation * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def draw(
        self, count: int, optimum: Float64[ndarray, " dimension"], generator: np.random.Generator
    ) -> Examples:
        """Return so many examples of a group with this theta*."""
        x = generator.normal(size=(count, self.dimension)) * np.sqrt(self.spectrum)
        y = x @ optimum + generator.normal(0.0, self.noise, count)
        return Examples(torch.from_numpy(x).float(), torch.from_numpy(y).float())


def mixture_population(
    mixture: MixtureSpec,
    spec: PopulationSpec,
    streams: Streams,
    preference: Callable[[ClientName], Preference],
) -> Population:
    """Draw every client's examples; each client and each group from its own stream.

    What the spec says of shifts is not looked at, and the server holds no pool.
    """
    group_of = draw_groups(spec, streams.at("groups").generator())
    optima = mixture.optima(len(spec.groups), streams)

    def drawn(count: int, group: int, *names: str) -> Examples:
        return mixture.draw(count, optima[group], streams.at(*names).generator())

    def client(index: int) -> Client:
        name, group = f"client-{index:05}", group_of[index]
        examples = drawn(spec.groups[group].examples_per_client, group, "mixture", name)
        parts = reserve(name, examples, spec.holdout)
        return Client(name, handle_of(name, streams), group, *parts, preference(name))

    def each_group(count: int, what: str) -> tuple[Examples, ...]:
        return tuple(
            drawn(count, index, what, group.name) for index, group in enumerate(spec.groups)
        )

    everybody = tuple(client(index) for index in range(spec.clients))
    return Population(
        clients=everybody,
        num_classes=1,
        groups=tuple(Group(group.name, group.shift) for group in spec.groups),
        test=each_group(TEST_EXAMPLES, "test"),
        non_members=each_group(spec.audit_examples, "non-members"),
        pool=everybody[0].train.first(0),
    )
