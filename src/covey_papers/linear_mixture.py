"""The mixture of linear regressions on which IFCA's theory is measured.

Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated Learning, 2020,
section 6.1.
"""

from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float64
from pydantic import Field

from covey import Examples, PopulationRequest, Streams
from covey.base.components import AboveZero, NotNegative, Positive
from covey.data.examples import Client
from covey.data.population import Population, draw_groups, handle_of, reserve
from covey.data.source import DataSource


class LinearMixture(DataSource):
    """A linear regression per group, drawn, for `regression`.

    x ~ N(0, diag(spectrum)),   y = <x, theta*_j> + N(0, noise^2) for group j

    Attributes:
        dimension: d, of the inputs.
        noise: standard deviation of y around `<x, theta*>`.
        separation: R, the norm of every group's theta*, which are orthogonal for up to d
            groups.
        condition: L / lambda, largest over smallest variance of x along an axis; above 1, x
            is N(0, diag) with variances from 1 down; 1 is the paper's N(0, I).
    """

    has_pool: ClassVar[bool] = False
    is_drawn: ClassVar[bool] = True
    test_examples: ClassVar[int] = 1_000
    """Unseen examples per group."""

    dimension: Positive = 10
    noise: NotNegative = 0.5
    separation: AboveZero = 2.0
    condition: Annotated[float, Field(ge=1)] = 1.0

    @property
    def spectrum(self) -> Float64[np.ndarray, " dimension"]:
        """The variances of x, from 1 down to 1 / condition by equal factors.

        They are the eigenvalues of the Hessian of every group's mean loss, under
        f = (y - <x, theta>)^2 / 2.
        """
        return np.geomspace(1.0, 1 / self.condition, self.dimension)

    def optima(self, num_groups: int, streams: Streams) -> Float64[np.ndarray, "groups dimension"]:
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
        self, count: int, optimum: Float64[np.ndarray, " dimension"], generator: np.random.Generator
    ) -> Examples:
        """Return so many examples of a group with this theta*."""
        x = generator.normal(size=(count, self.dimension)) * np.sqrt(self.spectrum)
        y = x @ optimum + generator.normal(0.0, self.noise, count)
        return Examples(torch.from_numpy(x).float(), torch.from_numpy(y).float())

    def population(self, request: PopulationRequest) -> tuple[Population, tuple[str, ...]]:
        """Draw every client's examples; each client and each group from its own stream.

        What the settings say of shifts is not looked at, and the server holds no pool.
        """
        spec, streams = request.spec, request.streams
        group_of = draw_groups(spec, streams.at("groups").generator())
        optima = self.optima(len(spec.groups), streams)

        def drawn(count: int, group: int, *names: str) -> Examples:
            return self.draw(count, optima[group], streams.at(*names).generator())

        def client(index: int) -> Client:
            name, group = f"client-{index:05}", group_of[index]
            examples = drawn(spec.groups[group].examples_per_client, group, "mixture", name)
            parts = reserve(name, examples, spec.holdout)
            return Client(name, handle_of(name, streams), group, *parts, request.preference(name))

        def of_groups(count: int, what: str) -> tuple[Examples, ...]:
            return tuple(
                drawn(count, index, what, group.name) for index, group in enumerate(spec.groups)
            )

        clients = tuple(client(index) for index in range(spec.clients))
        made = Population(
            clients=clients,
            num_classes=1,
            groups=spec.groups,
            test=of_groups(self.test_examples, "test"),
            non_members=of_groups(spec.audit_examples, "non-members"),
            pool=clients[0].train.first(0),
        )
        return made, ()
