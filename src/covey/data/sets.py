"""The data sets by name.

References:
    Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
    Learning, 2020, section 6.1: x ~ N(0, I_d), y = <x, theta*_j> + noise.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from covey.base.errors import DataError
from covey.components.registry import Capability, NotNegative, Positive
from covey.data.files import Publication, find_file, read_file
from covey.data.source import ClientSource, DataSet, DataSource, PublishedDataSet

if TYPE_CHECKING:
    from covey.data.clients import PopulationRequest
    from covey.data.examples import Examples, Source
    from covey.data.mixture import MixtureSpec
    from covey.data.population import Population


class CelebA(PublishedDataSet):
    """The first 50,000 training and 20,000 test images, their middle made 32 x 32."""

    publication: ClassVar[Publication] = Publication(
        source="celeba",
        folder="celeba",
        files=MappingProxyType(
            {
                "list_attr_celeba.txt": "",
                "list_eval_partition.txt": "",
                "img_align_celeba/*.jpg": "",
            }
        ),
        url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    )

    def read(self, folder: Path) -> Source:
        """Return the images, and the 40 labels of each."""
        from covey.data import formats
        from covey.data.examples import Source

        name = self.publication.source
        train, num_train = formats.read_faces(self.publication, "train", folder)
        test, num_test = formats.read_faces(self.publication, "test", folder)
        notes = tuple(
            f"Of the {found:,} {part} images of {name} the first {len(used):,} are used."
            for part, used, found in (("training", train, num_train), ("test", test, num_test))
            if len(used) < found
        )
        return Source(name, train, test, formats.NUM_LABELS, notes)


class Cifar10(PublishedDataSet):
    """Up to 50,000 training images, from the batches that are there, and 10,000 to test."""

    publication: ClassVar[Publication] = Publication(
        source="cifar10",
        folder="cifar-10-batches-py",
        files=MappingProxyType(
            {
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            }
        ),
        url="https://www.cs.toronto.edu/~kriz/cifar.html",
    )

    def read(self, folder: Path) -> Source:
        """Return the images of the batches that are there, and say which are not."""
        from covey.data import formats
        from covey.data.examples import Examples, Source

        def batch(name: str) -> Examples:
            return formats.parse_batch(*read_file(self.publication, name, folder))

        name = self.publication.source
        names = [f"data_batch_{number}" for number in range(1, 6)]
        missing = [each for each in names if not self._has(each, folder)]
        # With no batch at all, reading the first one says what is missing and where.
        present = [each for each in names if each not in missing] or names[:1]
        train = Examples.joined([batch(each) for each in present])
        note = f"{', '.join(missing)} of {name} are not there: {len(train):,} training images."
        notes = (note,) if missing else ()
        return Source(name, train, batch("test_batch"), formats.NUM_CLASSES, notes)

    def _has(self, name: str, folder: Path) -> bool:
        return find_file(self.publication, name, folder) is not None


class Digits(DataSet):
    """1,797 images of 8 x 8 pixels; 0..16 is scaled to 0..255."""

    def read(self, folder: Path) -> Source:  # noqa: ARG002
        """Return the images."""
        import numpy as np
        import torch
        from sklearn.datasets import load_digits

        from covey.data.examples import Examples, Source

        pixels, classes = load_digits(return_X_y=True)
        scaled = np.rint(pixels * (255 / 16)).astype(np.uint8)
        images = torch.from_numpy(scaled).view(-1, 1, 8, 8)
        labels = torch.from_numpy(classes.astype(np.int64))
        examples = Examples(images, labels)
        return Source("digits", examples, None, num_classes=10)


TRAIN = "emnist-byclass-train-images-idx3-ubyte.gz"
NUM_CLASSES = 62


class Emnist(PublishedDataSet):
    """814,255 characters of 62 classes; without its training file, the test file alone."""

    publication: ClassVar[Publication] = Publication(
        source="emnist",
        folder="emnist",
        files=MappingProxyType(
            {
                f"emnist-byclass-{part}-{kind}-ubyte.gz": ""
                for part in ("train", "test")
                for kind in ("images-idx3", "labels-idx1")
            }
        ),
        url="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    )

    @classmethod
    def is_complete(cls, folder: Path) -> bool:
        """Say whether the training file is there."""
        return find_file(cls.publication, TRAIN, folder) is not None

    def read(self, folder: Path) -> Source:
        """Return the images, upright."""
        from covey.data.examples import Source

        name, test = self.publication.source, self._examples("test", folder)
        if self.is_complete(folder):
            train = self._examples("train", folder)
            return Source(name, train, test, NUM_CLASSES)
        note = (
            f"The training file of {name} is not there: all {len(test):,} images come "
            f"from the test file."
        )
        return Source(name, test, None, NUM_CLASSES, (note,))

    def _examples(self, part: str, folder: Path) -> Examples:
        from covey.data.examples import Examples
        from covey.data.formats import read_examples

        which = f"emnist-byclass-{part}"
        examples = read_examples(self.publication, which, folder, NUM_CLASSES)
        upright = examples.inputs.transpose(-1, -2).contiguous()  # stored by column
        return Examples(upright, examples.labels)


class Mnist(PublishedDataSet):
    """60,000 training and 10,000 test images of ten digits."""

    publication: ClassVar[Publication] = Publication(
        source="mnist",
        folder="mnist",
        files=MappingProxyType(
            {
                "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            }
        ),
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",  # its publisher's is gone
    )

    def read(self, folder: Path) -> Source:
        """Return the publisher's training and test images."""
        from covey.data.examples import Source
        from covey.data.formats import read_examples

        train = read_examples(self.publication, "train", folder, num_classes=10)
        test = read_examples(self.publication, "t10k", folder, num_classes=10)
        return Source(self.publication.source, train, test, num_classes=10)


class FashionMnist(Mnist):
    """60,000 training and 10,000 test images of ten kinds of clothes."""

    publication: ClassVar[Publication] = Publication(
        source="fashion-mnist",
        folder="fashion-mnist",
        files=MappingProxyType(
            {
                "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            }
        ),
        url="https://github.com/zalandoresearch/fashion-mnist/tree/master/data/fashion",
    )


class Femnist(PublishedDataSet):
    """LEAF's json files; without them EMNIST's images, whose writers nobody knows."""

    publication: ClassVar[Publication] = Publication(
        source="femnist",
        folder="femnist",
        files=MappingProxyType({"train/*.json": "", "test/*.json": ""}),
        url="https://github.com/TalwalkarLab/leaf",
        also=("femnist/data", "data"),
    )

    def read(self, folder: Path) -> Source:
        """Return the images with their writers."""
        from covey.data import formats
        from covey.data.examples import Source

        name = self.publication.source
        if not formats.has_part(self.publication, "train", folder) and (Emnist.is_complete(folder)):
            return _without_writers(Emnist().read(folder), name)
        train, writers = formats.read_part(self.publication, "train", folder)
        test, notes = None, (f"The test files of {name} are not there.",)
        if formats.has_part(self.publication, "test", folder):
            (test, _), notes = formats.read_part(self.publication, "test", folder), ()
        return Source(name, train, test, formats.NUM_CHARACTERS, notes, writers)


def _without_writers(emnist: Source, name: str) -> Source:
    note = (
        f"LEAF's files of {name} are not there: its images are those of {emnist.name}, "
        f"cut and scaled in another way, and nobody knows their writers."
    )
    return replace(emnist, name=name, notes=(*emnist.notes, note))


class LinearMixture(DataSource):
    """x ~ N(0, diag(spectrum)),   y = <x, theta*_j> + N(0, noise^2) for group j."""

    rules_out: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CLASS_LABELS, Capability.DATA_SET, Capability.IMAGES, Capability.SERVER_DATA}
    )

    dimension: Positive = 10
    noise: NotNegative = 0.5
    separation: Annotated[float, Field(gt=0)] = 2.0
    condition: Annotated[float, Field(ge=1)] = 1.0

    @property
    def spec(self) -> MixtureSpec:
        """What the examples are drawn from."""
        from covey.data.mixture import MixtureSpec

        return MixtureSpec(self.dimension, self.noise, self.separation, self.condition)

    def population(self, request: PopulationRequest) -> tuple[Population, tuple[str, ...]]:
        """Draw every client's examples."""
        from covey.data.mixture import mixture_population

        made = mixture_population(self.spec, request.spec, request.streams, request.preference)
        return made, ()


class NpzFolder(ClientSource):
    """Clients that bring an .npz file each, in the folder that `data.dir` names."""

    reads_files: ClassVar[bool] = True

    def clients(self, request: PopulationRequest) -> dict[str, Examples]:
        """Return every file's examples; the client's name is the file's stem."""
        from covey.data.arrays import read_clients

        return read_clients(request.folder)

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
            "covey.audit(folder, model=..., clients=...)."
        )
