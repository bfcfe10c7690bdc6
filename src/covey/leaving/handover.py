"""Salts that were handed out, kept sealed until somebody says that they arrived.

One file per request, which names no one, sealed with the signing key (`covey.base.sealing`).
The run's folder alone does not open it: that key lies elsewhere.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag

from covey.base.errors import RunError
from covey.base.files import flush_folder, make_folder, path_inside, read_bounded, replace_whole
from covey.base.sealing import seal, unseal
from covey.base.signature import SigningKey
from covey.runs.folder import RunFolder

PURPOSE = b"covey: salts that nobody has acknowledged"


@dataclass(frozen=True, slots=True)
class Handover:
    """What a requester is to get.

    Attributes:
        request: the request's identifier.
        answer: what was answered; "": nothing yet.
        proof: its path; "": nothing was answered yet.
        salt: hex.
    """

    request: str
    salt: str = field(repr=False)
    answer: str = ""
    proof: str = ""


def keep_handover(folder: RunFolder, key: SigningKey, handover: Handover) -> None:
    """Seal what is to be handed over, before anyone else sees it."""
    make_folder(folder.unacknowledged)
    content, beside = json.dumps(asdict(handover)).encode(), handover.request.encode()
    sealed = seal(key.private_bytes_raw(), PURPOSE, content, beside)
    replace_whole(_path(folder, handover.request), sealed, mode=0o600)


def unacknowledged(folder: RunFolder, key: SigningKey) -> tuple[Handover, ...]:
    """Return what was handed out and not acknowledged, in order of the requests' names.

    Raises:
        RunError: a file cannot be opened with this key.
    """
    handovers: list[Handover] = []
    for path in sorted(folder.unacknowledged.glob("*.sealed")):
        try:
            sealed, beside = read_bounded(path), path.stem.encode()
            content = unseal(key.private_bytes_raw(), PURPOSE, sealed, beside)
        except (InvalidTag, OSError, ValueError) as error:
            raise RunError(
                f"{path} must open with the key that it was sealed with, found another, or damage: "
                f"put the old key back (its file ends in .retired), or delete the file."
            ) from error
        handovers.append(Handover(**json.loads(content)))
    return tuple(handovers)


def acknowledge(folder: RunFolder, request: str) -> None:
    """Delete a salt that arrived.

    Raises:
        RunError: none is kept of this request.
    """
    if not request.isalnum() or not (path := _path(folder, request)).exists():
        waiting = ", ".join(sorted(file.stem for file in folder.unacknowledged.glob("*.sealed")))
        raise RunError(
            f"A salt must be kept of a request to be acknowledged, once, found {request!a}, and "
            f"kept are {waiting or 'none'}: see `covey forget {folder.path} --again`."
        )
    path.unlink()
    flush_folder(path.parent)


def _path(folder: RunFolder, request: str) -> Path:
    return path_inside(folder.unacknowledged, f"{request}.sealed")
