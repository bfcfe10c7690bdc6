"""Federated learning in which every client chooses how exposed it is, and can leave.

>>> import covey
>>> run = covey.run(out="runs/first")
>>> run.summary["accuracy"]
"""

import lazy_loader

_found, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    """Import a name when it is first asked for; one that was renamed, for a release."""
    if name == "Result":
        import warnings

        warnings.warn(
            "covey.Result is now covey.Run; the old name goes with the next release.",
            DeprecationWarning,
            stacklevel=2,
        )
        name = "Run"
    return _found(name)
