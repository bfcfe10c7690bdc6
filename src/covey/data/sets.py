"""The data sources by name: published sets, digits, a drawn mixture, clients' own files.

Quick to import, as what only asks where data lie needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from covey.base.components import AboveZero, NotNegative, Positive
from covey.base.errors import DataError
from covey.data.source import PUBLICATIONS, ClientSource, DataSet, DataSource, Publication

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtyping import Float64

    from covey.base.rng import Streams
    from covey.data.clients import PopulationRequest
    from covey.data.examples import Examples, Source
    from covey.data.population import Population


class Digits(DataSet):
    """1,797 images of 8 x 8 pixels; 0..16 is scaled to 0..255."""

    def read(self, folder: Path) -> Source:  # noqa: ARG002
        """Return the images."""
        import torch
        from sklearn.datasets import load_digits

        from covey.data.examples import Examples, Source

        pixels, classes = load_digits(return_X_y=True)
        scaled = np.rint(pixels * (255 / 16)).astype(np.uint8)
        images = torch.from_numpy(scaled).view(-1, 1, 8, 8)
        labels = torch.from_numpy(classes.astype(np.int64))
        return Source("digits", Examples(images, labels), None, num_classes=10)


class PublishedDataSet(DataSet):
    """A data set that is read from its publisher's files: `covey config data` lists them."""

    reads_files: ClassVar[bool] = True
    publication: ClassVar[Publication]
    reader: ClassVar[str]
    """The function of `covey.data.formats` that reads them."""

    def read(self, folder: Path) -> Source:
        """Return the publisher's images."""
        from covey.data import formats

        return getattr(formats, self.reader)(self.publication, folder)


class Mnist(PublishedDataSet):
    """60,000 training and 10,000 test images of ten digits."""

    publication: ClassVar[Publication] = PUBLICATIONS["mnist"]
    reader: ClassVar[str] = "read_mnist"


class FashionMnist(Mnist):
    """60,000 training and 10,000 test images of ten kinds of clothes."""

    publication: ClassVar[Publication] = PUBLICATIONS["fashion-mnist"]


class Emnist(PublishedDataSet):
    """814,255 characters of 62 classes; without its training file, the test file alone."""

    publication: ClassVar[Publication] = PUBLICATIONS["emnist"]
    reader: ClassVar[str] = "read_emnist"


class Cifar10(PublishedDataSet):
    """Up to 50,000 training images, from the batches that are there, and 10,000 to test."""

    publication: ClassVar[Publication] = PUBLICATIONS["cifar10"]
    reader: ClassVar[str] = "read_cifar10"


class Femnist(PublishedDataSet):
    """LEAF's json files; without them EMNIST's images, whose writers are unknown."""

    publication: ClassVar[Publication] = PUBLICATIONS["femnist"]
    reader: ClassVar[str] = "read_femnist"


class CelebA(PublishedDataSet):
    """The first 50,000 training and 20,000 test images, their middle made 32 x 32.

    From `list_attr_celeba.txt`, `list_eval_partition.txt` and `img_align_celeba/*.jpg` in
    `celeba`: 40 labels of 0 or 1.
    """

    publication: ClassVar[Publication] = PUBLICATIONS["celeba"]
    reader: ClassVar[str] = "read_celeba"


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

    References:
        Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
        Learning, 2020, section 6.1: x ~ N(0, I_d), y = <x, theta*_j> + noise.
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
        import torch

        from covey.data.examples import Examples

        x = generator.normal(size=(count, self.dimension)) * np.sqrt(self.spectrum)
        y = x @ optimum + generator.normal(0.0, self.noise, count)
        return Examples(torch.from_numpy(x).float(), torch.from_numpy(y).float())

    def population(self, request: PopulationRequest) -> tuple[Population, tuple[str, ...]]:
        """Draw every client's examples; each client and each group from its own stream.

        What the settings say of shifts is not looked at, and the server holds no pool.
        """
        from covey.data.examples import Client
        from covey.data.population import Population, draw_groups, handle_of, reserve

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


class NpzFolder(ClientSource):
    """Clients that bring an .npz file each, in the folder that `data.dir` names."""

    reads_files: ClassVar[bool] = True

    def clients(self, request: PopulationRequest) -> dict[str, Examples]:
        """Return every file's examples; the client's name is the file's stem.

        Raises:
            DataError: there is no file, or one is malformed.
        """
        from covey.data.arrays import read_client

        folder = request.folder
        if by_name := {path.stem: read_client(path) for path in sorted(folder.glob("*.npz"))}:
            return by_name
        raise DataError(
            f"{folder} must hold one .npz file per client, found none. Name the folder in data.dir."
        )

    @classmethod
    def file_of(cls, name: str, folder: Path) -> Path:
        """Return the client's file."""
        return folder / f"{name}.npz"


class PassedClients(ClientSource):
    """The place, in settings, of data that live in a program."""

    is_passed: ClassVar[bool] = True

    def clients(self, request: PopulationRequest) -> Any:  # noqa: ANN401, ARG002
        """Refuse: the examples are not here.

        Raises:
            DataError: always.
        """
        raise DataError(
            "The data of this run were passed by a Python program, and only such a "
            "program can pass them again: call covey.resume(folder, model, clients), or "
            "covey.load(folder, model=..., clients=...).audit()."
        )
