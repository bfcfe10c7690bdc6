"""Settings whose capability is not built yet: refused, with that as the reason."""

from collections.abc import Mapping
from typing import Any

from covey.errors import ConfigError

__all__ = ["LATER_KEYS", "LATER_VALUES", "refuse_later"]

LATER_KEYS = {
    "population.dirichlet_alpha": "partitions other than iid",
    "merge.max_update_norm": "norm-bounded merges",
    "merge.min_anonymity": "anonymity sets",
    "merge.deniability_threshold": "anonymity sets",
    "merge.partition": "anonymity sets",
    "merge.distance": "anonymity sets",
    "merge.max_distance": "anonymity sets",
    "merge.noise": "noise in merges",
    "merge.sigma": "noise in merges",
    "merge.radius": "noise in merges",
    "merge.epsilon": "noise in merges",
    "merge.delta": "noise in merges",
    "privacy": "differential privacy",
    "secrets.key_path": "signed proofs",
    "unlearning": "leaving a run",
    "ledger": "ledgers outside the run folder",
}

LATER_VALUES = {
    "data.name": ("femnist", "celeba", "linear-mixture"),
    "population.partition": ("dirichlet", "by-writer"),
    "model.task": ("multilabel", "regression"),
    "merge.name": ("anonymity-sets", "trimmed-mean", "median", "krum", "norm-bounded"),
    "secrets.source": ("os",),
    "engine.name": ("ray", "flower"),
}


def refuse_later(settings: Mapping[str, Any]) -> None:
    """Refuse the settings that wait for their capability.

    Raises:
        ConfigError: naming the setting and what it waits for.
    """
    flat = dict(settings)
    for section, keys in settings.items():
        if isinstance(keys, Mapping):
            flat |= {f"{section}.{key}": value for key, value in keys.items()}
    for key, value in flat.items():
        if key in LATER_KEYS:
            raise ConfigError(
                f"{key} belongs to {LATER_KEYS[key]}, which this version of covey does "
                f"not have yet. Remove it."
            )
        if value in LATER_VALUES.get(key, ()):
            raise ConfigError(
                f"{key} = {value!r} is planned, and this version of covey does not have "
                f"it yet. Leave it at its default or choose another."
            )
