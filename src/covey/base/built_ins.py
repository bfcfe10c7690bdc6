"""Built-in components: a decorator says the name of each, and a table in which modules they are.

>>> @component("aggregation", "krum")
... class Krum(ClusterwiseAggregation):
...     outliers: Positive = 1
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T", bound=type)

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "aggregation": ("aggregation.mean", "aggregation.anonymity", "aggregation.robust"),
        "algorithm": ("algorithms.fedavg", "algorithms.ifca", "algorithms.ridge"),
        "augment": ("data.source",),
        "data": ("data.sets",),
        "engine": ("engine.kinds",),
        "features": ("models.features",),
        "model": ("models.networks", "models.linear_head", "models.build"),
        "partition": ("data.partition",),
        "metric": ("engine.metrics",),
        "tracker": (),
        "attack": ("membership.attacks",),
        "risk_estimator": ("membership.estimators", "membership.shadow"),
        "loss": ("engine.recipe",),
        "objective": ("engine.recipe",),
        "optimizer": ("engine.optimizers",),
        "schedule": ("engine.recipe",),
        "selection": ("algorithms.selection",),
        "server_optimizer": ("aggregation.server",),
        "shift": ("data.examples",),
    }
)
"""All kinds there are, and in which modules of covey the built-in components of each are."""

_classes = defaultdict[str, dict[str, type]](dict)
_defaults: dict[str, str] = {}
_names: dict[type, str] = {}


ROBUST = "geometric-median"
"""How deployments merge updates where the settings say nothing of it: measured in
`benchmarks/results/poisoning.md`, with what it costs a minority."""

NEWCOMERS = 0.25
"""How many newcomers per initial member deployments let into a cluster: measured there too."""

BASELINE = "fedavg"
"""The algorithm that runs are compared with."""

REFERENCES = (BASELINE, "ifca")
"""The algorithms to which differences are shown, run by run."""

LOSS = "loss"
"""The loss threshold of every run's end, by the name that it has in an audit."""

BOUND = "bound"
"""The source of a risk that no attack at all exceeds."""

USUAL_ATTACKS = (LOSS, "shokri", "lira", "rmia")
"""The attacks of an audit that names none."""


def component(kind: str, name: str, *, default: bool = False) -> Callable[[T], T]:
    """Make a class the built-in component of this name; `default`: where settings name none."""

    def registered(cls: T) -> T:
        _classes[kind][name] = cls
        _names[cls] = name
        if default:
            _defaults[kind] = name
        return cls

    return registered


@cache
def built_ins(kind: str) -> Mapping[str, type]:
    """Return the built-in components of a kind by name, module by module."""
    places = {
        import_module(f"covey.{module}").__name__: i for i, module in enumerate(MODULES[kind])
    }
    classes = sorted(_classes[kind].items(), key=lambda cls: places[cls[1].__module__])
    return MappingProxyType(dict(classes))


def default_of(kind: str) -> str | None:
    """Return what is taken of a kind where settings name nothing; None: they must."""
    built_ins(kind)
    return _defaults.get(kind)


def built_in_name(cls: object) -> str | None:
    """Return the name of a built-in component; None: it is none."""
    return _names.get(cls) if isinstance(cls, type) else None
