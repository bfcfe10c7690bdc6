"""The data sources by name: published sets, digits, a drawn mixture, clients' own files."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float64
from pydantic import Field
from sklearn.datasets import load_digits

from covey.base.errors import DataError
from covey.base.rng import Streams
from covey.components.parts import AboveZero, NotNegative, Positive
from covey.data.arrays import read_client
from covey.data.clients import PopulationRequest
from covey.data.examples import Client, Examples, Source
from covey.data.formats import (
    NUM_ATTRIBUTES,
    NUM_CHARACTERS,
    SIDE,
    Part,
    parse_attributes,
    parse_batch,
    parse_idx,
    parse_image,
    parse_leaf,
    parse_names,
)
from covey.data.population import Population, draw_groups, handle_of, reserve
from covey.data.source import PUBLICATIONS, ClientSource, DataSet, DataSource, Publication


class Digits(DataSet):
    """1,797 images of 8 x 8 pixels; 0..16 is scaled to 0..255."""

    def read(self, folder: Path) -> Source:  # noqa: ARG002
        """Return the images."""
        pixels, classes = load_digits(return_X_y=True)
        scaled = np.rint(pixels * (255 / 16)).astype(np.uint8)
        images = torch.from_numpy(scaled).view(-1, 1, 8, 8)
        labels = torch.from_numpy(classes.astype(np.int64))
        return Source("digits", Examples(images, labels), None, num_classes=10)


class PublishedDataSet(DataSet):
    """A data set that is read from its publisher's files: `covey config data` lists them."""

    reads_files: ClassVar[bool] = True
    publication: ClassVar[Publication]


class Mnist(PublishedDataSet):
    """60,000 training and 10,000 test images of ten digits."""

    publication: ClassVar[Publication] = PUBLICATIONS["mnist"]

    def read(self, folder: Path) -> Source:
        """Return the publisher's training and test images."""
        train, test = (_read_idx(self.publication, p, folder, 10) for p in ("train", "t10k"))
        return Source(self.publication.source, train, test, num_classes=10)


class FashionMnist(Mnist):
    """60,000 training and 10,000 test images of ten kinds of clothes."""

    publication: ClassVar[Publication] = PUBLICATIONS["fashion-mnist"]


class Emnist(PublishedDataSet):
    """814,255 characters of 62 classes; without its training file, the test file alone."""

    publication: ClassVar[Publication] = PUBLICATIONS["emnist"]
    training_file: ClassVar[str] = "emnist-byclass-train-images-idx3-ubyte.gz"

    def read(self, folder: Path) -> Source:
        """Return the images, upright."""

        def part(name: str) -> Examples:
            name = f"emnist-byclass-{name}"
            examples = _read_idx(self.publication, name, folder, NUM_CHARACTERS)
            upright = examples.inputs.transpose(-1, -2).contiguous()  # stored by column
            return Examples(upright, examples.labels)

        test = part("test")
        if self.publication.has(self.training_file, folder):
            return Source("emnist", part("train"), test, NUM_CHARACTERS)
        note = (
            f"The training file of emnist is not there: all {len(test):,} images come from the "
            f"test file."
        )
        return Source("emnist", test, None, NUM_CHARACTERS, (note,))


def _read_idx(publication: Publication, part: str, folder: Path, num_classes: int) -> Examples:
    """Return the images of one channel and the labels of a part of a data set.

    Raises:
        DataError: a file is missing or malformed, or they do not fit together.
        ChecksumError: a file is not the published one.
    """
    content, path = publication.read(f"{part}-images-idx3-ubyte.gz", folder)
    images = parse_idx(content, path, dimensions=3).unsqueeze(1)
    content, path = publication.read(f"{part}-labels-idx1-ubyte.gz", folder)
    labels = parse_idx(content, path, dimensions=1).long()
    if len(labels) != len(images):
        raise DataError(
            f"{path} must hold a label for each of {len(images):,} images, found "
            f"{len(labels):,}. Get both files again."
        )
    if (labels >= num_classes).any():
        raise DataError(
            f"{path} must hold labels below {num_classes}, found {int(labels.max())}. "
            f"Get the file again."
        )
    return Examples(images, labels)


class Cifar10(PublishedDataSet):
    """Up to 50,000 training images, from the batches that are there, and 10,000 to test."""

    publication: ClassVar[Publication] = PUBLICATIONS["cifar10"]

    def read(self, folder: Path) -> Source:
        """Return the images of the batches that are there, and say which are not."""
        names = [f"data_batch_{number}" for number in range(1, 6)]
        missing = [name for name in names if not self.publication.has(name, folder)]
        # With no batch at all, reading the first one says what is missing and where.
        present = [name for name in names if name not in missing] or names[:1]
        *batches, test = (
            parse_batch(*self.publication.read(name, folder)) for name in (*present, "test_batch")
        )
        train = Examples.joined(batches)
        lacking = f"{', '.join(missing)} of cifar10 are not there"
        notes = (f"{lacking}: {len(train):,} training images.",) if missing else ()
        return Source("cifar10", train, test, 10, notes)


class Femnist(PublishedDataSet):
    """LEAF's json files; without them EMNIST's images, whose writers are unknown."""

    publication: ClassVar[Publication] = PUBLICATIONS["femnist"]

    def read(self, folder: Path) -> Source:
        """Return the images with their writers."""
        has_train, has_test = (
            self.publication.has(f"{part}/*.json", folder) for part in ("train", "test")
        )
        if not has_train and Emnist.publication.has(Emnist.training_file, folder):
            source = Emnist().read(folder)
            note = (
                "LEAF's files of femnist are not there: its images are those of emnist, cut "
                "and scaled in another way, and their writers are unknown."
            )
            return replace(source, name="femnist", notes=(*source.notes, note))
        train, writers = self._part("train", folder)
        test = self._part("test", folder)[0] if has_test else None
        notes = () if has_test else ("The test files of femnist are not there.",)
        return Source("femnist", train, test, NUM_CHARACTERS, notes, writers)

    def _part(self, part: Part, folder: Path) -> tuple[Examples, torch.Tensor]:
        """Return all images of the part's files, and the number of the writer of each."""
        numbers: dict[str, int] = {}
        pixels, labels, writers = [], [], []
        for content, path in self.publication.read_all(f"{part}/*.json", folder):
            for writer, (images, classes) in parse_leaf(content, path).items():
                number = numbers.setdefault(writer, len(numbers))
                pixels.append(images)
                labels.append(classes)
                writers.append(np.full(len(classes), number))
        inputs = torch.from_numpy(np.concatenate(pixels)).view(-1, 1, SIDE, SIDE)
        examples = Examples(inputs, torch.from_numpy(np.concatenate(labels)))
        return examples, torch.from_numpy(np.concatenate(writers))


class CelebA(PublishedDataSet):
    """The first 50,000 training and 20,000 test images, their middle made 32 x 32.

    From `list_attr_celeba.txt`, `list_eval_partition.txt` and `img_align_celeba/*.jpg` in
    `celeba`: 40 labels of 0 or 1.
    """

    publication: ClassVar[Publication] = PUBLICATIONS["celeba"]
    most: ClassVar[dict[Part, int]] = {"train": 50_000, "test": 20_000}

    def read(self, folder: Path) -> Source:
        """Return the images and the 40 labels of each, and say how many are left out."""
        notes: list[str] = []
        read = self.publication.read

        def faces(part: Part, kind: str) -> Examples:
            of_part = parse_names(*read("list_eval_partition.txt", folder), part)
            names = of_part[: self.most[part]]
            labels = parse_attributes(*read("list_attr_celeba.txt", folder), names)
            if len(names) < len(of_part):
                notes.append(
                    f"Of the {len(of_part):,} {kind} images of celeba the first {len(names):,} "
                    f"are used."
                )

            def image(name: str) -> torch.Tensor:
                return parse_image(*read(f"img_align_celeba/{name}", folder))

            with ThreadPoolExecutor() as threads:
                return Examples(torch.stack(list(threads.map(image, names))), labels)

        train, test = faces("train", "training"), faces("test", "test")
        return Source("celeba", train, test, NUM_ATTRIBUTES, tuple(notes))


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


class NpzFolder(ClientSource):
    """Clients that bring an .npz file each, in the folder that `data.dir` names."""

    reads_files: ClassVar[bool] = True

    def clients(self, request: PopulationRequest) -> dict[str, Examples]:
        """Return every file's examples; the client's name is the file's stem.

        Raises:
            DataError: there is no file, or one is malformed.
        """
        folder = request.folder
        if found := {path.stem: read_client(path) for path in sorted(folder.glob("*.npz"))}:
            return found
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
