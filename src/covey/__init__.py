"""Federated learning in which every client chooses how exposed it is, and can leave.

>>> import covey
>>> run = covey.run(out="runs/first")
>>> run.summary["accuracy"]
"""

import lazy_loader

_found, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


_RENAMED = {"Ballot": "SelectionInputs", "Merged": "AggregationResult", "Result": "Run"}
"""Old public names, which go with the next release, with the new ones."""


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for; one that was renamed, for a release."""
    if new := _RENAMED.get(name):
        import warnings

        warnings.warn(
            f"covey.{name} is now covey.{new}; the old name goes with the next release.",
            DeprecationWarning,
            stacklevel=2,
        )
        name = new
    return _found(name)
