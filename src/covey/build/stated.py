"""What each client accepts, where a program says so by name."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from covey.config import Config
from covey.data import Preference, weight_from_threshold
from covey.data.population import handle_of
from covey.errors import ConfigError
from covey.rng import Streams
from covey.types import ClientName

__all__ = [
    "Shares",
    "check_preference_names",
    "with_preferences",
]

Shares = Mapping[ClientName, float]
"""A number in [0, 1] per client."""


def with_preferences(
    config: Config,
    thresholds: Shares | None,
    risk_weights: Shares | None,
    otherwise: Callable[[ClientName], Preference],
) -> Config:
    """Return the settings with what these clients accept, under their handles.

    No name gets into the settings: a run that is carried on knows its clients' handles.

    Args:
        config: the settings.
        thresholds: tau by name. A weight that is not given follows from it, where the
            settings let weights follow.
        risk_weights: beta by name.
        otherwise: what a client accepts of which nothing is said.

    Raises:
        ConfigError: naming the client whose number lies outside [0, 1].
    """
    taus, betas = (
        _shares("thresholds", thresholds),
        _shares("risk_weights", risk_weights),
    )
    if not taus and not betas:
        return config
    _refuse_random_handles(config)
    streams, fixed = Streams(config.seed), config.method.risk_weight

    def stated(name: ClientName) -> tuple[str, float, float]:
        usual = otherwise(name)
        tau = taus.get(name, usual.risk_threshold)
        follows = name in taus and fixed == "from-threshold"
        beta = weight_from_threshold(tau) if follows else usual.risk_weight
        return handle_of(name, streams), tau, betas.get(name, beta)

    entries = tuple(stated(name) for name in sorted({*taus, *betas}))
    settings = config.model_dump()
    settings["population"]["preferences_by_handle"] = entries
    return Config.of(settings)


def _refuse_random_handles(config: Config) -> None:
    if config.secrets.source == "os":
        raise ConfigError(
            "thresholds and risk_weights are kept with the settings under handles that "
            "follow from the seed, found secrets.source = 'os', which is to "
            "hide who took part. Write them into a file and set population.preferences."
        )


def _shares(what: str, found: Any) -> dict[ClientName, float]:  # noqa: ANN401 - anything
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"{what} must be a dict of numbers in [0, 1] by client, found a "
            f"{type(found).__name__}. Write it as {{name: value}}."
        )
    return {str(name): _share(what, name, each) for name, each in found.items()}


def _share(what: str, name: object, found: Any) -> float:  # noqa: ANN401 - anything
    try:
        share = float(found)
    except (TypeError, ValueError):
        share = float("nan")
    if isinstance(found, (bool, str)) or not 0 <= share <= 1:
        raise ConfigError(
            f"{what} must give {name} a number in [0, 1], found {found!r}. Correct it."
        )
    return share


def check_preference_names(
    named: Collection[ClientName], known: Collection[ClientName]
) -> None:
    """Refuse names that no client has.

    Raises:
        ConfigError: naming the first of them.
    """
    if unknown := sorted({str(name) for name in named} - set(known)):
        raise ConfigError(
            f"thresholds and risk_weights name clients, found {unknown[0]!r}, "
            f"and there is no such client. The first is {min(known)!r}, the last "
            f"{max(known)!r}. Correct the name."
        )
