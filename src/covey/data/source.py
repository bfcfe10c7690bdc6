"""What every data source is; quick to import, so that `covey data` is quick."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from covey.components.registry import Capability, Component
from covey.data.files import Publication

if TYPE_CHECKING:
    from covey.data.clients import PopulationRequest
    from covey.data.examples import Source
    from covey.data.population import Population


class DataSource(Component):
    """Where clients' examples come from.

    Derive from `DataSet` for one data set that clients are simulated over, and from
    `ClientSource` for clients that bring their own examples.
    """

    simulates: ClassVar[bool] = True
    """Whether covey makes the clients, as the settings of `population` say."""
    reads_files: ClassVar[bool] = False
    """Whether it looks into the folder that `data.dir` names."""
    is_passed: ClassVar[bool] = False
    """Whether the examples are in a program, and in no later process."""

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

            def read(self, folder: Path) -> covey.Source:
                labels = torch.arange(600) % 3
                pixels = 60.0 * (1 + labels.view(-1, 1, 1, 1)) + torch.zeros(600, 1, 8, 8)
                train = covey.Examples(pixels.byte(), labels)
                return covey.Source("blobs", train, test=None, num_classes=3)
    """

    def read(self, folder: Path) -> Source:
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


class PublishedDataSet(DataSet):
    """A data set that is read from its publisher's files: `covey data` lists them."""

    reads_files: ClassVar[bool] = True
    publication: ClassVar[Publication]


class ClientSource(DataSource):
    """Clients that bring their own examples.

    Write `clients`. A source that knows every client's group returns a `ClientData` that
    says so, and has a `rules_out` without `Capability.KNOWN_GROUPS`; one that also has
    examples for the server's shadows leaves out `Capability.SERVER_DATA`.
    """

    simulates: ClassVar[bool] = False
    rules_out: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.KNOWN_GROUPS, Capability.SERVER_DATA}
    )

    def clients(self, request: PopulationRequest) -> Any:  # noqa: ANN401 - many forms
        """Return data by client, as `covey.run(clients=...)` takes them, or `ClientData`.

        Data files lie in `request.folder`; what is drawn must come from `request.streams`.

        Raises:
            DataError: a file is missing or malformed.
        """
        raise NotImplementedError

    def population(self, request: PopulationRequest) -> tuple[Population, tuple[str, ...]]:
        """Take the clients as they are."""
        from covey.data.clients import brought_population

        own = replace(request, streams=request.streams.at("source"))
        return brought_population(self.clients(own), request)
