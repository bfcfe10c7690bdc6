"""What a run's folder keeps of a federation, for when no node is there."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from covey.algorithms import ClientRequest, ClientResponse, Cohort
from covey.atomic_io import replace_whole
from covey.bounded_io import read_bounded
from covey.build import BuiltRun, ClientReports, DataProfile, Overrides, build_run
from covey.checked_json import checked, checked_json
from covey.errors import RunError
from covey.ledger import Ledger
from covey.runtime.folder import RunFolder
from covey.types import ClientName

__all__ = ["FederationMetadata", "Unreachable", "rebuilt_run"]


@dataclass(frozen=True, slots=True)
class FederationMetadata:
    """A federation as its run remembers it.

    Attributes:
        run: names the run to its nodes.
        profile: what the clients' data look like; None: nobody has come yet.
        home: the folder of its deployment; empty where there is none.
    """

    run: str
    profile: DataProfile | None
    home: str

    @classmethod
    def of(cls, folder: RunFolder) -> "FederationMetadata | None":
        """Read what a run's folder keeps; None where the run is not of this kind.

        Raises:
            RunError: it cannot be read.
        """
        path = _place(folder)
        if not path.is_file():
            return None
        try:
            return _reader(checked(read_bounded(path)))
        except (OSError, ValueError) as error:
            raise RunError(
                f"{path} must hold what this run knows of its federation, as covey wrote "
                f"it, but: {error}. Restore the file."
            ) from error

    def write(self, folder: RunFolder) -> None:
        """Keep it in a run's folder."""
        replace_whole(_place(folder), checked_json(asdict(self)))


_reader = TypeAdapter(FederationMetadata).validate_json


class Unreachable:
    """A federation of which no node is there: enough to read its run, and to deny.

    Args:
        profile: what the clients' data look like.
        names: the clients that the run knows.
    """

    def __init__(self, profile: DataProfile, names: Collection[ClientName]) -> None:
        self.profile = profile
        self._names = names

    def available_clients(self) -> Collection[ClientName]:
        """Return the clients that the run knows; none of them is asked."""
        return self._names

    def ask(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Refuse.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"To {request.task}, {len(cohort)} clients must be reached through their "
            f"nodes, and here is no way to them. Carry the run on with `covey resume`."
        )

    def reports(self) -> ClientReports:
        """Return nothing."""
        return ClientReports()


def rebuilt_run(folder: RunFolder, overrides: Overrides | None = None) -> BuiltRun:
    """Return a run's parts again; the clients of a federation are out of reach.

    `overrides` is what a program passes again that the settings do not name.

    Raises:
        CoveyError: some part does not fit.
    """
    roster = FederationMetadata.of(folder)
    if roster is None or roster.profile is None:
        return build_run(folder.config(), overrides)
    names = _known(folder)
    if not names:
        raise RunError(
            f"{folder.path} must know its clients before anything can be told of them, and "
            f"none has taken part yet. Start the nodes, and play the run."
        )
    unreachable = Unreachable(roster.profile, names)
    model = overrides.model if overrides else None
    return build_run(
        folder.config(), Overrides(model=model, client_backend=unreachable)
    )


def _known(folder: RunFolder) -> Collection[ClientName]:
    if not Ledger.exists(folder.ledger):
        return ()
    with Ledger.read(folder.ledger) as ledger:
        return tuple(ledger.names().values())


def _place(folder: RunFolder) -> Path:
    return folder.path / "federation.json"
