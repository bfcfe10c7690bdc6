"""What every data source is: its publisher's files, and how inputs are changed in training.

Quick to import, so that `covey config data` is quick: what only reads settings needs no torch.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from covey.base.built_ins import component
from covey.base.components import Component, OwnFunction, Part
from covey.base.errors import ChecksumError, DataError, user_function
from covey.base.files import MEBIBYTE, read_bounded

if TYPE_CHECKING:
    from torch import Tensor

    from covey.base.rng import Streams
    from covey.data.clients import PopulationRequest
    from covey.data.examples import Examples, PublishedData
    from covey.data.population import Population


LARGEST = 8_192 * MEBIBYTE
"""Bytes of one published file; CelebA's images, the largest, have 1.4 GB."""

_TORCHS_GENERATOR = Lock()

_PUBLISHED = files("covey.data").joinpath("published.toml").read_text(encoding="utf-8")


@component("augment", "none", default=True)
class Augment(Component):
    """Changes the inputs of a batch in training; by itself, nothing."""

    @property
    def changes(self) -> bool:
        """Whether anything is ever changed."""
        return type(self).changed is not Augment.changed

    def changed(self, inputs: Tensor, streams: Streams) -> Tensor:  # noqa: ARG002
        """Return a batch's inputs as the model is trained on them.

        Args:
            inputs: (batch, ...) of float32, images in [0, 1], as models see them.
            streams: the client's own in this step: what is drawn must come from them.
        """
        return inputs


class OwnAugment(Augment, OwnFunction):
    """A user's function of a batch of inputs, or of these and of torch's `generator`.

    One that takes no generator draws from torch's own, which is seeded for the call.
    """

    def changed(self, inputs: Tensor, streams: Streams) -> Tensor:
        """Return what the function says.

        Raises:
            DataError: it raised, or returned no inputs of this shape.
        """
        import torch

        function: Any = user_function("function data.augment", self.call, DataError)
        # the inputs may be the client's own memory
        if "generator" in inspect.signature(self.function).parameters:
            seed = int(streams.generator().integers(2**63))
            made = function(inputs.clone(), generator=torch.Generator().manual_seed(seed))
        else:
            with _TORCHS_GENERATOR, streams.lent_to_torch():  # all threads share it
                made = function(inputs.clone())
        kinds = [
            f"{tuple(images.shape)} of {images.dtype}"
            if isinstance(images, torch.Tensor)
            else type(images).__name__
            for images in (inputs, made)
        ]
        if kinds[0] == kinds[1] and made.isfinite().all():
            return made.detach()
        found = "NaN or infinity" if kinds[0] == kinds[1] else kinds[1]
        raise DataError(f"data.augment must return finite {kinds[0]}, found {found}: correct it.")


class DataSource(Component):
    """Where clients' examples come from.

    Derive from `DataSet` for one data set that clients are simulated over, and from
    `ClientSource` for clients that bring their own examples.

    Attributes:
        dir: folder with the files; else `$COVEY_DATA`, else the user cache.
        label: the column of labels, where clients bring tables, dicts or data sets with
            columns; else the one that is called `label`, `labels`, `target` or `y`.
        normalise: `image`: every example is normalised by itself, on its owner's side: its
            numbers, after the shift, less their mean and over their standard deviation, as
            float32; brightness and contrast are gone. Refused for ids.
        standardise: `client`: every column of a client's table, on its owner's side, less the
            mean and over the standard deviation of its own training rows, as float32, and the
            rows that it holds out by these; constant columns become 0. Refused for ids, for
            images, and for examples that belong to no client.
        client_columns: adds a column per client, which is 1 in its own rows and 0 in all
            others': so a linear model that all share has an intercept for each. A model
            shows them. Only where all clients are known from the start.
        augment: your own function, as `module:name`, of a batch of inputs as models see them,
            which returns them changed: in training alone, by draws of the client's own that a
            replay repeats. It takes torch's `generator`, or draws from torch's own.
    """

    simulates: ClassVar[bool] = True
    """Whether covey makes the clients, as the settings of `population` say."""
    reads_files: ClassVar[bool] = False
    """Whether it looks into the folder that `data.dir` names."""
    is_passed: ClassVar[bool] = False
    """Whether the examples are in a program, and in no later process."""
    has_groups: ClassVar[bool] = True
    """Whether it is known which clients are alike."""
    has_pool: ClassVar[bool] = True
    """Whether the server has examples like the clients', for its shadows."""
    is_drawn: ClassVar[bool] = False
    """Whether numbers are drawn with numbers as labels: no images, and no set to deal out."""

    dir: str = ""
    label: str = ""
    normalise: Literal["none", "image"] = "none"
    standardise: Literal["none", "client"] = "none"
    client_columns: bool = False
    augment: Annotated[Augment, Part("augment")] = Augment()

    @classmethod
    def around(cls, function: Callable[..., Any], options: Mapping[str, Any]) -> DataSource:
        """Return a user's function, which returns clients, as a source."""
        return OwnSource.model_validate({"function": function, **options})

    def population(self, request: PopulationRequest) -> tuple[Population, tuple[str, ...]]:
        """Return all clients, and what a reader must know of their data."""
        raise NotImplementedError

    @classmethod
    def file_of(cls, name: str, folder: Path) -> Path | None:  # noqa: ARG003
        """Return the file in which a client's examples lie alone; None: in no such file."""
        return None


class DataSet(DataSource):
    """One data set, which `population` deals out to simulated clients.

    Write `read`; what it needs to know are fields:

        class Blobs(covey.DataSet):
            spread: float = 40.0

            def read(self, folder: Path) -> covey.PublishedData:
                labels = torch.arange(600) % 3
                pixels = 60.0 * (1 + labels.view(-1, 1, 1, 1)) + torch.zeros(600, 1, 8, 8)
                train = covey.Examples(pixels.byte(), labels)
                return covey.PublishedData("blobs", train, test=None, num_classes=3)
    """

    def read(self, folder: Path) -> PublishedData:
        """Return the data set; `folder` is where data files lie.

        Raises:
            DataError: a file is missing or malformed.
        """
        raise NotImplementedError

    def population(self, request: PopulationRequest) -> tuple[Population, tuple[str, ...]]:
        """Deal the data set out."""
        from covey.data.population import build_population

        source = self.read(request.folder)
        request.outputs(source.train.labels, source.name)
        made = build_population(source, request.spec, request.streams, request.preference)
        return made, source.notes


class ClientSource(DataSource):
    """Clients that bring their own examples.

    Write `clients`. A source that has every client's group returns a `ClientData` that
    says so, and `has_groups`; one that also has examples for the server's shadows
    `has_pool`.
    """

    simulates: ClassVar[bool] = False
    has_groups: ClassVar[bool] = False
    has_pool: ClassVar[bool] = False

    def clients(self, request: PopulationRequest) -> Any:  # noqa: ANN401 - many forms
        """Return data by client, as `covey.run(clients=...)` takes them, or `ClientData`.

        Data files lie in `request.folder`; what is drawn must come from `request.streams`.

        Raises:
            DataError: a file is missing or malformed.
        """
        raise NotImplementedError

    def population(self, request: PopulationRequest) -> tuple[Population, tuple[str, ...]]:
        """Take the clients as they are."""
        from covey.data.clients import population_of_clients

        own = replace(request, streams=request.streams.at("source"))
        return population_of_clients(self.clients(own), request)


class OwnSource(ClientSource, OwnFunction):
    """A user's function that returns clients' data."""

    def clients(self, request: PopulationRequest) -> Any:  # noqa: ANN401, ARG002
        """Return what the function says."""
        return self.call()


@dataclass(frozen=True, slots=True)
class Publication:
    """How a data set's publisher ships it.

    Attributes:
        source: the data set's name in settings and messages, and of its usual folder inside
            the data folder, unless `folder` names another.
        files: the names of its files, with the published MD5 sum of each, or an empty
            one; `*.json` in a name stands for one file or more.
        url: where to get them; where it ends with a slash, the name of a file that is
            put behind it is that file's own address.
        also: other folders inside the data folder where its own tools leave the files.
    """

    source: str
    files: Mapping[str, str]
    url: str
    folder: str = ""
    also: Sequence[str] = ()

    def md5(self, name: str) -> str:
        """Return a file's published checksum; an empty one: none is known."""
        return self.files.get(name, "")

    def address(self, name: str) -> str:
        """Return the file's own address, or that of a page which leads to it."""
        return f"{self.url}{name}" if self.url.endswith("/") else self.url

    def find(self, name: str, folder: Path) -> Iterator[Path]:
        """Yield the files of a name: in its own folder, one of its tools', or the data folder.

        A gzipped file may also lie there unzipped, without its `.gz`.
        """
        for place in self._places(folder):
            for pattern in dict.fromkeys((name, name.removesuffix(".gz"))):
                paths = (path for path in place.glob(pattern) if path.is_file())
                if first := next(paths, None):
                    yield first
                    yield from paths
                    return

    def has(self, name: str, folder: Path) -> bool:
        """Say whether a file of that name is there."""
        return any(self.find(name, folder))

    def read(self, name: str, folder: Path) -> tuple[bytes, Path]:
        """Return a file's bytes, and where they were found, as `read_all` does."""
        return next(self.read_all(name, folder))

    def read_all(self, name: str, folder: Path) -> Iterator[tuple[bytes, Path]]:
        """Yield all files that a name stands for, by their own names.

        Sums guard against broken downloads, not against an attacker: MD5 is forgeable.

        Raises:
            DataError: the file is not there or cannot be read.
            ChecksumError: it is not the published file.
        """
        paths, md5 = sorted(self.find(name, folder)), self.md5(name)
        if not paths:
            places = " or ".join(map(str, self._places(folder)))
            raise DataError(
                f"{self.source} needs {name}, found none in {places}: get it from "
                f"{self.address(name)}{f' or by its MD5 {md5}' if md5 else ''}, and name its "
                f"folder in data.dir or COVEY_DATA."
            )
        for path in paths:
            try:
                content = read_bounded(path, LARGEST)
            except OSError as error:
                raise DataError(f"{path} must be readable, found {error}: check it.") from error
            md5 = self.md5(path.name)
            digest = hashlib.md5(content, usedforsecurity=False).hexdigest() if md5 else ""
            if digest != md5:
                raise ChecksumError(f"{path} must have MD5 {md5}, found {digest}: get it again.")
            yield content, path

    def state(self, name: str, folder: Path) -> Literal["ok", "missing", "corrupt", "unchecked"]:
        """Say whether a file is there, and the published one."""
        if not self.has(name, folder):
            return "missing"
        try:
            _, path = self.read(name, folder)
        except DataError:
            return "corrupt"
        return "ok" if self.md5(path.name) else "unchecked"

    def _places(self, folder: Path) -> list[Path]:
        return [folder / place for place in (self.folder or self.source, *self.also, "")]


PUBLICATIONS: Mapping[str, Publication] = MappingProxyType(
    {name: Publication(source=name, **table) for name, table in tomllib.loads(_PUBLISHED).items()}
)
"""How every data set is shipped that is read from published files, by its name."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One row of `covey config data check`.

    Attributes:
        source: which data set.
        file: its name.
        state: "unchecked" is there, but has no published checksum.
        url: where to get the file.
        md5: the file's published checksum, wherever it comes from; None: none is known.
    """

    source: str
    file: str
    state: Literal["ok", "missing", "corrupt", "unchecked"]
    url: str
    md5: str | None


def check_data(folder: Path) -> list[DataFile]:
    """Look for every file of every known data set, and check its sum."""
    return [
        DataFile(
            source, name, publication.state(name, folder), publication.address(name), md5 or None
        )
        for source, publication in PUBLICATIONS.items()
        for name, md5 in publication.files.items()
    ]


def data_folder(configured: str) -> Path:
    """Return the configured folder, else $COVEY_DATA, else the user's cache."""
    chosen = configured or os.environ.get("COVEY_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "covey"


@dataclass(frozen=True, slots=True)
class DataProfile:
    """What a server must know of the clients' data to build a model.

    Attributes:
        shape: of one example.
        images: whether examples are uint8 images, or else features or ids.
        whole: whether they are whole numbers: ids for an embedding.
        columns: hash of the names of a table's columns, in their order; "": it has none.
    """

    shape: tuple[int, ...]
    images: bool
    classes: int
    whole: bool = False
    columns: str = ""

    def empty_examples(self) -> Examples:
        """Return no examples, of this kind."""
        import torch

        from covey.data.examples import Examples

        plain = torch.int64 if self.whole else torch.float32
        dtype = torch.uint8 if self.images else plain
        labels = torch.empty(0, dtype=torch.int64)
        return Examples(torch.empty((0, *self.shape), dtype=dtype), labels)
