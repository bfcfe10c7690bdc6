"""The newest checkpoint in a folder, as nothing but the files say."""

from pathlib import Path

from covey import RunError
from covey.runtime.folder import checkpoint_paths
from covey.runtime.states import is_whole


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; torn files are passed over.

    Raises:
        RunError: there are checkpoints, and none of them is whole.
    """
    paths = checkpoint_paths(folder)
    for path in reversed(paths):
        if is_whole(path):
            return path
    if paths:
        raise RunError(
            f"A run resumes from a whole checkpoint, but none of the {len(paths)} in "
            f"{folder} is. Restore one from a copy, or start the run again."
        )
    return None
