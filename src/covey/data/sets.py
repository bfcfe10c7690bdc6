"""The data sources by name: published sets, digits, a drawn mixture, clients' own files.

Quick to import, as what only asks where data lie needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from covey.base.built_ins import component
from covey.base.components import Count
from covey.base.errors import DataError
from covey.base.names import passed_again
from covey.data.source import PUBLICATIONS, ClientSource, DataSet, Publication

if TYPE_CHECKING:
    from pathlib import Path

    from covey.data.clients import PopulationRequest
    from covey.data.examples import Examples, PublishedData
    from covey.data.formats import Table


FILES = (".npz", ".csv")


@component("data", "digits", default=True)
class Digits(DataSet):
    """1,797 images of 8 x 8 pixels; 0..16 is scaled to 0..255."""

    def read(self, folder: Path) -> PublishedData:  # noqa: ARG002
        """Return the images."""
        import torch
        from sklearn.datasets import load_digits

        from covey.data.examples import Examples, PublishedData

        pixels, classes = load_digits(return_X_y=True)
        scaled = np.rint(pixels * (255 / 16)).astype(np.uint8)
        images = torch.from_numpy(scaled).view(-1, 1, 8, 8)
        labels = torch.from_numpy(classes.astype(np.int64))
        return PublishedData("digits", Examples(images, labels), None, num_classes=10)


class PublishedDataSet(DataSet):
    """A data set that is read from its publisher's files: `covey config data` lists them."""

    reads_files: ClassVar[bool] = True
    publication: ClassVar[Publication]
    reader: ClassVar[str]
    """The function of `covey.data.formats` that reads them."""

    def read(self, folder: Path) -> PublishedData:
        """Return the publisher's images."""
        from covey.data import formats

        return getattr(formats, self.reader)(self.publication, folder)


@component("data", "mnist")
class Mnist(PublishedDataSet):
    """60,000 training and 10,000 test images of ten digits."""

    publication: ClassVar[Publication] = PUBLICATIONS["mnist"]
    reader: ClassVar[str] = "read_mnist"


@component("data", "fashion-mnist")
class FashionMnist(Mnist):
    """60,000 training and 10,000 test images of ten kinds of clothes."""

    publication: ClassVar[Publication] = PUBLICATIONS["fashion-mnist"]


@component("data", "emnist")
class Emnist(PublishedDataSet):
    """814,255 characters of 62 classes; without its training file, the test file alone."""

    publication: ClassVar[Publication] = PUBLICATIONS["emnist"]
    reader: ClassVar[str] = "read_emnist"


@component("data", "cifar10")
class Cifar10(PublishedDataSet):
    """Up to 50,000 training images, from the batches that are there, and 10,000 to test."""

    publication: ClassVar[Publication] = PUBLICATIONS["cifar10"]
    reader: ClassVar[str] = "read_cifar10"


@component("data", "femnist")
class Femnist(PublishedDataSet):
    """LEAF's json files; without them EMNIST's images, whose writers are unknown."""

    publication: ClassVar[Publication] = PUBLICATIONS["femnist"]
    reader: ClassVar[str] = "read_femnist"


@component("data", "celeba")
class CelebA(PublishedDataSet):
    """The first 50,000 training and 20,000 test images, their middle made 32 x 32.

    From `list_attr_celeba.txt`, `list_eval_partition.txt` and `img_align_celeba/*.jpg` in
    `celeba`: 40 labels of 0 or 1.
    """

    publication: ClassVar[Publication] = PUBLICATIONS["celeba"]
    reader: ClassVar[str] = "read_celeba"


@component("data", "heart-disease")
class HeartDisease(ClientSource):
    """Four hospitals' patients, 740 in all: is a coronary artery narrowed (1) or not (0)?

    The hospitals are `cleveland`, `hungarian`, `switzerland` and `va`, whose files UCI
    publishes; each brings training and test rows of 13 columns. The preparation is that of
    Fed-Heart-Disease. Its scaling is `standardise = "client"`.

    Attributes:
        split: 0: the training and test rows of Fed-Heart-Disease; any other number: as many,
            drawn anew.

    References:
        Janosi, Steinbrunn, Pfisterer and Detrano, Heart Disease, UCI Machine Learning
        Repository, 1989 (CC BY 4.0).
        Ogier du Terrail et al., FLamby: Datasets and Benchmarks for Cross-Silo Federated
        Learning in Realistic Healthcare Settings, 2022.
    """

    reads_files: ClassVar[bool] = True

    split: Count = 0

    def clients(self, request: PopulationRequest) -> dict[str, tuple[Table, Table]]:
        """Return every hospital's training and test rows, as columns by name."""
        from covey.data.formats import read_hospitals

        return read_hospitals(PUBLICATIONS["heart-disease"], request.folder, self.split)


@component("data", "npz")
class NpzFolder(ClientSource):
    """Clients that bring an .npz or .csv file each, in the folder that `data.dir` names."""

    reads_files: ClassVar[bool] = True

    def clients(self, request: PopulationRequest) -> dict[str, Examples]:
        """Return every file's examples; the client's name is the file's stem.

        Raises:
            DataError: there is no file, or one is malformed.
        """
        from covey.data.arrays import read_client

        folder = request.folder
        files = sorted(path for kind in FILES for path in folder.glob(f"*{kind}"))
        if not files:
            must = "must hold an .npz or .csv file per client"
            raise DataError(f"{folder} {must}, found none: set data.dir.")
        by_name = {path.stem: path for path in files}
        for path in files:
            if (other := by_name[path.stem]) != path:
                raise DataError(
                    f"{path} must be its client's only file, found {other}: remove one."
                )
        return {name: read_client(path, request.label) for name, path in by_name.items()}

    @classmethod
    def file_of(cls, name: str, folder: Path) -> Path:
        """Return the client's file."""
        named = (folder / f"{name}{kind}" for kind in FILES)
        return next((path for path in named if path.is_file()), folder / f"{name}{FILES[0]}")


@component("data", "python")
class PassedClients(ClientSource):
    """The place, in settings, of data that live in a program."""

    is_passed: ClassVar[bool] = True

    def clients(self, request: PopulationRequest) -> Any:  # noqa: ANN401, ARG002
        """Refuse: the examples are not here.

        Raises:
            DataError: always.
        """
        raise DataError(passed_again("data"))
