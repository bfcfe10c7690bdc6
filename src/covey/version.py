"""Which covey this is, and what becomes of what another one wrote."""

from importlib.metadata import version

__all__ = ["__version__", "another_format"]

__version__ = version("covey")


def another_format(what: object, found: object, expected: object) -> str:
    """Say why nothing is read that another version of covey wrote."""
    return (
        f"{what} must be of format {expected}, found {found}: covey reads what this "
        f"version wrote, and runs of 0.1 have to be played again."
    )
